"""Registries that lie or want a password: the build fails at the line of FROM, and nothing is stored."""

from __future__ import annotations

import base64
from dataclasses import replace
from pathlib import Path

import pytest
from aiohttp import web
from tests.runtime.images.building.image_builds import ORG, Builds
from tests.runtime.images.registry_support import LOOPBACK, QUICK, RegistryServer, fronting

from moorage.core.db.store import Database
from moorage.runtime.images.dockerfile.errors import DockerfileError
from moorage.runtime.images.sign_in import Credentials
from moorage.runtime.images.sources import Sources

pytestmark = [pytest.mark.anyio, pytest.mark.group("image builds")]


def changed_blobs(request: web.Request, body: bytes) -> bytes:
    return body[:-1] + b"!" if "/blobs/" in request.path else body


def short_blobs(request: web.Request, body: bytes) -> bytes:
    return body[: len(body) // 2] if "/blobs/" in request.path else body


def changed_manifests(request: web.Request, body: bytes) -> bytes:
    return body + b" " if "/manifests/" in request.path else body


async def to_private_address(request: web.Request) -> web.StreamResponse | None:
    if "/blobs/" in request.path:
        raise web.HTTPFound("http://169.254.169.254/latest/meta-data")
    return None


@pytest.mark.parametrize("change", [changed_blobs, short_blobs, changed_manifests])
async def test_other_bytes_than_announced_are_refused(
    db: Database, registry: RegistryServer, tmp_path: Path, change: object
) -> None:
    async with fronting(registry, change=change) as front:  # type: ignore[arg-type]
        builds = Builds(db, front.server, tmp_path)
        with pytest.raises(DockerfileError, match=r"line 2: cannot pull .* (digest|size|less|sent|configuration)"):
            await builds.build("# a comment\nFROM BASE\nRUN true")

    assert not list(builds.folders.root.glob("*"))


async def test_a_redirect_to_a_private_address_is_refused(
    db: Database, registry: RegistryServer, tmp_path: Path
) -> None:
    async with fronting(registry, to_private_address) as front:
        builds = Builds(db, front.server, tmp_path)
        with pytest.raises(DockerfileError, match="line 1: cannot pull"):
            await builds.build("FROM BASE\nRUN true")


@pytest.mark.boundary("tenant-to-tenant", "A fork's Dockerfile reads no private image of the organization.")
async def test_only_own_code_uses_the_credentials_of_the_organization(
    db: Database, registry: RegistryServer, tmp_path: Path
) -> None:
    async with fronting(registry, wants_basic) as front:
        builds = Builds(db, front.server, tmp_path)

        async def find(org_id: int, name: str) -> Credentials | None:
            return Credentials(name, "ada", "sesame") if org_id == ORG else None

        builds.builder = replace(builds.builder, sources=Sources(LOOPBACK, QUICK, find))
        own = builds.prepare("FROM BASE\nLABEL a=b")
        fork = builds.prepare("FROM BASE\nLABEL a=b")
        stage = builds.prepare("FROM scratch\nCOPY --from=BASE /etc/passwd /")

        built = await builds.execute(own)
        asked = len(front.requests)
        for each in (fork, stage):
            with pytest.raises(DockerfileError, match="the registry wants a password"):
                await builds.execute(replace(each, request=replace(each.request, has_credentials=False)))

    assert built.layers
    assert {request.headers.get("Authorization") for request in front.requests[asked:]} == {None}


async def wants_basic(request: web.Request) -> web.StreamResponse | None:
    if request.headers.get("Authorization") == f"Basic {base64.b64encode(b'ada:sesame').decode()}":
        return None
    return web.Response(status=401, headers={"WWW-Authenticate": 'Basic realm="Registry"'})
