"""Artifacts: put, share, fetch, refer, detect damage and replace the damaged copy."""

from __future__ import annotations

import asyncio
import hashlib
import os
from functools import partial
from pathlib import Path

import pytest
from tests.core.artifacts.looking import fetched, replace_object, stored_keys

from moorage.core.artifacts import service
from moorage.core.artifacts.objects import CHUNK, ArtifactDamaged, ArtifactsUnavailable, Objects
from moorage.core.artifacts.store import ArtifactStore
from moorage.core.db.store import Database
from moorage.core.kit.clock import DAY_MS, ManualClock
from moorage.errors import NotFound, QuotaExceeded

pytestmark = pytest.mark.anyio

HARBOR, PIER = 1, 2


@pytest.mark.parametrize("size", [0, 1, 2 * CHUNK + 1])
async def test_a_file_comes_back_byte_for_byte(artifacts: ArtifactStore, tmp_path: Path, size: int) -> None:
    content = os.urandom(size)
    (tmp_path / "site.zip").write_bytes(content)

    added = await artifacts.put_file(HARBOR, tmp_path / "site.zip", owner="site:1")

    assert added.digest == hashlib.sha256(content).hexdigest()
    assert added.size == size
    assert await fetched(artifacts, HARBOR, added.digest, tmp_path) == content


async def test_content_that_two_organizations_store_is_kept_once(
    artifacts: ArtifactStore, objects: Objects, tmp_path: Path
) -> None:
    (tmp_path / "bundle").write_bytes(b"the same")

    first = await artifacts.put_bytes(HARBOR, b"the same", owner="function:1")
    second = await artifacts.put_file(PIER, tmp_path / "bundle", owner="function:2")

    assert second.digest == first.digest
    assert stored_keys(objects) == [first.key]
    assert await fetched(artifacts, HARBOR, first.digest, tmp_path) == b"the same"
    assert await fetched(artifacts, PIER, first.digest, tmp_path) == b"the same"


async def test_puts_of_the_same_content_at_once_leave_one_object(
    artifacts: ArtifactStore, objects: Objects, tmp_path: Path
) -> None:
    puts = [artifacts.put_bytes(org_id, b"crowd", owner="function:1") for org_id in range(1, 9)]

    added = await asyncio.gather(*puts)

    assert stored_keys(objects) == [added[0].key]
    assert {each.copy for each in added} == {added[0].copy}
    assert await fetched(artifacts, 8, added[0].digest, tmp_path) == b"crowd"


async def test_an_organization_cannot_fetch_what_only_another_one_stored(
    artifacts: ArtifactStore, tmp_path: Path
) -> None:
    added = await artifacts.put_bytes(HARBOR, b"secret plans", owner="site:1")

    with pytest.raises(NotFound):
        await artifacts.fetch(PIER, added.digest, tmp_path / "stolen")

    assert not (tmp_path / "stolen").exists()


async def test_knowing_a_digest_does_not_get_an_organization_a_reference(
    artifacts: ArtifactStore, db: Database
) -> None:
    added = await artifacts.put_bytes(HARBOR, b"secret plans", owner="site:1")

    with pytest.raises(NotFound):
        await db.write(partial(service.refer, org_id=PIER, digest=added.digest, owner="site:2"))


async def test_an_artifact_can_be_fetched_until_its_last_owner_lets_go(
    artifacts: ArtifactStore, db: Database, tmp_path: Path
) -> None:
    added = await artifacts.put_bytes(HARBOR, b"release", owner="deployment:1")
    await db.write(partial(service.refer, org_id=HARBOR, digest=added.digest, owner="deployment:2"))

    await db.write(partial(service.unrefer, org_id=HARBOR, owner="deployment:1"))
    content = await fetched(artifacts, HARBOR, added.digest, tmp_path)
    await db.write(partial(service.unrefer, org_id=HARBOR, owner="deployment:2"))

    assert content == b"release"
    with pytest.raises(NotFound):
        await artifacts.fetch(HARBOR, added.digest, tmp_path / "again")


async def test_letting_go_touches_only_the_named_owner_of_the_named_organization(
    artifacts: ArtifactStore, db: Database, tmp_path: Path
) -> None:
    added = await artifacts.put_bytes(HARBOR, b"shared", owner="site:1")
    await artifacts.put_bytes(PIER, b"shared", owner="site:1")

    await db.write(partial(service.unrefer, org_id=HARBOR, owner="site:1"))

    assert await fetched(artifacts, PIER, added.digest, tmp_path) == b"shared"


@pytest.mark.parametrize("damage", [b"other bytes", b"short", b"much longer than it was", None])
async def test_a_damaged_object_is_found_and_the_target_stays_as_it_was(
    artifacts: ArtifactStore, objects: Objects, tmp_path: Path, damage: bytes | None
) -> None:
    added = await artifacts.put_bytes(HARBOR, b"right bytes", owner="site:1")
    target = tmp_path / "target" / "site"
    target.parent.mkdir()
    target.write_bytes(b"before")
    replace_object(objects, added.key, damage)

    with pytest.raises(ArtifactDamaged):
        await artifacts.fetch(HARBOR, added.digest, target)

    assert target.read_bytes() == b"before"
    assert list(target.parent.iterdir()) == [target]


@pytest.mark.parametrize("damage", [b"short", None])
async def test_storing_the_content_again_replaces_an_object_that_is_gone_or_cut_off(
    artifacts: ArtifactStore, objects: Objects, tmp_path: Path, damage: bytes | None
) -> None:
    added = await artifacts.put_bytes(HARBOR, b"right bytes", owner="site:1")
    replace_object(objects, added.key, damage)

    healed = await artifacts.put_bytes(PIER, b"right bytes", owner="site:2")

    assert await fetched(artifacts, HARBOR, added.digest, tmp_path) == b"right bytes"
    assert stored_keys(objects) == [healed.key]


async def test_storing_the_content_again_replaces_an_object_that_a_fetch_found_rotten(
    artifacts: ArtifactStore, objects: Objects, tmp_path: Path
) -> None:
    added = await artifacts.put_bytes(HARBOR, b"right bytes", owner="site:1")
    replace_object(objects, added.key, b"wrong bytes")
    with pytest.raises(ArtifactDamaged):
        await artifacts.fetch(HARBOR, added.digest, tmp_path / "fetched")

    await artifacts.put_bytes(HARBOR, b"right bytes", owner="site:2")

    assert await fetched(artifacts, HARBOR, added.digest, tmp_path) == b"right bytes"


async def test_a_fetch_that_is_given_up_leaves_no_part_of_a_file(artifacts: ArtifactStore, tmp_path: Path) -> None:
    content = os.urandom(2 * CHUNK)
    added = await artifacts.put_bytes(HARBOR, content, owner="site:1")
    folder = tmp_path / "target"
    folder.mkdir()
    fetch = asyncio.create_task(artifacts.fetch(HARBOR, added.digest, folder / "site"))
    await asyncio.sleep(0.001)

    fetch.cancel()
    await asyncio.gather(fetch, return_exceptions=True)
    artifacts._threads.shutdown(wait=True)

    assert [path.read_bytes() == content for path in folder.iterdir()] in ([], [True])


async def test_what_took_half_the_grace_period_to_upload_is_not_recorded(db: Database, clock: ManualClock) -> None:
    late = service.Upload("ab" * 32, 5, "0" * 16, clock.now())
    clock.advance(DAY_MS // 2 + 1)

    with pytest.raises(ArtifactsUnavailable):
        await db.write(partial(service.record, org_id=HARBOR, upload=late, owner="site:1"))

    assert await db.read(partial(service.find_intact, digest=late.digest)) is None


@pytest.mark.settings(disk_reserve_mb=10**9)
@pytest.mark.parametrize("settings", ["folder"], indirect=True)
async def test_a_disk_that_is_almost_full_refuses_before_anything_is_written(
    artifacts: ArtifactStore, objects: Objects
) -> None:
    with pytest.raises(QuotaExceeded):
        await artifacts.put_bytes(HARBOR, b"no room", owner="site:1")

    assert stored_keys(objects) == []


@pytest.mark.settings(disk_reserve_mb=10**9)
@pytest.mark.group("s3")
@pytest.mark.parametrize("settings", ["s3"], indirect=True)
async def test_the_reserve_of_the_disk_does_not_limit_a_bucket(artifacts: ArtifactStore, objects: Objects) -> None:
    added = await artifacts.put_bytes(HARBOR, b"room enough", owner="site:1")

    assert stored_keys(objects) == [added.key]


@pytest.mark.parametrize("settings", ["folder"], indirect=True)
async def test_room_is_counted_with_what_is_about_to_come(artifacts: ArtifactStore) -> None:
    await artifacts.check_room(1)

    with pytest.raises(QuotaExceeded):
        await artifacts.check_room(2**62)
