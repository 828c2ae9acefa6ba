"""Local package index for pip and npm, and installs like those of the control process."""

from __future__ import annotations

import base64
import contextlib
import hashlib
import io
import json
import os
import subprocess
import tarfile
import tempfile
import threading
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from tests.runtime.sandbox.sandbox_support import outside_address
from tests.runtime.workers.invoker_support import CANARY, give, path_of, python_of, user_of

# Installs like the control process, as the current user, and prints the result.
DRIVER = """
import asyncio, json, sys
from pathlib import Path
from moorage.runtime.workers.runtimes import resolve
from moorage.errors import DiskFull
from moorage.products.functions.dependencies import installer
from moorage.products.functions.dependencies.failures import InstallFailed
from moorage.settings import Settings

data, allow, folder, language, org_id, limits = sys.argv[1:]
limits = json.loads(limits)
installer.TIMEOUT_S = limits["timeout_s"]
installer.DISK_MB = limits["disk_mb"]

async def install():
    settings = Settings(_env_file=None, data=Path(data), sandbox_allow=(allow,), disk_reserve_mb=limits["reserve_mb"])
    try:
        await installer.SandboxInstaller(settings).install(int(org_id), Path(folder), resolve(language))
    except InstallFailed as failed:
        return failed.tail
    except DiskFull as full:
        return full.message

print(json.dumps(asyncio.run(install())))
"""


@dataclass
class Index:
    """Package index for both languages; sandboxes reach it if the operator allows its address."""

    address: str
    port: int = 0
    files: dict[str, tuple[str, bytes]] = field(default_factory=dict)
    requests: list[str] = field(default_factory=list)
    closing: threading.Event = field(default_factory=threading.Event)

    @property
    def url(self) -> str:
        return f"http://{self.address}:{self.port}"

    @property
    def environment(self) -> dict[str, str]:
        return {
            "PIP_INDEX_URL": f"{self.url}/simple",
            "PIP_TRUSTED_HOST": self.address,
            "npm_config_registry": f"{self.url}/npm/",
        }

    def add_python(self, name: str, *files: tuple[str, bytes]) -> None:
        links = "".join(f'<a href="/files/{file}">{file}</a>' for file, _ in files)
        self.files[f"/simple/{name}/"] = ("text/html", f"<!DOCTYPE html><html><body>{links}</body></html>".encode())
        self.files |= {f"/files/{file}": ("application/octet-stream", body) for file, body in files}

    def add_node(self, name: str, tarball: bytes) -> None:
        version = {
            "name": name,
            "version": "1.0.0",
            "dist": {"tarball": self.tarball(name), "integrity": digest(tarball)},
        }
        packument = {"name": name, "dist-tags": {"latest": "1.0.0"}, "versions": {"1.0.0": version}}
        self.files[f"/npm/{name}"] = ("application/json", json.dumps(packument).encode())
        self.files[f"/npm/{name}/-/{name}-1.0.0.tgz"] = ("application/octet-stream", tarball)

    def tarball(self, name: str) -> str:
        return f"{self.url}/npm/{name}/-/{name}-1.0.0.tgz"


def digest(data: bytes) -> str:
    return "sha512-" + base64.b64encode(hashlib.sha512(data).digest()).decode()


def wheel(name: str, code: str) -> tuple[str, bytes]:
    info = f"{name}-1.0.dist-info"
    files = {
        f"{name}/__init__.py": code,
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        f"{info}/RECORD": "",
    }
    body = io.BytesIO()
    with zipfile.ZipFile(body, "w") as archive:
        for path, text in files.items():
            archive.writestr(path, text)
    return f"{name}-1.0-py3-none-any.whl", body.getvalue()


def tar(files: dict[str, str]) -> bytes:
    body = io.BytesIO()
    with tarfile.open(fileobj=body, mode="w:gz") as archive:
        for path, text in files.items():
            entry = tarfile.TarInfo(path)
            entry.size = len(text.encode())
            archive.addfile(entry, io.BytesIO(text.encode()))
    return body.getvalue()


NODE_PACKAGE = tar(
    {
        "package/package.json": json.dumps({"name": "harbor", "version": "1.0.0", "main": "index.js"}),
        "package/index.js": "module.exports = 'a boat'\n",
    }
)


@contextlib.contextmanager
def serving_index() -> Iterator[Index]:
    """Serve packages until the end of the block."""
    index = Index(outside_address())

    class Answer(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            path = self.path.partition("?")[0]
            index.requests.append(path)
            if path.startswith("/simple/stalled"):
                index.closing.wait()
            kind, body = index.files.get(path, ("", b""))
            self.send_response(200 if kind else 404)
            self.send_header("Content-Type", kind or "text/plain")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            with contextlib.suppress(OSError):  # Some clients have disconnected by then.
                self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            return

    server = ThreadingHTTPServer((index.address, 0), Answer)
    server.daemon_threads = True
    index.port = server.server_address[1]
    index.add_python("harbor", wheel("harbor", "boat = 'a boat'\n"))
    index.add_python("sources", ("sources-1.0.tar.gz", tar({"sources-1.0/setup.py": "raise SystemExit('it ran')"})))
    index.add_node("harbor", NODE_PACKAGE)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    yield index
    index.closing.set()
    server.shutdown()
    thread.join()
    server.server_close()


@dataclass
class Deployment:
    """A data folder, and packages that one user deploys to it."""

    mode: str
    index: Index
    data: Path
    count: int = 0

    def install(
        self, files: dict[str, Any], language: str, *, org_id: int = 1, **limits: float
    ) -> tuple[Path, str | None]:
        """Install into a new package; return it and the failure."""
        self.count += 1
        folder = self.data / f"package-{self.count}"
        folder.mkdir()
        for name, content in files.items():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            body = content if isinstance(content, str | bytes) else json.dumps(content)
            (folder / name).write_bytes(body.encode() if isinstance(body, str) else body)
        give(folder, self.mode)
        limited = json.dumps({"timeout_s": 60.0, "disk_mb": 1024, "reserve_mb": 0, **limits})
        arguments = [str(self.data), self.index.address, str(folder), language, str(org_id), limited]
        done = subprocess.run(
            [python_of(self.mode), "-c", DRIVER, *arguments],
            env={
                "PATH": os.environ["PATH"],
                "MOORAGE_VAULT_KEY": CANARY,
                **path_of(self.mode),
                **self.index.environment,
            },
            capture_output=True,
            text=True,
            cwd="/",
            timeout=120,
            check=False,
            **user_of(self.mode),
        )
        assert done.returncode == 0, done.stderr
        failure: str | None = json.loads(done.stdout)
        return folder, failure

    def asked_for(self, name: str) -> int:
        return sum(name in request for request in self.index.requests)


@contextlib.contextmanager
def deploying(mode: str, index: Index) -> Iterator[Deployment]:
    with tempfile.TemporaryDirectory(prefix="install-") as folder:
        Path(folder).chmod(0o755)
        give(Path(folder), mode)
        yield Deployment(mode, index, Path(folder))


def node_files(index: Index, **changed: Any) -> dict[str, Any]:
    package = {"name": "mine", "version": "1.0.0", "dependencies": {"harbor": "1.0.0"}, **changed}
    locked = {"version": "1.0.0", "resolved": index.tarball("harbor"), "integrity": digest(NODE_PACKAGE)}
    lock = {
        "name": "mine",
        "version": "1.0.0",
        "lockfileVersion": 3,
        "packages": {"": package, "node_modules/harbor": locked},
    }
    return {"package.json": package, "package-lock.json": lock}


def cached(deployment: Deployment) -> list[str]:
    """Return the names of the cache entries."""
    return sorted(path.name for path in deployment.data.glob("build-cache/functions.v2/*"))
