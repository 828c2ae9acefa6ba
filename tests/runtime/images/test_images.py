"""Pulls into the image store from a real registry: shared, and removed when unused."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from tests.runtime.images.registry_support import (
    LOOPBACK,
    QUICK,
    Entry,
    RegistryServer,
    folder,
    fronting,
    layer,
    running_registry,
    symlink,
)

from moorage.core.kit.clock import DAY_MS, ManualClock
from moorage.core.net.targets import TargetPolicy
from moorage.runtime.images.references import PullFailed, parse
from moorage.runtime.images.store import Image, Images, Limits

pytestmark = pytest.mark.anyio

BASE = layer(folder("etc"), Entry("etc/name", b"base"), Entry("etc/old", b"old"), symlink("name", "/etc/name"))
MORE = layer(Entry("etc/.wh.old"), Entry("bin/run", b"#!", mode=0o755))
LIMITS = Limits(reserve_bytes=0)


@pytest.fixture(scope="module")
def registry(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RegistryServer]:
    with running_registry(tmp_path_factory.mktemp("registry")) as server:
        yield server


def make_images(folder: Path, clock: ManualClock | None = None, **changes: Any) -> Images:
    options: dict[str, Any] = {"limits": LIMITS, "transfer": QUICK, "architecture": "arm64"} | changes
    return Images(folder / "images", options.pop("targets", LOOPBACK), clock or ManualClock(), **options)


def unheard(line: str) -> None:
    """Discard progress."""


def is_clean(folder: Path) -> bool:
    """Checks that the store has only complete images."""
    incoming = folder / "images" / "incoming"
    return not incoming.exists() or os.listdir(incoming) == []


@pytest.mark.parametrize("is_docker", [False, True])
async def test_an_image_is_unpacked_layer_over_layer(registry: RegistryServer, tmp_path: Path, is_docker: bool) -> None:
    how: dict[str, Any] = {
        "Entrypoint": ["/bin/run"],
        "Cmd": ["now"],
        "Env": ["A=1"],
        "WorkingDir": "/etc",
        "User": "app",
    }
    digest = registry.push("whole", BASE, MORE, is_docker=is_docker, **how)
    said: list[str] = []

    image = await make_images(tmp_path).pull(registry.reference("whole"), said.append)

    assert image.digest == digest
    assert image.root == tmp_path / "images" / digest.removeprefix("sha256:") / "root"
    assert sorted(os.listdir(image.root / "etc")) == ["name"]
    assert os.readlink(image.root / "name") == "/etc/name"
    assert os.access(image.root / "bin/run", os.X_OK)
    assert (image.config.entrypoint, image.config.cmd, image.config.env) == (("/bin/run",), ("now",), {"A": "1"})
    assert (image.config.workdir, image.config.user) == ("/etc", "app")
    assert [line for line in said if line.startswith("Layer 2 of 2")]
    assert is_clean(tmp_path)


async def test_what_was_pulled_is_found_by_its_digest_also_after_a_restart(
    registry: RegistryServer, tmp_path: Path
) -> None:
    image = await make_images(tmp_path).pull(_pushed(registry, "found", BASE, Cmd=["a", "b"]), unheard)

    assert make_images(tmp_path).find(image.digest) == image


@pytest.mark.parametrize("digest", ["sha256:" + "0" * 64, "", "sha256:../x", "incoming"])
def test_what_was_not_pulled_is_not_found(tmp_path: Path, digest: str) -> None:
    assert make_images(tmp_path).find(digest) is None


@pytest.mark.parametrize("is_docker", [False, True])
async def test_an_image_for_many_machines_gives_the_one_for_this(
    registry: RegistryServer, tmp_path: Path, is_docker: bool
) -> None:
    made = [("arm64", "v8"), ("amd64", "")]
    digests = [
        registry.push("many", layer(Entry(name)), tag=name, architecture=name, is_docker=is_docker) for name, _ in made
    ]
    index = registry.push_index(
        "many", [(*machine, digest) for machine, digest in zip(made, digests, strict=True)], is_docker=is_docker
    )

    by_tag = await make_images(tmp_path).pull(registry.reference("many"), unheard)
    by_index = await make_images(tmp_path).pull(registry.reference("many", None, index), unheard)
    other = await make_images(tmp_path, architecture="amd64").pull(registry.reference("many"), unheard)

    assert [image.digest for image in (by_tag, by_index, other)] == [digests[0], digests[0], digests[1]]
    assert os.listdir(by_tag.root) == ["arm64"]
    assert os.listdir(other.root) == ["amd64"]


async def test_an_image_for_another_machine_is_refused(registry: RegistryServer, tmp_path: Path) -> None:
    registry.push("foreign", BASE, architecture="s390x")

    with pytest.raises(PullFailed) as failed:
        await make_images(tmp_path).pull(registry.reference("foreign"), unheard)

    assert str(failed.value) == (
        f"cannot pull 127.0.0.1:{registry.port}/foreign:latest: "
        "the image is for linux/s390x; this machine is linux/arm64"
    )
    assert is_clean(tmp_path)


async def test_a_tag_is_looked_up_each_time_and_its_layers_are_fetched_once(
    registry: RegistryServer, tmp_path: Path
) -> None:
    old = registry.push("moving", BASE)
    images = make_images(tmp_path)

    async with fronting(registry) as front:
        first = await images.pull(front.server.reference("moving"), unheard)
        blobs = len(front.asked("/blobs/"))
        again = await images.pull(front.server.reference("moving"), unheard)
        blobs_again = len(front.asked("/blobs/"))
        new = registry.push("moving", BASE, MORE)
        moved = await images.pull(front.server.reference("moving"), unheard)

    assert (first.digest, again.digest, moved.digest) == (old, old, new)
    assert blobs == blobs_again == 2


async def test_a_registry_that_is_away_fails_a_tag_and_not_a_digest(registry: RegistryServer, tmp_path: Path) -> None:
    digest = registry.push("away", BASE)
    images = make_images(tmp_path)
    async with fronting(registry) as front:
        here = await images.pull(front.server.reference("away"), unheard)

    with pytest.raises(PullFailed, match=r"cannot pull 127.*away:latest: cannot connect"):
        await images.pull(front.server.reference("away"), unheard)

    assert await images.pull(front.server.reference("away", None, digest), unheard) == here


async def test_two_pulls_of_one_image_share_it_and_both_hear_how_it_goes(
    registry: RegistryServer, tmp_path: Path
) -> None:
    registry.push("shared", BASE, MORE)
    images = make_images(tmp_path)
    said: list[list[str]] = [[], []]
    both_came = asyncio.Event()

    async def hold_blobs(request: web.Request) -> web.StreamResponse | None:
        if "/blobs/" in request.path:
            await both_came.wait()
        elif len(front.asked("/manifests/")) == 2:
            both_came.set()
        return None

    async with fronting(registry, hold_blobs) as front:
        reference = front.server.reference("shared")
        first, second = await asyncio.gather(*(images.pull(reference, heard.append) for heard in said))

    assert first == second
    assert len(front.asked("/blobs/")) == 3
    assert said[0][-1] == said[1][-1] == f"Pulled {reference}: {first.digest}"


async def test_who_leaves_a_shared_pull_does_not_end_it_for_the_others(
    registry: RegistryServer, tmp_path: Path
) -> None:
    registry.push("left", BASE)
    images = make_images(tmp_path)
    is_fetching, may_go = asyncio.Event(), asyncio.Event()
    heard: asyncio.Queue[str] = asyncio.Queue()

    async def hold_blobs(request: web.Request) -> web.StreamResponse | None:
        if "/blobs/" in request.path:
            is_fetching.set()
            await may_go.wait()
        return None

    async with fronting(registry, hold_blobs) as front:
        leaving = asyncio.create_task(images.pull(front.server.reference("left"), unheard))
        await is_fetching.wait()
        staying = asyncio.create_task(images.pull(front.server.reference("left"), heard.put_nowait))
        waits = await heard.get()
        leaving.cancel()
        await asyncio.wait([leaving])
        may_go.set()
        image = await staying

    assert "waiting" in waits
    assert leaving.cancelled()
    assert (image.root / "etc/name").read_text() == "base"
    assert len(front.asked("/blobs/")) == 2


async def test_a_pull_that_everybody_left_ends_and_leaves_nothing(registry: RegistryServer, tmp_path: Path) -> None:
    registry.push("alone", BASE)
    images = make_images(tmp_path)
    is_fetching = asyncio.Event()

    async def hold_blobs(request: web.Request) -> web.StreamResponse | None:
        if "/blobs/" in request.path and len(front.asked("/blobs/")) == 1:
            is_fetching.set()
            await asyncio.sleep(3600)
        return None

    async with fronting(registry, hold_blobs) as front:
        leaving = asyncio.create_task(images.pull(front.server.reference("alone"), unheard))
        await is_fetching.wait()
        leaving.cancel()
        await asyncio.wait([leaving])
        while not is_clean(tmp_path):
            await asyncio.sleep(0.01)
        image = await images.pull(front.server.reference("alone"), unheard)

    assert leaving.cancelled()
    assert (image.root / "etc/name").read_text() == "base"


@pytest.mark.parametrize(
    ("limits", "why"),
    [
        (replace(LIMITS, packed_bytes=100), r"the image has .* bytes of layers; 100 bytes are allowed"),
        (replace(LIMITS, unpacked_bytes=20_000), "the image unpacks to more than 20,000 bytes"),
        (replace(LIMITS, entries=2), "the image has more than 2 files"),
        (replace(LIMITS, reserve_bytes=2**62), "the platform's disk is almost full"),
        (replace(LIMITS, pull_s=0), "it took longer than 0 minutes"),
    ],
)
async def test_an_image_that_takes_too_much_is_refused(
    registry: RegistryServer, tmp_path: Path, limits: Limits, why: str
) -> None:
    reference = _pushed(registry, "large", layer(*(Entry(f"{number}", bytes(10_000)) for number in range(5))))

    with pytest.raises(PullFailed, match=why):
        await make_images(tmp_path, limits=limits).pull(reference, unheard)

    assert is_clean(tmp_path)


async def test_a_layer_that_was_changed_on_the_way_is_refused_and_nothing_stays(
    registry: RegistryServer, tmp_path: Path
) -> None:
    digest = registry.push("changed", BASE)
    evil = layer(Entry("etc/name", b"evil"))

    def change(request: web.Request, body: bytes) -> bytes:
        return evil.ljust(len(body), b"\0")[: len(body)] if len(body) == len(BASE) else body

    images = make_images(tmp_path)
    async with fronting(registry, change=change, drops=frozenset({"Range"})) as front:
        with pytest.raises(PullFailed, match="does not match its digest"):
            await images.pull(front.server.reference("changed"), unheard)

    assert images.find(digest) is None
    assert is_clean(tmp_path)


async def test_a_layer_that_leads_out_of_the_image_is_refused(registry: RegistryServer, tmp_path: Path) -> None:
    reference = _pushed(registry, "evil", layer(symlink("out", str(tmp_path)), Entry("out/file", b"stolen")))

    with pytest.raises(PullFailed, match="files below 'out'"):
        await make_images(tmp_path).pull(reference, unheard)

    assert not (tmp_path / "file").exists()
    assert is_clean(tmp_path)


async def test_an_unknown_tag_is_said_in_the_registrys_words(registry: RegistryServer, tmp_path: Path) -> None:
    registry.push("known", BASE)

    with pytest.raises(PullFailed) as failed:
        await make_images(tmp_path).pull(parse(f"127.0.0.1:{registry.port}/known:nope"), unheard)

    assert str(failed.value) == (
        f"cannot pull 127.0.0.1:{registry.port}/known:nope: the registry says: manifest unknown"
    )


async def test_a_registry_at_a_private_address_is_refused(registry: RegistryServer, tmp_path: Path) -> None:
    reference = _pushed(registry, "private", BASE)

    with pytest.raises(PullFailed, match="loopback addresses are not allowed"):
        await make_images(tmp_path, targets=TargetPolicy()).pull(reference, unheard)


async def test_images_that_nobody_needs_or_asked_for_in_a_day_are_removed(
    registry: RegistryServer, tmp_path: Path
) -> None:
    clock = ManualClock()
    images = make_images(tmp_path, clock)
    old, kept, asked = [await _pull(images, registry, f"c{number}") for number in range(3)]
    clock.advance(DAY_MS - 1)
    before = images.collect(set(), clock.now())
    await images.pull(registry.reference("c2"), unheard)
    clock.advance(1)

    removed = images.collect({kept.digest}, clock.now())

    assert (before, removed) == (0, 1)
    assert [images.find(image.digest) is not None for image in (old, kept, asked)] == [False, True, True]
    assert is_clean(tmp_path)


async def test_what_a_dead_process_left_is_removed_after_a_day(registry: RegistryServer, tmp_path: Path) -> None:
    clock = ManualClock()
    images = make_images(tmp_path, clock)
    await _pull(images, registry, "left-over")
    left = tmp_path / "images" / "incoming" / "pull-x"
    left.mkdir()
    os.utime(left, (clock.now() / 1000, clock.now() / 1000))
    images.collect(set(), clock.now())
    stays = left.exists()

    images.collect(set(), clock.now() + DAY_MS)

    assert stays
    assert is_clean(tmp_path)


def test_nothing_to_collect_is_no_error(tmp_path: Path) -> None:
    assert make_images(tmp_path).collect(set(), 0) == 0


async def test_a_note_says_where_the_image_came_from(registry: RegistryServer, tmp_path: Path) -> None:
    image = await _pull(make_images(tmp_path), registry, "noted")

    note = json.loads((image.root.parent / "image.json").read_text())
    assert (note["digest"], note["reference"]) == (image.digest, str(registry.reference("noted")))


def _pushed(registry: RegistryServer, name: str, *layers: bytes, **config: Any) -> Any:
    registry.push(name, *layers, **config)
    return registry.reference(name)


async def _pull(images: Images, registry: RegistryServer, name: str) -> Image:
    return await images.pull(_pushed(registry, name, layer(Entry(name, b"1"))), unheard)
