"""Versions of Node.js fetched from npm: stand-ins, from a small registry of this machine."""

from __future__ import annotations

import base64
import hashlib
import io
import json
import os
import platform
import tarfile
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from tests.runtime.builds.app_support import release
from tests.runtime.builds.build_support import write_files
from tests.runtime.sandbox.sandbox_support import outside_address

from moorage.runtime.builds.detection.reading import Folder
from moorage.runtime.builds.launch import fetch_runtimes, launch
from moorage.runtime.builds.node import versions
from moorage.runtime.builds.ports import BuildFailed, Plan
from moorage.settings import Settings

pytestmark = [pytest.mark.anyio, pytest.mark.settings(sandbox_allow=(outside_address(),))]

PACKAGE = versions._PACKAGES[platform.machine()]
VERSIONS = {"23.0.0": "23.0.0", "23.5.0": "23.5.0", "23.9.0-rc.1": "", "25.9.0": "something else"}


def tarball(version: str, shown: str) -> bytes:
    manifest = {"name": PACKAGE, "version": version}
    files = {"package.json": json.dumps(manifest), "bin/node": f"#!/bin/sh\necho v{shown}\n"}
    body = io.BytesIO()
    with tarfile.open(fileobj=body, mode="w:gz") as archive:
        for name, text in files.items():
            entry = tarfile.TarInfo(f"package/{name}")
            entry.size, entry.mode = len(text.encode()), 0o755
            archive.addfile(entry, io.BytesIO(text.encode()))
    return body.getvalue()


class Registry:
    """Serves the versions of one package."""

    def __init__(self) -> None:
        self.files = {version: tarball(version, shown) for version, shown in VERSIONS.items()}
        self.digests = {version: hashlib.sha512(body).digest() for version, body in self.files.items()}
        self.requests: list[str] = []
        registry, host = self, outside_address()

        class Answer(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                registry.requests.append(self.path)
                body = registry.answer(self.path)
                self.send_response(200 if body else 404)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: object) -> None:
                return

        self.server = ThreadingHTTPServer((host, 0), Answer)
        self.url = f"http://{host}:{self.server.server_address[1]}/"

    def answer(self, path: str) -> bytes:
        name = path.strip("/")
        if name == PACKAGE:
            versions = {each: self._manifest(each) for each in VERSIONS}
            return json.dumps({"name": PACKAGE, "dist-tags": {"latest": "25.9.0"}, "versions": versions}).encode()
        version = name.removeprefix("files/").removesuffix(".tgz")
        return self.files.get(version, b"")

    def _manifest(self, version: str) -> dict[str, Any]:
        digest = base64.b64encode(self.digests[version]).decode()
        dist = {"tarball": f"{self.url}files/{version}.tgz", "integrity": f"sha512-{digest}"}
        return {"name": PACKAGE, "version": version, "dist": dist}


@pytest.fixture
def registry(monkeypatch: pytest.MonkeyPatch) -> Iterator[Registry]:
    made = Registry()
    monkeypatch.setenv("npm_config_registry", made.url)
    thread = threading.Thread(target=made.server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    yield made
    made.server.shutdown()
    thread.join()
    made.server.server_close()


async def choose(settings: Settings, folder: Path, files: dict[str, Any]) -> tuple[str, str]:
    said: list[str] = []
    source = Folder(write_files(folder, files), "")
    version = await versions.choose(settings, source, said.append, is_sandboxed=True)
    return version, "\n".join(said)


async def test_the_newest_version_of_a_range_is_fetched_once_and_serves_later_builds(
    settings: Settings, tmp_path: Path, registry: Registry
) -> None:
    first, said = await choose(settings, tmp_path / "a", {".nvmrc": "23"})
    asked = len(registry.requests)
    second, _ = await choose(settings, tmp_path / "b", {"package.json": {"engines": {"node": "^23.2 <24"}}})

    made = launch(settings, Plan("container", "nodejs", start="node .", node=first), {}, is_sandboxed=True,
                  release=tmp_path / "a", memory_mb=512)  # fmt: skip
    assert (first, second) == ("23.5.0", "23.5.0")
    assert said == ".nvmrc asks for Node.js 23: fetching it\n.nvmrc asks for Node.js 23: 23.5.0 is used"
    assert len(registry.requests) == asked
    assert "/opt/nodejs-23.5.0/bin" in made.env["PATH"].split(":")
    assert Path(made.binds["/opt/nodejs-23.5.0"], "bin", "node").stat().st_mode & 0o777 == 0o755
    assert [path.name for path in settings.folder(versions.NODES).iterdir()] == ["23.5.0"]


async def test_the_version_of_the_machine_is_used_where_it_fits(settings: Settings, tmp_path: Path) -> None:
    version, said = await choose(settings, tmp_path, {"package.json": {"engines": {"node": ">=18"}}})

    assert (version, said) == ("", "")


@pytest.mark.parametrize(
    ("wanted", "why"),
    [
        ("5", "npm has no such version for this machine"),
        pytest.param("25", "the package does not contain it", marks=pytest.mark.twin),
    ],
)
async def test_a_version_that_cannot_be_had_is_a_note_and_the_build_goes_on(
    settings: Settings, tmp_path: Path, registry: Registry, wanted: str, why: str
) -> None:
    own = ".".join(map(str, versions.machine_version() or ()))

    version, said = await choose(settings, tmp_path, {"package.json": {"engines": {"node": wanted}}})

    expected = f"engines of package.json asks for Node.js {wanted}, which cannot be had here: {why}; "
    assert version == ""
    assert said.splitlines()[-1] == f"{expected}Node.js {own} is used instead"


@pytest.mark.deep
async def test_a_package_with_another_digest_is_refused_and_a_release_says_so(
    settings: Settings, registry: Registry
) -> None:
    registry.files["23.5.0"] = tarball("23.5.0", "66.6.6")

    with pytest.raises(BuildFailed, match=r"needs Node\.js 23\.5\.0, which cannot be fetched: .*EINTEGRITY"):
        await fetch_runtimes(settings, Plan("container", "nodejs", node="23.5.0"), is_sandboxed=True)

    assert list(settings.folder(versions.NODES).iterdir()) == []


def test_versions_that_were_not_used_for_long_are_removed_but_for_the_latest(settings: Settings) -> None:
    for number in range(10):
        folder = settings.folder(versions.NODES) / f"20.0.{number}"
        folder.mkdir(parents=True)
        os.utime(folder, (0, 0) if number < 9 else None)

    versions._remove_unused(settings)

    assert len(versions._stored(settings)) == versions.MIN_KEPT
    assert "20.0.9" in versions._stored(settings)


@pytest.mark.deep
@pytest.mark.parametrize(("wanted", "major"), [("lts/iron", 20), ("16", 16)])
async def test_an_app_is_installed_and_run_with_the_version_that_it_asks_for(
    tmp_path: Path, wanted: str, major: int
) -> None:
    server = "require('http').createServer((_, r) => r.end(process.version)).listen(process.env.PORT)"
    package = {"scripts": {"start": "node server.js"}, "dependencies": {"ms": "2.1.3"}}

    made = await release(tmp_path, {"package.json": package, "server.js": server, ".nvmrc": wanted})
    answer, errors = await made.answer()

    assert answer.startswith(f"v{major}."), errors
    assert answer == f"v{made.plan.node}"
