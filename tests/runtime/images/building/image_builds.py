"""Builds of Dockerfiles on a real registry, real sandboxes and a real artifact store."""

from __future__ import annotations

import gzip
import io
import json
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.runtime.images.registry_support import (
    LOOPBACK,
    QUICK,
    RegistryServer,
    descriptor,
    digest_of,
    running_registry,
)
from tests.runtime.shim.image_support import make_root

from moorage.core.artifacts.store import ArtifactStore
from moorage.core.db.store import Database
from moorage.runtime.images.blobs import ImageBlobs
from moorage.runtime.images.building.executor import ImageBuilder, predefined_args
from moorage.runtime.images.building.files.layer_folders import LayerFolders
from moorage.runtime.images.building.ports import BuiltImage, ImageRequest, Layer, Limits, Workspace
from moorage.runtime.images.dockerfile import ignore, stages
from moorage.runtime.images.layers import Unpacker
from moorage.runtime.images.manifests import OCI_CONFIG, OCI_LAYER, OCI_MANIFEST
from moorage.runtime.images.sources import Sources
from moorage.runtime.images.store import Images

PROGRAMS = ("chown", "chmod", "rm", "mkdir", "ln", "mv", "cp", "touch", "id", "env", "stat", "find", "sort", "head",
            "sleep", "printf", "test", "tar", "dd", "wc", "mknod", "dirname", "seq", "date")  # fmt: skip
PASSWD = "root:x:0:0:root:/root:/bin/sh\napp:x:1000:1001:app:/home/app:/bin/sh\n"
GROUP = "root:x:0:\nstaff:x:50:app\napp:x:1001:\n"
ORG = 7
FIRST_ID = 1_000_000_000
CONFIG: dict[str, Any] = {
    "Env": ["PATH=/usr/local/bin:/usr/bin:/bin", "BASE=yes"],
    "Cmd": ["/bin/sh"],
    "WorkingDir": "/",
}


def base_layer(folder: Path) -> bytes:
    """Return the layer of a small image with the programs of this machine."""
    root = make_root(folder / "base", *PROGRAMS)
    (root / "etc" / "passwd").write_text(PASSWD)
    (root / "etc" / "group").write_text(GROUP)
    for name in ("tmp", "root", "home", "proc", "sys", "dev"):
        (root / name).mkdir()
    for name in ("hosts", "hostname", "resolv.conf"):  # mount points of container runtimes
        (root / "etc" / name).touch()
    (root / "tmp").chmod(0o1777)
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as archive:
        archive.add(root, ".", filter=_owned_by_root)
    return packed.getvalue()


def _owned_by_root(header: tarfile.TarInfo) -> tarfile.TarInfo:
    header.uid = header.gid = 0
    header.uname = header.gname = ""
    header.mtime = 1_700_000_000
    return header


@contextmanager
def serving_base() -> Iterator[RegistryServer]:
    """Run a registry with the image `base`."""
    with tempfile.TemporaryDirectory(prefix="registry-") as folder, running_registry(Path(folder)) as registry:
        base = base_layer(Path(folder))
        push(registry, "base", base)
        push(registry, "python", base, python_layer())
        yield registry


def push(registry: RegistryServer, name: str, *layers: bytes, config: Mapping[str, Any] = CONFIG) -> None:
    """Store an image with all that other tools need, such as the digests of its uncompressed layers."""
    packed = [gzip.compress(layer, 1, mtime=0) for layer in layers]
    rootfs = {"type": "layers", "diff_ids": [digest_of(layer) for layer in layers]}
    platform = {"os": "linux", "architecture": predefined_args()["TARGETARCH"]}
    history: list[dict[str, str]] = [{}] * len(layers)
    about = json.dumps({**platform, "config": config, "rootfs": rootfs, "history": history}).encode()
    for body in (about, *packed):
        registry.push_blob(name, body)
    registry.push_manifest(
        name,
        "latest",
        {
            "schemaVersion": 2,
            "mediaType": OCI_MANIFEST,
            "config": descriptor(about, OCI_CONFIG),
            "layers": [descriptor(body, f"{OCI_LAYER}+gzip") for body in packed],
        },
    )


def python_layer() -> bytes:
    """Return a layer with Python of this machine and the part of its library that starts it."""
    packed = io.BytesIO()
    program = Path(shutil.which("python3", path="/usr/bin") or sys.executable).resolve()
    version = program.name.removeprefix("python")
    library = Path(f"/usr/lib/python{version}")
    with tarfile.open(fileobj=packed, mode="w") as archive:
        archive.add(program, "usr/bin/python3", filter=_owned_by_root)
        for each in sorted(library.iterdir()):
            if each.suffix == ".py" or each.name in ("encodings", "collections", "importlib", "re"):
                archive.add(each, str(each)[1:], filter=_without_bytecode)
        for each in _libraries(program):
            archive.add(each.resolve(), str(each)[1:], filter=_owned_by_root)
    return packed.getvalue()


def _without_bytecode(header: tarfile.TarInfo) -> tarfile.TarInfo | None:
    return None if header.name.endswith(("__pycache__", ".pyc")) else _owned_by_root(header)


def _libraries(program: Path) -> list[Path]:
    printed = subprocess.run(["ldd", str(program)], capture_output=True, text=True, check=True).stdout
    words = [word for line in printed.splitlines() for word in line.split() if word.startswith("/")]
    return [Path(word if word.startswith("/usr/") else f"/usr{word}") for word in words]


def named(dockerfile: str, registry: RegistryServer) -> str:
    """Replace the names of base images."""
    for name in ("BASE", "PYTHON"):
        dockerfile = re.sub(rf"(?<=FROM ){name}\b|(?<=-from=){name}\b|(?<=PLATFORM ){name}\b",
                            f"127.0.0.1:{registry.port}/{name.lower()}", dockerfile)  # fmt: skip
    return dockerfile


@dataclass
class Result:
    image: BuiltImage
    log: list[str]
    config: dict[str, Any]
    tree: dict[str, tarfile.TarInfo]  # of the layers that the build made
    layers: list[bytes]

    def content(self, path: str) -> str:
        for layer in reversed(self.layers):
            with tarfile.open(fileobj=io.BytesIO(layer)) as archive:
                if path in archive.getnames():
                    file = archive.extractfile(path)
                    assert file is not None
                    return file.read().decode()
        raise AssertionError(f"no layer has {path}")

    @property
    def steps(self) -> list[str]:
        """Return the log lines of steps that were executed."""
        return [line for line in self.log if line.startswith("[") and "taken from the cache" not in line]


@dataclass(frozen=True)
class Prepared:
    request: ImageRequest
    workspace: Workspace


@dataclass
class Builds:
    """Builds images for one project."""

    db: Database
    registry: RegistryServer
    home: Path
    cache: str = "project-1"
    secrets: Mapping[str, str] = field(default_factory=dict)
    limits: Limits = field(default_factory=Limits)
    output: list[str] = field(default_factory=list)
    builds: int = 0
    maps_ids: bool = True

    def __post_init__(self) -> None:
        self.store = ArtifactStore(self.db)
        self.folders = LayerFolders(self.home / "image-layers")
        self.images = self.store_at("images", self.folders)
        self.builder = ImageBuilder(
            self.db, self.store, self.images, Sources(LOOPBACK, QUICK), self.limits, self.folders
        )

    def store_at(self, name: str, folders: LayerFolders | None = None) -> Images:
        """Return a store of unpacked images of this machine."""
        blobs = ImageBlobs(self.db, self.store)
        return Images(self.home / name, LOOPBACK, self.db.env.clock, transfer=QUICK, blobs=blobs, layer_folders=folders)

    @property
    def base(self) -> str:
        return f"127.0.0.1:{self.registry.port}/base"

    async def build(
        self,
        dockerfile: str,
        files: Mapping[str, str | bytes] | None = None,
        *,
        context: str = "",
        target: str = "",
        use_caches: bool = True,
        args: Mapping[str, str] | None = None,
    ) -> Result:
        """Build a Dockerfile, in which BASE and PYTHON stand for base images."""
        prepared = self.prepare(dockerfile, files, context=context, target=target, use_caches=use_caches, args=args)
        image = await self.execute(prepared)
        assert not list(prepared.workspace.scratch.glob("run-*"))
        return await self._result(image, self.output)

    def prepare(
        self,
        dockerfile: str,
        files: Mapping[str, str | bytes] | None = None,
        *,
        context: str = "",
        target: str = "",
        use_caches: bool = True,
        args: Mapping[str, str] | None = None,
    ) -> Prepared:
        """Write the files of a build."""
        self.builds += 1
        work = self.home / f"build-{self.builds}"
        source = work / "source"
        source.mkdir(parents=True)
        for name, content in (files or {}).items():
            write(source / name, content)
        text = named(dockerfile, self.registry)
        request = ImageRequest(
            ORG,
            f"deployment:{self.builds}",
            self.cache,
            source,
            "Dockerfile",
            context,
            text,
            args or {},
            target,
            self.secrets,
            use_caches,
        )
        log: list[str] = []
        self.output = log
        (work / "scratch").mkdir(mode=0o700)

        def output(_: str, data: bytes) -> None:
            log.extend(data.decode(errors="replace").splitlines())

        until = time.monotonic() + 300
        workspace = Workspace(
            work / "scratch", self.home / "mounts", FIRST_ID, until, log.append, output, maps_ids=self.maps_ids
        )
        return Prepared(request, workspace)

    async def execute(self, prepared: Prepared) -> BuiltImage:
        request = prepared.request
        file = stages.load(request.text, request.args, predefined_args(), request.target)
        rules = request.source / request.context / ".dockerignore"
        ignored = ignore.parse(rules.read_text() if rules.exists() else "")
        return await self.builder.build(request, file, ignored, prepared.workspace)

    async def _result(self, image: BuiltImage, log: list[str]) -> Result:
        manifest = json.loads(await self.fetch(image.digest))
        config = json.loads(await self.fetch(manifest["config"]["digest"]))
        own = [await self.fetch(layer["digest"]) for layer in manifest["layers"] if layer["mediaType"].endswith("tar")]
        tree: dict[str, tarfile.TarInfo] = {}
        for layer in own:
            with tarfile.open(fileobj=io.BytesIO(layer)) as archive:
                tree |= {member.name: member for member in archive}
        return Result(image, log, config, tree, own)

    async def fetch_layer(self, layer: Layer) -> bytes:
        body = await self.fetch(layer.digest)
        return gzip.decompress(body) if layer.media_type.endswith("gzip") and body.startswith(b"\x1f\x8b") else body

    async def fetch(self, digest: str) -> bytes:
        target = self.home / "fetched"
        await self.store.fetch(ORG, digest.removeprefix("sha256:"), target)
        return target.read_bytes()


def write(path: Path, content: str | bytes) -> None:
    """Write a file; a text that starts with `-> ` is a link, `#!` makes it executable."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if isinstance(content, str) and content.startswith("-> "):
        path.symlink_to(content.removeprefix("-> "))
        return
    data = content.encode() if isinstance(content, str) else content
    path.write_bytes(data)
    path.chmod(0o755 if data.startswith(b"#!") else 0o644)


__all__ = ["Builds", "Result", "Unpacker", "serving_base", "write"]
