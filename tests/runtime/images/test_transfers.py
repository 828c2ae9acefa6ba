"""Downloads that continue after a failure, and mirrors of registries."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from aiohttp import web
from tests.ports import free_port
from tests.runtime.images.registry_support import (
    LOOPBACK,
    Before,
    Entry,
    RegistryServer,
    digest_of,
    fronting,
    layer,
    running_registry,
)

from moorage.core.kit.clock import DAY_MS, ManualClock
from moorage.core.net.registry_mirrors import parse as parse_mirrors
from moorage.core.net.targets import TargetPolicy
from moorage.runtime.images import partial_files
from moorage.runtime.images.references import PullFailed, Reference
from moorage.runtime.images.registry import PullSettings
from moorage.runtime.images.sign_in import Credentials
from moorage.runtime.images.sources import Sources
from moorage.runtime.images.store import Images

pytestmark = pytest.mark.anyio

ORG = 1
PIECE = 64 * 1024
SETTINGS = PullSettings(tries=2, wait_s=0.01, max_wait_s=0.01, piece_bytes=PIECE)
PACKED = layer(Entry("noise", os.urandom(4 * PIECE)))


@pytest.fixture(scope="module")
def registry(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RegistryServer]:
    with running_registry(tmp_path_factory.mktemp("registry")) as server:
        server.push("team/tool", PACKED, architecture="amd64")
        yield server


def images_at(folder: Path, sources: Sources | None = None, clock: ManualClock | None = None) -> Images:
    known = sources or Sources(LOOPBACK, SETTINGS)
    return Images(folder / "images", LOOPBACK, clock or ManualClock(), architecture="amd64", sources=known)


def breaks_after(pieces: int) -> tuple[Before, Callable[[], None]]:
    """A registry that stops sending the layer after some pieces, and a function that repairs it."""
    state = {"left": pieces}

    async def before(request: web.Request) -> web.StreamResponse | None:
        if not request.path.endswith(digest_of(PACKED)):
            return None
        state["left"] -= 1
        return web.Response(status=500) if state["left"] < 0 else None

    return before, lambda: state.update(left=10**6)


def partial_of(folder: Path) -> list[Path]:
    return sorted((folder / "images" / "incoming").glob("part-*"))


async def pull(images: Images, reference: Reference, org_id: int = ORG) -> None:
    image = await images.pull(reference, lambda line: None, org_id)
    assert (image.root / "noise").stat().st_size == 4 * PIECE


async def test_a_pull_continues_where_an_earlier_one_broke_off(registry: RegistryServer, tmp_path: Path) -> None:
    before, repair = breaks_after(2)

    async with fronting(registry, before) as front:
        with pytest.raises(PullFailed, match="HTTP status 500"):
            await pull(images_at(tmp_path), front.server.reference("team/tool"))
        [kept] = partial_of(tmp_path)
        kept_bytes = kept.stat().st_size
        repair()
        count = len(front.requests)

        await pull(images_at(tmp_path), front.server.reference("team/tool"))

    ranges = [each.headers["Range"] for each in front.requests[count:] if each.path.endswith(digest_of(PACKED))]
    assert kept_bytes == 2 * PIECE
    assert ranges[0] == f"bytes={2 * PIECE}-{3 * PIECE - 1}"
    assert partial_of(tmp_path) == []


async def test_bytes_that_do_not_belong_to_the_layer_cost_one_more_try(
    registry: RegistryServer, tmp_path: Path
) -> None:
    before, repair = breaks_after(2)

    async with fronting(registry, before) as front:
        with pytest.raises(PullFailed):
            await pull(images_at(tmp_path), front.server.reference("team/tool"))
        [kept] = partial_of(tmp_path)
        kept.write_bytes(os.urandom(PIECE))
        repair()

        await pull(images_at(tmp_path), front.server.reference("team/tool"))

    assert partial_of(tmp_path) == []


async def test_an_organization_keeps_one_broken_download_for_a_day(registry: RegistryServer, tmp_path: Path) -> None:
    clock = ManualClock()
    images = images_at(tmp_path, clock=clock)
    other = layer(Entry("noise", os.urandom(4 * PIECE)))
    registry.push("team/other", other, architecture="amd64")

    async def before(request: web.Request) -> web.StreamResponse | None:
        is_late = request.headers.get("Range", "").startswith(f"bytes={PIECE}")
        return web.Response(status=500) if is_late else None

    async with fronting(registry, before) as front:
        for repository in ("team/tool", "team/other"):
            with pytest.raises(PullFailed):
                await pull(images, front.server.reference(repository))
        with pytest.raises(PullFailed):
            await pull(images, front.server.reference("team/other"), org_id=2)

    names = [path.name for path in partial_of(tmp_path)]
    assert names == [f"part-{org}-{digest_of(other).removeprefix('sha256:')}" for org in (1, 2)]
    images.collect(set(), clock.now() + DAY_MS * 365 * 100)
    assert partial_of(tmp_path) == []


def test_two_downloads_never_share_a_file(tmp_path: Path) -> None:
    with partial_files.held(tmp_path, "1", "sha256:00") as one, partial_files.held(tmp_path, "1", "sha256:00") as two:
        assert one != two

    assert list(tmp_path.iterdir()) == []


async def test_a_mirror_is_asked_before_the_registry(registry: RegistryServer, tmp_path: Path) -> None:
    async with fronting(registry) as mirror, fronting(registry) as front:
        mirrors = parse_mirrors([f"127.0.0.1:{front.port}=http://127.0.0.1:{mirror.port}"])
        await pull(
            images_at(tmp_path, Sources(LOOPBACK, SETTINGS, mirrors=mirrors)), front.server.reference("team/tool")
        )

    assert mirror.asked("/v2/team/tool/") != []
    assert front.requests == []


async def test_a_mirror_may_be_private_and_what_it_leads_to_may_not(registry: RegistryServer, tmp_path: Path) -> None:
    async def leads(request: web.Request) -> web.StreamResponse | None:
        return web.Response(status=307, headers={"Location": f"http://127.0.0.1:{hidden.port}{request.raw_path}"})

    async with fronting(registry) as hidden, fronting(registry, leads) as mirror:
        mirrors = parse_mirrors([f"registry.test=http://127.0.0.1:{mirror.port}"])
        sources = Sources(TargetPolicy(), SETTINGS, mirrors=mirrors)
        with pytest.raises(PullFailed, match=r"registry.test"):
            await pull(images_at(tmp_path, sources), Reference("registry.test", "team/tool", "latest", None))

    assert mirror.requests != []
    assert hidden.requests == []


@pytest.mark.parametrize("fault", ["gone", "empty", "lies"])
async def test_a_mirror_that_does_not_help_is_passed_over(registry: RegistryServer, tmp_path: Path, fault: str) -> None:
    async def before(request: web.Request) -> web.StreamResponse | None:
        return web.Response(status=404) if fault == "empty" else None

    def change(request: web.Request, body: bytes) -> bytes:
        return body if fault != "lies" or "/blobs/" not in request.path else b"\0" * len(body)

    async with fronting(registry, before, change=change) as mirror, fronting(registry) as front:
        port = free_port() if fault == "gone" else mirror.port
        mirrors = parse_mirrors([f"127.0.0.1:{front.port}=http://127.0.0.1:{port}"])
        await pull(
            images_at(tmp_path, Sources(LOOPBACK, SETTINGS, mirrors=mirrors)), front.server.reference("team/tool")
        )

    assert front.asked("/blobs/") != []


async def test_an_organization_with_credentials_does_not_use_the_mirror(
    registry: RegistryServer, tmp_path: Path
) -> None:
    async with fronting(registry) as mirror, fronting(registry) as front:
        name = f"127.0.0.1:{front.port}"

        async def find(org_id: int, registry: str) -> Credentials | None:
            return Credentials(registry, "ada", "sesame") if registry == name else None

        mirrors = parse_mirrors([f"{name}=http://127.0.0.1:{mirror.port}"])
        await pull(images_at(tmp_path, Sources(LOOPBACK, SETTINGS, find, mirrors)), front.server.reference("team/tool"))

    assert mirror.requests == []


def test_rules_of_mirrors() -> None:
    mirrors = parse_mirrors(["docker.io=mirror.example.com", "docker.io=http://10.0.0.5:5000/hub/", "ghcr.io=m:8443"])

    hub = [(each.base, each.prefix) for each in mirrors["docker.io"]]
    assert hub == [("https://mirror.example.com", ""), ("http://10.0.0.5:5000", "hub/")]
    assert mirrors["ghcr.io"][0].base == "https://m:8443"


@pytest.mark.parametrize("rule", ["", "mirror.example.com", "docker.io=", "docker.io=ftp://x", "docker.io=https://a b"])
def test_a_rule_of_a_mirror_that_is_none_is_named(rule: str) -> None:
    with pytest.raises(ValueError, match=r"should be like docker.io=mirror.example.com"):
        parse_mirrors([rule])
