"""A real registry on loopback, test images, and a misbehaving server in front of it."""

from __future__ import annotations

import contextlib
import gzip
import hashlib
import http.client
import io
import json
import os
import shutil
import socket
import subprocess
import sys
import tarfile
import time
import zlib
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp
from aiohttp import web
from tests.ports import free_port

from moorage.core.net.targets import TargetPolicy
from moorage.runtime.images.manifests import DOCKER_LIST, DOCKER_MANIFEST, OCI_INDEX, OCI_MANIFEST
from moorage.runtime.images.references import Reference
from moorage.runtime.images.registry import PullSettings

LOOPBACK = TargetPolicy(allow_loopback=True)
QUICK = PullSettings(wait_s=0.01, max_wait_s=0.01)
START_S = 30
_CONFIG = """\
version: 0.1
log: {{level: error, accesslog: {{disabled: true}}}}
storage: {{filesystem: {{rootdirectory: {folder}}}, maintenance: {{uploadpurging: {{enabled: false}}}}}}
http: {{addr: "127.0.0.1:{port}"}}
"""


@dataclass(frozen=True)
class Entry:
    """One entry of a layer."""

    name: str
    content: bytes = b""
    kind: bytes = tarfile.REGTYPE
    target: str = ""
    mode: int = 0o644
    mtime: int = 1_700_000_000
    pax: Mapping[str, str] = field(default_factory=dict)
    uid: int = 0
    gid: int = 0

    def header(self) -> tarfile.TarInfo:
        header = tarfile.TarInfo(self.name)
        header.type, header.linkname, header.mode, header.mtime = self.kind, self.target, self.mode, self.mtime
        header.size, header.pax_headers = len(self.content), dict(self.pax)
        header.uid, header.gid = self.uid, self.gid
        return header


def folder(name: str, mode: int = 0o755) -> Entry:
    return Entry(name, kind=tarfile.DIRTYPE, mode=mode)


def symlink(name: str, target: str) -> Entry:
    return Entry(name, kind=tarfile.SYMTYPE, target=target)


def hard_link(name: str, target: str) -> Entry:
    return Entry(name, kind=tarfile.LNKTYPE, target=target)


def tar(*entries: Entry) -> bytes:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for entry in entries:
            archive.addfile(entry.header(), io.BytesIO(entry.content))
    return packed.getvalue()


def layer(*entries: Entry) -> bytes:
    return gzip.compress(tar(*entries), mtime=0)


def digest_of(body: bytes) -> str:
    return f"sha256:{hashlib.sha256(body).hexdigest()}"


def _unpacked(body: bytes) -> bytes:
    """Return a layer as image configurations name it; container runtimes check that."""
    with contextlib.suppress(OSError, EOFError, zlib.error):
        return gzip.decompress(body)
    return body


def descriptor(body: bytes, media_type: str) -> dict[str, Any]:
    return {"mediaType": media_type, "digest": digest_of(body), "size": len(body)}


@dataclass(frozen=True)
class RegistryServer:
    """Pushes to the registry like `docker push`."""

    port: int

    def reference(self, repository: str, tag: str | None = "latest", digest: str | None = None) -> Reference:
        return Reference(f"127.0.0.1:{self.port}", repository, tag, digest)

    def call(self, method: str, path: str, body: bytes = b"", **headers: str) -> http.client.HTTPResponse:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)
        sent = {name.replace("_", "-"): value for name, value in headers.items()}
        connection.request(method, path, body, sent)
        answer = connection.getresponse()
        assert answer.status < 300, (answer.status, answer.read())
        return answer

    def push_blob(self, repository: str, body: bytes) -> None:
        location = self.call("POST", f"/v2/{repository}/blobs/uploads/").getheader("Location") or ""
        path = location.removeprefix(f"http://127.0.0.1:{self.port}")
        self.call("PUT", f"{path}&digest={digest_of(body)}", body, Content_Type="application/octet-stream")

    def push_manifest(self, repository: str, tag: str, document: Mapping[str, Any]) -> str:
        body = json.dumps(document).encode()
        self.call("PUT", f"/v2/{repository}/manifests/{tag}", body, Content_Type=document["mediaType"])
        return digest_of(body)

    def push(
        self,
        repository: str,
        *layers: bytes,
        tag: str = "latest",
        architecture: str = "arm64",
        is_docker: bool = False,
        **config: Any,
    ) -> str:
        """Store an image and return the digest of its manifest."""
        kind = "application/vnd.docker.container.image.v1+json" if is_docker else _OCI_CONFIG
        packed = "application/vnd.docker.image.rootfs.diff.tar.gzip" if is_docker else _OCI_LAYER
        root = {"type": "layers", "diff_ids": [digest_of(_unpacked(body)) for body in layers]}
        about = json.dumps({"os": "linux", "architecture": architecture, "config": config, "rootfs": root}).encode()
        for body in (about, *layers):
            self.push_blob(repository, body)
        manifest = {
            "schemaVersion": 2,
            "mediaType": DOCKER_MANIFEST if is_docker else OCI_MANIFEST,
            "config": descriptor(about, kind),
            "layers": [descriptor(body, packed) for body in layers],
        }
        return self.push_manifest(repository, tag, manifest)

    def push_index(
        self, repository: str, images: Sequence[tuple[str, str, str]], *, tag: str = "latest", is_docker: bool = False
    ) -> str:
        """Store an index of (architecture, variant, digest) and return its digest."""
        manifests = []
        for architecture, variant, digest in images:
            kind = DOCKER_MANIFEST if is_docker else OCI_MANIFEST
            answer = self.call("GET", f"/v2/{repository}/manifests/{digest}", Accept=kind)
            platform = {"os": "linux", "architecture": architecture} | ({"variant": variant} if variant else {})
            manifests.append(descriptor(answer.read(), kind) | {"platform": platform})
        kind = DOCKER_LIST if is_docker else OCI_INDEX
        return self.push_manifest(repository, tag, {"schemaVersion": 2, "mediaType": kind, "manifests": manifests})


_OCI_CONFIG = "application/vnd.oci.image.config.v1+json"
_OCI_LAYER = "application/vnd.oci.image.layer.v1.tar+gzip"


@contextmanager
def running_registry(folder: Path) -> Iterator[RegistryServer]:
    program = shutil.which("docker-registry", path=f"{os.environ['PATH']}:{sys.prefix}/debian/usr/bin")
    assert program, "the tests need the program docker-registry, of the Debian package of the same name"
    port = free_port()
    config = folder / "registry.yml"
    config.write_text(_CONFIG.format(folder=folder / "stored", port=port))
    with subprocess.Popen(
        [program, "serve", str(config)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env={}
    ) as running:
        try:
            _wait_for(port, running)
            yield RegistryServer(port)
        finally:
            running.terminate()


def _wait_for(port: int, running: subprocess.Popen[bytes]) -> None:
    until = time.monotonic() + START_S
    while time.monotonic() < until and running.poll() is None:
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
        except OSError:
            time.sleep(0.05)
        else:
            return
    raise AssertionError("the registry did not start")


Before = Callable[[web.Request], Awaitable[web.StreamResponse | None]]
Change = Callable[[web.Request, bytes], bytes]


@dataclass
class Front:
    """A proxy of a registry that records requests, and may answer itself or change answers."""

    upstream: int
    before: Before | None = None
    change: Change | None = None
    drops: frozenset[str] = frozenset()  # request headers that are not forwarded
    port: int = 0
    requests: list[web.Request] = field(default_factory=list)

    @property
    def server(self) -> RegistryServer:
        return RegistryServer(self.port)

    def asked(self, part: str) -> list[web.Request]:
        return [request for request in self.requests if part in request.path]

    async def answer(self, request: web.Request) -> web.StreamResponse:
        self.requests.append(request)
        own = await self.before(request) if self.before else None
        return own or await self._pass_on(request)

    async def _pass_on(self, request: web.Request) -> web.Response:
        sent = {name: value for name, value in request.headers.items() if name in ("Accept", "Range")}
        url = f"http://127.0.0.1:{self.upstream}{request.raw_path}"
        async with aiohttp.ClientSession(auto_decompress=False) as session:
            headers = {name: value for name, value in sent.items() if name not in self.drops}
            async with session.request(request.method, url, headers=headers) as got:
                body = await got.read()
                kept = {
                    name: got.headers[name] for name in ("Content-Type", "Docker-Content-Digest") if name in got.headers
                }
        return web.Response(status=got.status, body=self.change(request, body) if self.change else body, headers=kept)


@asynccontextmanager
async def fronting(
    registry: RegistryServer,
    before: Before | None = None,
    *,
    change: Change | None = None,
    drops: frozenset[str] = frozenset(),
    host: str = "127.0.0.1",
) -> AsyncIterator[Front]:
    front = Front(registry.port, before, change, drops)
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", front.answer)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    try:
        site = web.TCPSite(runner, host, 0)
        await site.start()
        front.port = runner.addresses[0][1]
        yield front
    finally:
        await runner.cleanup()
