"""Image builds by root and by an ordinary user, in a process of their own: same result, and nothing escapes."""

from __future__ import annotations

import base64
import io
import json
import os
import subprocess
import tarfile
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from tests.runtime.builds.build_support import write_files
from tests.runtime.images.building.image_builds import named
from tests.runtime.images.registry_support import RegistryServer
from tests.runtime.workers.invoker_support import MODE_PARAMS, give, path_of, python_of, user_of

pytestmark = pytest.mark.group("image builds")

# Builds a repository as a worker of the platform does; prints the log, then the files of the layers.
DRIVER = """
import asyncio, base64, json, sys
from pathlib import Path
from sqlalchemy import create_engine
from moorage.core.artifacts.store import ArtifactStore
from moorage.core.audit import service as audit
from moorage.core.db.schema import metadata
from moorage.core.db.sqlite import SqliteDatabase
from moorage.core.env import Env
from moorage.core.kit.clock import SystemClock
from moorage.core.kit.crypto import KeyRing
from moorage.core.net.targets import TargetPolicy
from moorage.runtime.builds.builder import Builder
from moorage.runtime.builds.dockerfiles import building
from moorage.runtime.builds.ports import BuildFailed, BuildRequest, ImageSettings
from moorage.runtime.images.blobs import ImageBlobs
from moorage.runtime.images.building.executor import ImageBuilder
from moorage.runtime.images.building.files.layer_folders import LayerFolders
from moorage.runtime.images.sources import Sources
from moorage.runtime.images.store import Images
from moorage.settings import Settings

data, source = map(Path, sys.argv[1:])
say = lambda *line: print(json.dumps(line), flush=True)

class Log:
    def write(self, stream, text):
        say(stream, text)

async def build():
    settings = Settings(_env_file=None, data=data)
    data.mkdir(exist_ok=True)
    engine = create_engine(f"sqlite:///{data}/store.db")
    metadata.create_all(engine)
    db = SqliteDatabase(data / "store.db", Env.make(settings, SystemClock(), KeyRing((b"k" * 32,)), b"s" * 32))
    await db.write(audit.ensure_key)
    store, sources = ArtifactStore(db), Sources(TargetPolicy(allow_loopback=True))
    images = Images(settings.folder("images"), sources.targets, db.env.clock, sources=sources)
    folders = LayerFolders(settings.folder("image-layers"))
    make = lambda: ImageBuilder(db, store, images, sources, building.limits_of(settings), folders)
    request = BuildRequest("project-1", source, "container", "docker", "./", "", "", "", "", True,
                           {"TOKEN": "t0ken"}, True, image=ImageSettings(7, "deployment:1"))
    try:
        built = await Builder(settings, is_sandboxed=True, images=make).build(request, Log())
        manifest = await ImageBlobs(db, store).manifest(7, built.plan.image)
        for layer in manifest.layers:
            if layer.media_type.endswith("tar"):
                await store.fetch(7, layer.digest.removeprefix("sha256:"), data / "layer")
                say("layer", base64.b64encode((data / "layer").read_bytes()).decode())
    except BuildFailed as failed:
        say("failed", str(failed))
    db.close()

asyncio.run(build())
"""


@dataclass
class Run:
    lines: list[list[str]]

    def of(self, kind: str) -> list[str]:
        return [line[1] for line in self.lines if line[0] == kind]

    @property
    def log(self) -> str:
        return "".join(line[1] for line in self.lines if line[0] in ("system", "stdout", "stderr"))

    def files(self) -> dict[str, tuple[tarfile.TarInfo, bytes]]:
        found: dict[str, tuple[tarfile.TarInfo, bytes]] = {}
        for layer in self.of("layer"):
            with tarfile.open(fileobj=io.BytesIO(base64.b64decode(layer))) as archive:
                for member in archive:
                    content = archive.extractfile(member) if member.isreg() else None
                    found[member.name] = (member, content.read() if content else b"")
        return found


@dataclass
class UserBuilds:
    mode: str
    folder: Path
    registry: RegistryServer
    builds: int = 0

    def build(self, dockerfile: str, files: dict[str, Any] | None = None) -> Run:
        self.builds += 1
        text = named(dockerfile, self.registry)
        source = write_files(self.folder / f"source-{self.builds}", {"Dockerfile": text, **(files or {})})
        give(source, self.mode)
        done = subprocess.run(
            [python_of(self.mode), "-c", DRIVER, str(self.folder / "data"), str(source)],
            env={"PATH": os.environ["PATH"], **path_of(self.mode)},
            capture_output=True,
            text=True,
            cwd="/",
            check=False,
            **user_of(self.mode),
        )
        assert done.returncode == 0, done.stderr[-3000:]
        return Run([json.loads(line) for line in done.stdout.splitlines()])


@pytest.fixture(params=MODE_PARAMS)
def builds(request: pytest.FixtureRequest, registry: RegistryServer) -> Iterator[UserBuilds]:
    with tempfile.TemporaryDirectory(prefix="image-builds-", ignore_cleanup_errors=True) as folder:
        Path(folder).chmod(0o755)
        give(Path(folder), request.param)
        yield UserBuilds(request.param, Path(folder), registry)


def test_every_user_builds_images_and_uses_the_cache(builds: UserBuilds) -> None:
    dockerfile = """
        FROM BASE AS build
        WORKDIR /src
        COPY --chown=app:staff a.txt kept
        RUN cat kept > made && chmod 000 made && mkdir closed && touch closed/x && chmod 000 closed && rm /etc/motd
        RUN chown app /src/made && rm -r /app && mkdir /app && echo new > /app/new
        FROM build
        RUN --mount=type=cache,target=/cache echo 1 >> /cache/n && wc -l < /cache/n > /lines
        COPY --from=build /src /copy
        """

    first = builds.build(dockerfile, {"a.txt": "a"})
    second = builds.build(dockerfile, {"a.txt": "a"})

    assert first.of("failed") == []
    files = first.files()
    assert files["src/made"][1] == b"a"
    assert files["src/made"][0].mode == 0
    assert (files["src/kept"][0].uid, files["src/kept"][0].gid) == (1000, 50)
    assert {"etc/.wh.motd", "app/.wh..wh..opq", "app/new", "copy/made", "src/closed/x"} <= set(files)
    assert files["src/made"][0].uid == (1000 if builds.mode == "root" else 0)
    assert ("a change of owners in RUN succeeds without effect" in first.log) == (builds.mode != "root")
    assert "6 of 6 steps from the cache" in second.log
    assert second.of("layer") == first.of("layer")


@pytest.mark.boundary("code-to-host", "An instruction of a Dockerfile cannot read or change files of the machine.")
def test_nothing_of_the_machine_is_reached_by_an_instruction(builds: UserBuilds) -> None:
    target = builds.folder / "of-the-machine"
    target.write_text("private")
    give(target, builds.mode)
    attempts = [
        f"cat {target}",
        f"echo changed > {target}",
        "mknod /disk b 8 0",
        "cat /proc/1/root/etc/shadow",
        "ls /proc/1/root/home/../work",
        "ln -s /proc/1/root /r && cat /r/etc/shadow",
        "echo c > /proc/sysrq-trigger",
        "echo 1 > /proc/sys/kernel/panic",
        "cat /sys/kernel/notes",
    ]
    script = "\n".join(f"RUN if {each}; then echo REACHED >> /reached; fi; true" for each in attempts)

    run = builds.build(f"FROM BASE\n{script}\nRUN touch /reached")

    assert run.of("failed") == []
    assert run.files()["reached"][1] == b""
    assert target.read_text() == "private"


@pytest.mark.boundary("code-to-host", "COPY and ADD read no file outside of the build context.")
def test_links_of_the_context_and_of_images_do_not_lead_out(builds: UserBuilds) -> None:
    outside = builds.folder / "outside"
    outside.mkdir()
    (outside / "secret").write_text("private")
    give(outside, builds.mode)
    run = builds.build(
        f"FROM BASE\nRUN ln -s {outside} /out && ln -s /../../../..{outside} /up\n"
        "COPY a.txt /out/new\nCOPY a.txt /up/new",
        {"a.txt": "a"},
    )

    assert run.of("failed") == []
    assert os.listdir(outside) == ["secret"]
    assert f"{outside}/new".lstrip("/") in run.files()

    refused = builds.build(f"FROM BASE\nRUN ln -s {outside} /out\nFROM BASE\nCOPY --from=0 /out/secret /x")
    assert "line 4: '/out/secret' is missing in stage 0" in refused.of("failed")[0]
