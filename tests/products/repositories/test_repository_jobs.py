"""Cleanup of repositories of deleted organizations, and of unfinished ones."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from tests.builders import make_org, make_user

from moorage.accounts.identity.organizations import service as orgs
from moorage.accounts.identity.organizations.service import Organization
from moorage.accounts.webhooks.service import GithubEvents
from moorage.core.audit.service import Actor
from moorage.core.db.store import Database
from moorage.core.jobs.timetable import Tick
from moorage.core.kit.clock import DAY_MS, HOUR_MS, ManualClock
from moorage.core.telemetry import Telemetry
from moorage.core.worker.pool import Worker
from moorage.core.worker.run import Handlers
from moorage.products.repositories import jobs, service
from moorage.products.repositories.names import Name
from moorage.products.repositories.storage import Storage
from moorage.settings import Settings

pytestmark = pytest.mark.anyio
ACTOR = Actor(None, "Ada")


async def make_repository(db: Database, org: Organization, name: str, *, is_used: bool = True) -> Path:
    made = await db.write(lambda tx: service.begin_push(tx, org.id, Name("quay", name), ACTOR))
    folder = await Storage(db.env.settings).ensure(made.id)
    if is_used:
        (folder / "refs" / "heads" / "main").write_text("1" * 40 + "\n")
    return folder


async def work(db: Database) -> None:
    handlers = Handlers()
    jobs.register(handlers, GithubEvents())
    await Worker(db, handlers, Telemetry(quiet=True)).run_due(turns=4)


async def sweep(db: Database) -> None:
    handlers = Handlers()
    jobs.register(handlers, GithubEvents())
    await handlers.ensure_maintenance(db, 0)
    await db.write(lambda tx: handlers.ticks[jobs.KIND](tx, Tick(jobs.KIND, 0, "", 0)))
    await work(db)


def age(clock: ManualClock, *paths: Path) -> None:
    then = clock.now() / 1000 - 2 * 3600
    for path in paths:
        os.utime(path, (then, then), follow_symlinks=False)


async def test_the_repositories_of_a_deleted_organization_go_with_it(db: Database, clock: ManualClock) -> None:
    owner = await make_user(db)
    quay, reef = await make_org(db, owner, name="Quay"), await make_org(db, owner, name="Reef")
    folder = await make_repository(db, quay, "site")
    await db.write(lambda tx: orgs.delete(tx, quay.id, ACTOR))

    await work(db)

    assert not folder.exists()
    assert [path.name for path in folder.parent.iterdir() if path.name.startswith("gone")] == []
    clock.advance(30 * DAY_MS)
    again = await db.write(lambda tx: service.begin_push(tx, reef.id, Name("quay", "site"), ACTOR))
    assert again.org_id == reef.id


async def test_the_sweep_forgets_what_nothing_was_ever_pushed_to(db: Database, clock: ManualClock) -> None:
    org = await make_org(db, await make_user(db), name="Quay")
    unused = await make_repository(db, org, "unused", is_used=False)
    used = await make_repository(db, org, "used")
    clock.advance(2 * HOUR_MS)
    fresh = await make_repository(db, org, "fresh", is_used=False)
    await make_repository(db, org, "touched", is_used=False)
    age(clock, unused, used, fresh)

    await sweep(db)

    assert [path.exists() for path in (unused, used, fresh)] == [False, True, True]
    assert await db.read(lambda tx: service.find(tx, org.id, Name("quay", "unused"))) is None
    assert await db.read(lambda tx: service.find(tx, org.id, Name("quay", "fresh"))) is not None


@pytest.mark.parametrize("db", ["sqlite"], indirect=True)
async def test_the_sweep_never_deletes_what_holds_something(
    db: Database, settings: Settings, clock: ManualClock
) -> None:
    storage = Storage(settings)
    stray = await storage.ensure(12345)
    (stray / "packed-refs").write_text("# pack-refs\n")
    age(clock, stray)

    await sweep(db)

    assert stray.exists()


@pytest.mark.parametrize("db", ["sqlite"], indirect=True)
async def test_the_sweep_clears_what_killed_pushes_left_in_a_repository(db: Database, clock: ManualClock) -> None:
    org = await make_org(db, await make_user(db), name="Quay")
    objects = await make_repository(db, org, "site") / "objects"
    (objects / "pack").mkdir(exist_ok=True)
    old = [objects / "tmp_objdir-incoming-x", objects / "incoming-x", objects / "pack" / "tmp_pack_x"]
    young = objects / "tmp_objdir-incoming-y"
    kept = objects / "pack" / "pack-1.pack"
    for path in (*old[:2], young):
        (path / "pack").mkdir(parents=True)
    for path in (old[2], kept):
        path.write_text("objects")
    age(clock, *old, kept)

    await sweep(db)

    assert [path.exists() for path in old] == [False, False, False]
    assert young.exists()
    assert kept.exists()


@pytest.mark.parametrize("db", ["sqlite"], indirect=True)
async def test_the_sweep_clears_what_dead_processes_left(db: Database, settings: Settings, clock: ManualClock) -> None:
    storage = Storage(settings)
    org = await make_org(db, await make_user(db), name="Quay")
    folder = await make_repository(db, org, "site")
    old, new = (
        [storage.folder / "new-1", storage.incoming / "fetch-1", storage.folder / "gone-1"],
        storage.folder / "new-2",
    )
    for path in (*old, new):
        path.mkdir()
    lock, fresh = folder / "refs" / "heads" / "main.lock", folder / "packed-refs.lock"
    lock.touch()
    fresh.touch()
    age(clock, *old, lock)

    await sweep(db)

    assert [path.exists() for path in (*old, lock)] == [False] * 4
    assert [path.exists() for path in (new, fresh)] == [True, True]
