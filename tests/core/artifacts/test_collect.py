"""Garbage collection: deletes unreferenced artifacts after the grace period, also with crashes and races."""

from __future__ import annotations

import asyncio
import shutil
import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest
from sqlalchemy import select
from tests.core.artifacts.looking import fetched, real_now_ms, replace_object, stored_keys

from moorage.core.artifacts import service, tables
from moorage.core.artifacts.objects import Objects, key_of
from moorage.core.artifacts.service import GRACE_MS
from moorage.core.artifacts.states import ArtifactStatus
from moorage.core.artifacts.store import ArtifactStore
from moorage.core.artifacts.tables import Artifact
from moorage.core.db.query import Query, columns
from moorage.core.db.sqlite import SqliteDatabase
from moorage.core.db.store import Database
from moorage.core.env import Env
from moorage.core.kit.clock import DAY_MS, ManualClock
from moorage.settings import Settings, as_environment

pytestmark = pytest.mark.anyio
S3_IS_TWIN = pytest.mark.parametrize(
    "settings",
    ["folder", pytest.param("s3", marks=[pytest.mark.group("s3"), pytest.mark.twin])],
    indirect=True,
)

HARBOR, PIER = 1, 2
# Objects have real modification times. By a clock this far behind, none of them is an old leftover.
LONG_AGO_MS = 1_577_836_800_000
ALL_ROWS = Query(select(*columns(tables.artifact, *Artifact.__dataclass_fields__)), Artifact)


async def put_and_let_go(artifacts: ArtifactStore, db: Database, content: bytes = b"old release") -> Artifact:
    added = await artifacts.put_bytes(HARBOR, content, owner="deployment:1")
    await db.write(partial(service.unrefer, org_id=HARBOR, owner="deployment:1"))
    return added


async def rows(db: Database) -> list[Artifact]:
    return await db.read(lambda tx: tx.all(ALL_ROWS))


async def condemned(db: Database, candidate: Artifact) -> Artifact:
    """Do the first step of a collection that is killed or stalls right after it."""
    condemned = await db.write(partial(service.condemn, candidate=candidate))
    assert condemned is not None
    return condemned


async def test_what_lost_its_last_reference_is_kept_for_the_grace_period_and_then_deleted(
    artifacts: ArtifactStore, db: Database, objects: Objects, clock: ManualClock
) -> None:
    added = await put_and_let_go(artifacts, db)

    clock.advance(GRACE_MS - 1)
    early, kept = await artifacts.collect(), stored_keys(objects)
    clock.advance(1)
    late = await artifacts.collect()

    assert (early, kept) == (0, [added.key])
    assert late == 1
    assert stored_keys(objects) == []
    assert await rows(db) == []


async def test_what_one_organization_still_needs_is_never_collected(
    artifacts: ArtifactStore, db: Database, clock: ManualClock, tmp_path: Path
) -> None:
    added = await put_and_let_go(artifacts, db, b"shared")
    await artifacts.put_bytes(PIER, b"shared", owner="site:7")

    clock.advance(10 * DAY_MS)
    collected = await artifacts.collect()

    assert collected == 0
    assert await fetched(artifacts, PIER, added.digest, tmp_path) == b"shared"


async def test_a_new_reference_starts_the_grace_period_anew(
    artifacts: ArtifactStore, db: Database, objects: Objects, clock: ManualClock
) -> None:
    added = await put_and_let_go(artifacts, db)
    clock.advance(GRACE_MS - 1)
    await put_and_let_go(artifacts, db)

    clock.advance(GRACE_MS - 1)
    collected = await artifacts.collect()

    assert collected == 0
    assert stored_keys(objects) == [added.key]


async def test_more_than_one_batch_is_collected(
    artifacts: ArtifactStore, db: Database, objects: Objects, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(service, "BATCH", 2)
    for number in range(5):
        await put_and_let_go(artifacts, db, b"release %d" % number)

    clock.advance(GRACE_MS)
    collected = await artifacts.collect()

    assert collected == 5
    assert stored_keys(objects) == []


async def test_a_damaged_artifact_that_nobody_needs_is_collected_too(
    artifacts: ArtifactStore, db: Database, objects: Objects, clock: ManualClock
) -> None:
    added = await artifacts.put_bytes(HARBOR, b"rotten", owner="deployment:1")
    await db.write(partial(service.report_damage, artifact=added))
    await db.write(partial(service.unrefer, org_id=HARBOR, owner="deployment:1"))

    clock.advance(GRACE_MS)
    await artifacts.collect()

    assert stored_keys(objects) == []
    assert await rows(db) == []


@pytest.mark.parametrize("object_is_deleted", [False, True])
async def test_a_collection_that_was_killed_between_its_steps_is_finished_by_the_next(
    artifacts: ArtifactStore, db: Database, objects: Objects, clock: ManualClock, object_is_deleted: bool
) -> None:
    added = await put_and_let_go(artifacts, db)
    clock.advance(GRACE_MS)
    await condemned(db, added)
    if object_is_deleted:
        replace_object(objects, added.key, None)

    collected = await artifacts.collect()

    assert collected == 1
    assert stored_keys(objects) == []
    assert await rows(db) == []


async def test_a_put_of_what_is_being_deleted_ends_with_the_object_present(
    artifacts: ArtifactStore, db: Database, objects: Objects, clock: ManualClock, tmp_path: Path
) -> None:
    added = await put_and_let_go(artifacts, db)
    clock.advance(GRACE_MS)
    stalled = await condemned(db, added)

    again = await artifacts.put_bytes(PIER, b"old release", owner="site:1")
    objects.delete(stalled.key)
    forgotten = await db.write(partial(service.forget, condemned=stalled))

    assert not forgotten
    assert await fetched(artifacts, PIER, again.digest, tmp_path) == b"old release"
    assert stored_keys(objects) == [again.key]


async def test_a_collector_that_wakes_up_after_another_did_its_work_deletes_nothing_new(
    artifacts: ArtifactStore, db: Database, objects: Objects, clock: ManualClock, tmp_path: Path
) -> None:
    added = await put_and_let_go(artifacts, db)
    clock.advance(GRACE_MS)
    stalled = await condemned(db, added)
    await artifacts.collect()
    again = await artifacts.put_bytes(HARBOR, b"old release", owner="deployment:2")

    objects.delete(stalled.key)
    await db.write(partial(service.forget, condemned=stalled))

    assert await fetched(artifacts, HARBOR, again.digest, tmp_path) == b"old release"


async def test_the_copy_that_a_killed_collector_left_after_a_put_took_over_is_collected_in_the_end(
    artifacts: ArtifactStore, db: Database, objects: Objects, clock: ManualClock
) -> None:
    added = await put_and_let_go(artifacts, db)
    clock.advance(GRACE_MS)
    await condemned(db, added)
    again = await artifacts.put_bytes(PIER, b"old release", owner="site:1")
    left = sorted(stored_keys(objects))

    clock.now_ms = real_now_ms() + GRACE_MS + DAY_MS
    collected = await artifacts.collect()

    assert left == sorted([added.key, again.key])
    assert collected == 1
    assert stored_keys(objects) == [again.key]


async def test_an_object_whose_put_died_before_it_was_recorded_is_collected_once_it_is_old(
    artifacts: ArtifactStore, objects: Objects, clock: ManualClock, tmp_path: Path
) -> None:
    recorded = await artifacts.put_bytes(HARBOR, b"recorded", owner="site:1")
    stray = key_of("ab" * 32, "0" * 16)
    objects.put(stray, b"stray", 5)

    clock.now_ms = real_now_ms()
    early, kept = await artifacts.collect(), stored_keys(objects)
    clock.now_ms = real_now_ms() + GRACE_MS + DAY_MS
    late = await artifacts.collect()

    assert (early, sorted(kept)) == (0, sorted([recorded.key, stray]))
    assert late == 1
    assert stored_keys(objects) == [recorded.key]
    assert await fetched(artifacts, HARBOR, recorded.digest, tmp_path) == b"recorded"


@S3_IS_TWIN
async def test_puts_that_race_with_collections_always_find_their_content(
    artifacts: ArtifactStore, db: Database, objects: Objects, clock: ManualClock, tmp_path: Path
) -> None:
    clock.now_ms = LONG_AGO_MS
    for number in range(15):
        added, *_ = await asyncio.gather(
            artifacts.put_bytes(HARBOR, b"contested", owner=f"deployment:{number}"),
            artifacts.collect(),
            ArtifactStore(db).collect(),
            ArtifactStore(db).put_bytes(PIER, b"contested", owner=f"site:{number}"),
        )
        assert await fetched(artifacts, HARBOR, added.digest, tmp_path) == b"contested"
        assert await fetched(artifacts, PIER, added.digest, tmp_path) == b"contested"
        await db.write(partial(service.unrefer, org_id=HARBOR, owner=f"deployment:{number}"))
        await db.write(partial(service.unrefer, org_id=PIER, owner=f"site:{number}"))
        clock.advance(GRACE_MS)

    await artifacts.collect()

    assert stored_keys(objects) == []
    assert await rows(db) == []


async def test_owners_that_let_go_at_the_same_time_leave_nothing_behind(
    artifacts: ArtifactStore, db: Database, objects: Objects, clock: ManualClock
) -> None:
    owners = [f"deployment:{number}" for number in range(16)]
    for owner in owners:
        await artifacts.put_bytes(HARBOR, b"popular", owner=owner)

    await asyncio.gather(*(db.write(partial(service.unrefer, org_id=HARBOR, owner=owner)) for owner in owners))
    clock.advance(GRACE_MS)
    await artifacts.collect()

    assert stored_keys(objects) == []


@pytest.mark.deep
@S3_IS_TWIN
async def test_a_store_that_is_killed_again_and_again_keeps_what_is_referred_to_and_nothing_else(
    settings: Settings, env: Env, clock: ManualClock, sqlite_template: Path, tmp_path: Path
) -> None:
    store = tmp_path / "crashing.db"
    shutil.copyfile(sqlite_template, store)
    clock.now_ms = LONG_AGO_MS
    rounds = 0
    for lines in (1, 2, 4, 7):
        rounds = live_and_die(settings, store, rounds + 1, clock.now_ms + rounds * 2 * DAY_MS, lines)
    clock.now_ms = real_now_ms() + GRACE_MS + DAY_MS
    db = SqliteDatabase(store, env)
    artifacts = ArtifactStore(db)

    await artifacts.collect()

    left = await rows(db)
    assert sorted(stored_keys(Objects(settings))) == sorted(row.key for row in left)
    assert {row.status for row in left} == {ArtifactStatus.PRESENT}
    for row in left:
        await artifacts.fetch(1, row.digest, tmp_path / "fetched")
    db.close()


def live_and_die(settings: Settings, store: Path, first: int, now_ms: int, lines: int) -> int:
    """Run a process that stores and collects, kill it within a round, and return the last completed round."""
    command = [sys.executable, "-m", "tests.core.artifacts.crash_child", str(store), str(first), str(now_ms)]
    with subprocess.Popen(command, env=as_environment(settings), stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        ended = [int(child.stdout.readline()) for _ in range(lines)]
        child.kill()
    return ended[-1]
