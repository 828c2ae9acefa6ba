"""A platform that images are pushed to, raw requests of its distribution API, and small images."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import gzip
import http.client
import json
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from tests.builders import make_member, make_org, make_token, make_user
from tests.core.http.live_server import Platform, live_platform
from tests.runtime.images.registry_support import Entry, descriptor, digest_of, layer

from moorage.accounts.identity.organizations import service as orgs
from moorage.accounts.identity.roles import Role
from moorage.products.projects import service as projects
from moorage.products.projects.deployments import service as deployments
from moorage.products.projects.tables import Project
from moorage.runtime.images import machine
from moorage.runtime.images.manifests import OCI_CONFIG, OCI_INDEX, OCI_LAYER, OCI_MANIFEST

OCTETS = "application/octet-stream"


@dataclass(frozen=True)
class Response:
    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def code(self) -> str:
        """Code of the first error of the answer."""
        return str(json.loads(self.body)["errors"][0]["code"])

    @property
    def message(self) -> str:
        return str(json.loads(self.body)["errors"][0]["message"])


@dataclass
class Harbor:
    """A platform with an organization."""

    platform: Platform
    slug: str
    tokens: dict[Role, str]

    @property
    def host(self) -> str:
        return f"127.0.0.1:{self.platform.server.port}"

    @property
    def token(self) -> str:
        return self.tokens[Role.MEMBER]

    def call(
        self, method: str, path: str, body: bytes | Iterator[bytes] = b"", token: str | None = "", **headers: str
    ) -> Response:
        """Send a request below the organization's path, or to an absolute path."""
        connection = http.client.HTTPConnection("127.0.0.1", self.platform.server.port, timeout=60)
        sent = {name.replace("_", "-"): value for name, value in headers.items()}
        if token is not None:
            password = base64.b64encode(f"anybody:{token or self.token}".encode()).decode()
            sent["Authorization"] = f"Basic {password}"
        where = path if path.startswith("/") else f"/v2/{self.slug}/{path}"
        try:
            connection.request(method, where, body, sent)
            answer = connection.getresponse()
            known = {name.lower(): value for name, value in answer.getheaders()}
            return Response(answer.status, known, answer.read())
        finally:
            connection.close()

    def begin(self, name: str, **options: Any) -> str:
        answer = self.call("POST", f"{name}/blobs/uploads/", **options)
        assert answer.status == 202, answer
        return urlsplit(answer.headers["location"]).path

    def push_blob(self, name: str, body: bytes) -> str:
        answer = self.call("PUT", f"{self.begin(name)}?digest={digest_of(body)}", body, Content_Type=OCTETS)
        assert answer.status == 201, answer
        return digest_of(body)

    def put_manifest(self, name: str, reference: str, document: dict[str, Any], **options: Any) -> Response:
        body = json.dumps(document).encode()
        return self.call("PUT", f"{name}/manifests/{reference}", body, Content_Type=document["mediaType"], **options)

    def push(self, name: str, tag: str = "latest", content: bytes = b"hello") -> str:
        """Push a small image and return its digest."""
        for body in parts(content):
            self.push_blob(name, body)
        answer = self.put_manifest(name, tag, image(content))
        assert answer.status == 201, answer
        return answer.headers["docker-content-digest"]

    def project(self, name: str) -> Project | None:
        org_id = self.platform.org_id
        return asyncio.run(self.platform.db.read(lambda tx: projects.find(tx, org_id, name)))

    def deployment_count(self, name: str) -> int:
        project = self.project(name)
        assert project is not None
        return project.total_deployments

    def fail_latest(self, name: str) -> None:
        """End the newest deployment of a project as failed."""
        project, org_id = self.project(name), self.platform.org_id
        assert project is not None
        latest = project.latest_deployment_id or 0
        asyncio.run(self.platform.db.write(lambda tx: deployments.fail_if_open(tx, org_id, latest, "it broke")))

    @property
    def uploads(self) -> list[Path]:
        return list(self.platform.db.env.settings.folder("image-uploads").glob("*/*"))


def parts(content: bytes = b"hello") -> tuple[bytes, bytes]:
    """Configuration and layer of an image."""
    config = {"os": "linux", "architecture": machine.architecture(), "config": {"Cmd": ["/bin/hello"]}}
    packed = layer(Entry("bin/hello", content, mode=0o755))
    config["rootfs"] = {"type": "layers", "diff_ids": [digest_of(gzip_free(packed))]}
    return json.dumps(config).encode(), packed


def gzip_free(packed: bytes) -> bytes:
    return gzip.decompress(packed)


def image(content: bytes = b"hello") -> dict[str, Any]:
    """Manifest of an image."""
    config, packed = parts(content)
    return {
        "schemaVersion": 2,
        "mediaType": OCI_MANIFEST,
        "config": descriptor(config, OCI_CONFIG),
        "layers": [descriptor(packed, f"{OCI_LAYER}+gzip")],
    }


def index(*entries: tuple[str, dict[str, Any]]) -> dict[str, Any]:
    """Index of (architecture, manifest)."""
    return {
        "schemaVersion": 2,
        "mediaType": OCI_INDEX,
        "manifests": [
            descriptor(json.dumps(document).encode(), OCI_MANIFEST)
            | {"platform": {"os": "linux", "architecture": architecture}}
            for architecture, document in entries
        ],
    }


@contextlib.contextmanager
def running_harbor(folder: Path, template: Path, **settings: Any) -> Iterator[Harbor]:
    with live_platform(folder, template, **{"disk_reserve_mb": 0, **settings}) as platform:
        yield asyncio.run(_harbor(platform))


async def _harbor(platform: Platform) -> Harbor:
    db = platform.db
    org = await db.read(lambda tx: orgs.get(tx, platform.org_id))
    tokens = {Role.OWNER: platform.token}
    for role in (Role.VIEWER, Role.MEMBER, Role.ADMIN):
        tokens[role] = await make_token(db, await make_member(db, org, role), org.id)
    return Harbor(platform, org.slug, tokens)


async def stranger_token(platform: Platform) -> str:
    """Return a token of the owner of another organization."""
    user = await make_user(platform.db)
    org = await make_org(platform.db, user, name="Stranger")
    return await make_token(platform.db, user, org.id)


def run_client(*argv: str | Path, home: Path) -> subprocess.CompletedProcess[str]:
    """Run a real client with its own configuration folder."""
    program = shutil.which(str(argv[0]))
    assert program, f"the tests need the program {argv[0]}, of the Debian package of the same name"
    own = {"HOME": str(home), "XDG_RUNTIME_DIR": str(home), "TMPDIR": str(home)}
    return subprocess.run(
        [program, *argv[1:]],
        env={"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", **own},
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
        cwd=home,
    )


def write_layout(folder: Path, content: bytes = b"hello") -> Path:
    """Write an image as an OCI layout folder, which real clients read."""
    blobs = folder / "blobs" / "sha256"
    blobs.mkdir(parents=True)
    manifest = json.dumps(image(content)).encode()
    for body in (*parts(content), manifest):
        (blobs / digest_of(body).removeprefix("sha256:")).write_bytes(body)
    entry = descriptor(manifest, OCI_MANIFEST) | {"annotations": {"org.opencontainers.image.ref.name": "latest"}}
    (folder / "index.json").write_text(json.dumps({"schemaVersion": 2, "manifests": [entry]}))
    (folder / "oci-layout").write_text('{"imageLayoutVersion": "1.0.0"}')
    return folder
