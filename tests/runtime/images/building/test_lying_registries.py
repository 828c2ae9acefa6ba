"""A registry that lies fails the build at the line of FROM, and nothing is stored."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from aiohttp import web
from tests.runtime.images.building.image_builds import Builds, serving_base
from tests.runtime.images.registry_support import RegistryServer, fronting

from moorage.core.db.store import Database
from moorage.runtime.images.dockerfile.errors import DockerfileError

pytestmark = [pytest.mark.anyio, pytest.mark.xdist_group("image builds")]


@pytest.fixture(scope="module")
def registry() -> Iterator[RegistryServer]:
    with serving_base() as running:
        yield running


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
