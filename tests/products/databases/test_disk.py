"""Disk limits: a full database is read-only until data was deleted."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import psycopg
import pymysql
import pytest
from tests.products.databases.metric_support import (
    SQLITE,
    TWIN_KINDS,
    Fleet,
    ask,
    clients,
    make_database,
    make_server,
    read_again,
    read_servers,
)

from moorage.core.db.store import Database as Store
from moorage.core.env import Env
from moorage.core.kit import folders
from moorage.core.telemetry import Telemetry
from moorage.products.databases import disk, service
from moorage.products.databases.disk import DiskWatch, is_full, reason_of
from moorage.products.databases.metrics import service as metrics
from moorage.products.databases.metrics.service import Measurement
from moorage.products.databases.tables import Database

pytestmark = pytest.mark.anyio

MB = 2**20
REFUSED = (psycopg.Error, pymysql.MySQLError)
MAKE = {"postgresql": "CREATE TABLE heap (filling text)", "mysql": "CREATE TABLE heap (filling mediumtext)"}
FILL = {
    # Random, because PostgreSQL compresses repeated values.
    "postgresql": "INSERT INTO heap SELECT string_agg(md5(random()::text), '') FROM generate_series(1, 300) inner_,"
    " generate_series(1, 1000) outer_ GROUP BY outer_",
    "mysql": "INSERT INTO heap SELECT repeat('x', 400000) FROM seq_1_to_25",
}
ADD = "INSERT INTO heap VALUES ('one more')"
# On PostgreSQL a delete in a read-only database needs a READ WRITE transaction.
DELETE = {"postgresql": "BEGIN READ WRITE; DELETE FROM heap; COMMIT", "mysql": "DELETE FROM heap"}


class DiskState:
    """A database and its disk watch, which measures on every call."""

    def __init__(self, fleet: Fleet, found: Database, monkeypatch: pytest.MonkeyPatch) -> None:
        self._fleet, self.found = fleet, found
        self.watch = DiskWatch(fleet.db, fleet.servers, Telemetry(quiet=True))
        monkeypatch.setattr(disk, "MEASURE_INTERVAL_S", 0.0)

    async def look(self) -> Database:
        """Measure, store the result, and return the row."""
        db = self._fleet.db
        found, [server] = await read_again(db, self.found), await read_servers(db, self.found)
        seen = await self.watch.measure(found, server)
        assert seen is not None
        await db.write(lambda tx: metrics.record(tx, [Measurement(found, disk=seen)]))
        return await read_again(db, self.found)

    async def run(self, statement: str) -> None:
        with clients(self.found) as [client]:
            await asyncio.to_thread(ask, client, statement)


@pytest.fixture
async def fleet(db: Store) -> AsyncIterator[Fleet]:
    made = Fleet.make(db)
    yield made
    await made.close()


async def set_column(db: Store, found: Database, name: str, value: Any) -> None:
    await db.write(lambda tx: service.set_column(tx, found.org_id, found, name, value))


def test_a_database_is_full_above_its_disk_and_has_room_again_below_95_percent() -> None:
    limit = 10 * disk.GB

    assert [is_full(used, 10, False) for used in (0, limit - 1, limit, limit + 1)] == [False, False, False, True]
    assert [is_full(used, 10, True) for used in (limit, limit * 95 // 100, limit * 95 // 100 - 1)] == [
        True,
        True,
        False,
    ]


def test_the_reason_says_how_much_there_is_and_what_can_be_done() -> None:
    assert reason_of(1_100_000_000, 1) == (
        "its disk is full (1.02 of 1 GB): no more data can be added; delete data or choose a larger tier"
    )


@TWIN_KINDS
@SQLITE
async def test_a_full_database_can_be_read_and_emptied_but_not_added_to_until_it_has_room_again(
    fleet: Fleet, db: Store, type_: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    its = DiskState(fleet, await fleet.start(type_, tier="free"), monkeypatch)
    await its.run(MAKE[type_])
    small = await its.look()
    monkeypatch.setattr(disk, "GB", small.disk_bytes + 4 * MB)

    await its.run(FILL[type_])
    full = await its.look()
    with pytest.raises(REFUSED):
        await its.run(ADD)
    await its.run("SELECT count(*) FROM heap")
    await its.run(DELETE[type_])
    await set_column(db, its.found, "instance_type", "micro")
    roomy = await its.look()
    await its.run(ADD)

    assert (small.is_full, small.status_reason) == (False, None)
    assert full.is_full
    assert full.disk_bytes > small.disk_bytes + 4 * MB
    assert (full.status_reason or "").startswith("its disk is full (")
    assert (roomy.is_full, roomy.status_reason) == (False, None)


@SQLITE
async def test_a_full_database_is_told_again_what_its_user_took_back_and_its_reason_comes_back(
    fleet: Fleet, db: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    its = DiskState(fleet, await fleet.start("postgresql"), monkeypatch)
    await its.run(MAKE["postgresql"])
    monkeypatch.setattr(disk, "GB", MB)
    await its.look()
    back = "ALTER ROLE ada IN DATABASE harbor RESET default_transaction_read_only"
    await its.run(f"BEGIN READ WRITE; {back}; COMMIT")
    await set_column(db, its.found, "status_reason", None)
    await its.run(ADD)

    full = await its.look()

    with pytest.raises(REFUSED):
        await its.run(ADD)
    assert full.is_full
    assert full.status_reason == reason_of(full.disk_bytes, 5)


@SQLITE
async def test_pieces_of_the_log_count_and_one_look_a_minute_is_enough(fleet: Fleet, db: Store) -> None:
    found = await fleet.start("postgresql", tier="free")
    [server] = await read_servers(db, found)
    watch = DiskWatch(db, fleet.servers, Telemetry(quiet=True))
    before = await watch.measure(found, server)
    place = fleet.servers.folder(found.id, server.folder)
    (place / "archive").mkdir(exist_ok=True)
    (place / "archive" / "000000010000000000000001").write_bytes(b"x" * 8 * MB)

    soon = await watch.measure(found, server)
    other_tier = await watch.measure(replace(found, instance_type="micro"), server)

    assert before is not None
    assert soon is None
    assert other_tier is not None
    assert other_tier.used >= before.used + 8 * MB
    assert other_tier.used <= folders.used_bytes(place) + MB


@SQLITE
async def test_a_server_that_cannot_be_told_is_tried_again(db: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    fleet = Fleet.make(db)
    found = await make_database(db)
    server = await make_server(db, found)
    place = fleet.servers.folder(found.id, server.folder)
    place.mkdir(parents=True)
    (place / "file").write_bytes(b"x" * 10_000)
    monkeypatch.setattr(disk, "GB", 1000)
    watch = DiskWatch(db, fleet.servers, Telemetry(quiet=True))

    looks = [await watch.measure(found, server) for _ in range(2)]
    await db.write(lambda tx: metrics.record(tx, [Measurement(found, disk=look) for look in looks]))

    assert looks == [None, None]
    assert not (await read_again(db, found)).is_full


@SQLITE
@pytest.mark.boundary("tenant-to-tenant", "Files that a database server has deleted and holds open count as its usage.")
async def test_the_files_of_a_sort_count_although_they_have_no_name(
    fleet: Fleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    its = DiskState(fleet, await fleet.start("mysql"), monkeypatch)
    small = await its.look()
    sort = "SELECT repeat(md5(seq), 30) AS filling FROM seq_1_to_100000 ORDER BY filling LIMIT 99999, 1"

    sorting = asyncio.create_task(its.run(sort))
    largest = 0
    while not sorting.done() and largest <= small.disk_bytes + 15 * MB:
        largest = max(largest, (await its.look()).disk_bytes)
    await sorting

    assert largest > small.disk_bytes + 15 * MB


@SQLITE
@pytest.mark.boundary("tenant-to-tenant", "A database that grows takes no more data while the reserve is used up.")
async def test_a_database_that_grows_on_a_machine_without_room_takes_no_more_data_until_there_is_some(
    fleet: Fleet, db: Store, env: Env, monkeypatch: pytest.MonkeyPatch
) -> None:
    its = DiskState(fleet, await fleet.start("postgresql"), monkeypatch)
    monkeypatch.setattr(disk, "GROWTH", 4 * MB)
    await its.run(MAKE["postgresql"])
    narrow = env.settings.model_copy(update={"disk_reserve_mb": 2**40})
    monkeypatch.setattr(its.watch, "_settings", narrow)
    quiet = await its.look()

    await its.run(FILL["postgresql"])
    stopped = await its.look()
    with pytest.raises(REFUSED):
        await its.run(ADD)
    monkeypatch.setattr(its.watch, "_settings", env.settings)
    roomy = await its.look()
    await its.run(ADD)

    assert (quiet.is_full, quiet.status_reason) == (False, None)
    assert (stopped.is_full, stopped.status_reason) == (True, disk.NO_ROOM)
    assert (roomy.is_full, roomy.status_reason) == (False, None)


@SQLITE
async def test_a_machine_with_less_room_than_its_reserve_is_noticed(db: Store, env: Env) -> None:
    env.settings.data.mkdir()
    roomy = DiskWatch(db, Fleet.make(db).servers, Telemetry(quiet=True)).check_machine()
    db.env = replace(env, settings=env.settings.model_copy(update={"disk_reserve_mb": 2**40}))

    narrow = DiskWatch(db, Fleet.make(db).servers, Telemetry(quiet=True)).check_machine()

    assert (roomy, narrow) == (True, False)
