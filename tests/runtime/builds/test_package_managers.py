"""Other package managers than npm, fetched by it: a stand-in for one, from a small registry of this machine."""

from __future__ import annotations

import base64
import hashlib
import io
import json
import tarfile
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from tests.runtime.builds.build_support import Log, make_request, write_files
from tests.runtime.sandbox.sandbox_support import outside_address

from moorage.runtime.builds.builder import Builder
from moorage.settings import Settings

pytestmark = pytest.mark.anyio

STAND_IN = """#!/usr/bin/env node
const fs = require('fs')
console.log('pnpm was told', process.argv.slice(2).join(' '), 'with the store', process.env.npm_config_store_dir)
if (process.argv[2] === 'run') { fs.mkdirSync('dist'); fs.writeFileSync('dist/index.html', 'built by pnpm') }
"""


def tarball() -> bytes:
    package = {"name": "pnpm", "version": "10.1.0", "bin": {"pnpm": "pnpm.cjs"}}
    body = io.BytesIO()
    with tarfile.open(fileobj=body, mode="w:gz") as archive:
        for name, text in {"package/package.json": json.dumps(package), "package/pnpm.cjs": STAND_IN}.items():
            entry = tarfile.TarInfo(name)
            entry.size, entry.mode = len(text.encode()), 0o755
            archive.addfile(entry, io.BytesIO(text.encode()))
    return body.getvalue()


@pytest.fixture
def registry() -> Iterator[str]:
    body, address = tarball(), outside_address()

    class Answer(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            said = body
            if self.path == "/pnpm":
                host = f"http://{address}:{server.server_address[1]}"
                integrity = "sha512-" + base64.b64encode(hashlib.sha512(body).digest()).decode()
                dist = {"tarball": f"{host}/pnpm/-/pnpm-10.1.0.tgz", "integrity": integrity}
                version = {"name": "pnpm", "version": "10.1.0", "bin": {"pnpm": "pnpm.cjs"}, "dist": dist}
                packument = {"name": "pnpm", "dist-tags": {"latest": "11.0.0"}, "versions": {"10.1.0": version}}
                said = json.dumps(packument).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(said)))
            self.end_headers()
            self.wfile.write(said)

        def log_message(self, *_: object) -> None:
            return

    server = ThreadingHTTPServer((address, 0), Answer)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    yield f"http://{address}:{server.server_address[1]}/"
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.mark.deep
@pytest.mark.settings(sandbox_allow=(outside_address(),))
async def test_pnpm_is_fetched_for_its_lock_file_and_the_build_command_finds_it(
    settings: Settings, tmp_path: Path, registry: str
) -> None:
    files = {"package.json": {"scripts": {"build": "x"}}, "pnpm-lock.yaml": "lockfileVersion: '9.0'\n"}
    source = write_files(tmp_path / "source", files)
    log = Log()
    request = make_request(source, build_cmd="pnpm run build", env={"npm_config_registry": registry})

    built = await Builder(settings, is_sandboxed=True).build(request, log)

    assert "pnpm was told install --frozen-lockfile --prod=false" in log.text("stdout")
    assert log.text("stdout").count("with the store /cache/pnpm\n") == 2
    assert (built.folder / "index.html").read_text() == "built by pnpm"
