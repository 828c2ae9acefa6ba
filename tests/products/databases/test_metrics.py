"""Metrics of databases: aggregated when stored, and deleted after their retention."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import pytest
from tests.products.databases.metric_support import make_database, make_server, read_again, read_servers

from moorage.core.db.store import Database as Store
from moorage.core.kit.clock import DAY_MS, HOUR_MS, MINUTE_MS, SECOND_MS, ManualClock
from moorage.core.telemetry import Telemetry
from moorage.core.worker.pool import Worker
from moorage.core.worker.run import Handlers
from moorage.core.worker.scheduler import Scheduler
from moorage.products.databases.metrics import retention
from moorage.products.databases.metrics import service as metrics
from moorage.products.databases.metrics.service import (
    DiskUsage,
    Figures,
    Measurement,
    RangeName,
    Sample,
    ServerUsage,
    Snapshot,
    Summary,
)
from moorage.products.databases.states import DatabaseStatus
from moorage.products.databases.tables import Database, Server
from moorage.runtime.logs.local import LocalLogs

pytestmark = pytest.mark.anyio

NOON = 1_767_225_600_000 + 12 * HOUR_MS


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(NOON + 20 * SECOND_MS)


def answer(at: int, **changed: Any) -> Sample:
    usual = Sample(at, True, connections=3, max_connections=50, queries=150, queries_ms=15_000)
    return replace(usual, **changed)


async def add(db: Store, found: Database, *samples: Sample) -> None:
    for each in samples:
        await db.write(lambda tx, each=each: metrics.add(tx, found.org_id, found.id, each))  # type: ignore[misc]


async def summary(db: Store, found: Database, name: RangeName = "1h") -> Summary:
    return await db.read(lambda tx: metrics.summary(tx, found.org_id, found.id, name))


async def series(db: Store, found: Database, name: RangeName = "1h") -> list[Figures]:
    return await db.read(lambda tx: metrics.series(tx, found.org_id, found.id, name))


async def snapshot(db: Store, found: Database) -> Snapshot:
    return await db.read(lambda tx: metrics.snapshot(tx, found.org_id, found.name))


def seen(server: Server, at: int, **changed: Any) -> ServerUsage:
    usual = ServerUsage(server, at, 0, at - HOUR_MS, cpu_milli=40, memory_bytes=30 * 2**20)
    return replace(usual, **changed)


async def record(db: Store, *visits: Measurement) -> None:
    await db.write(lambda tx: metrics.record(tx, visits))


async def test_one_look_is_in_every_range(db: Store) -> None:
    found = await make_database(db)

    await add(db, found, answer(NOON, cache_hits=99, cache_reads=1))

    for name in ("1h", "24h", "7d", "30d"):
        points = await series(db, found, name)
        assert points[-1] == Figures(points[-1].start, 3.0, 10.0, 99.0)
        assert {point.qps for point in points[:-1]} == {None}


@pytest.mark.parametrize(
    ("name", "width", "count"),
    [("1h", MINUTE_MS, 60), ("24h", 5 * MINUTE_MS, 288), ("7d", HOUR_MS, 168), ("30d", 4 * HOUR_MS, 180)],
)
async def test_a_range_has_every_bucket_and_the_present_one_is_the_last(
    db: Store, name: RangeName, width: int, count: int
) -> None:
    found = await make_database(db)
    last = NOON // width * width
    first = last - (count - 1) * width
    await add(db, found, answer(first), answer(first - 1), answer(last))

    points = await series(db, found, name)

    assert [point.start for point in points] == list(range(first, last + width, width))
    assert [point.qps for point in points] == [10.0, *[None] * (count - 2), 10.0]


async def test_rates_are_sums_over_the_time_that_could_be_told_and_never_averages_of_rates(db: Store) -> None:
    found = await make_database(db)
    await add(
        db,
        found,
        answer(NOON - 45_000, queries=None, queries_ms=0),  # the first after a start
        answer(NOON - 30_000, queries=100, queries_ms=1_000, cache_hits=0, cache_reads=10),
        answer(NOON - 15_000, queries=200, queries_ms=29_000, cache_hits=970, cache_reads=20),
        Sample(NOON),
    )

    whole = (await summary(db, found)).figures

    assert whole.qps == pytest.approx(10.0)
    assert whole.cache_hit_pct == pytest.approx(97.0)


async def test_two_looks_within_the_time_of_one_row_are_added_up(db: Store) -> None:
    found = await make_database(db)

    await add(db, found, answer(NOON, connections=2, queries=None), answer(NOON + 14_999, connections=5, queries=7))
    [*_, last] = await series(db, found)

    assert last.connections == 3.5
    assert last.qps == pytest.approx(7 / 30)


async def test_no_traffic_is_no_hit_rate_but_a_rate_of_zero(db: Store) -> None:
    found = await make_database(db)
    await add(db, found, answer(NOON, queries=0, cache_hits=0, cache_reads=0))

    whole = (await summary(db, found)).figures

    assert (whole.qps, whole.cache_hit_pct) == (0.0, None)


async def test_without_any_look_nothing_is_known(db: Store) -> None:
    found = await make_database(db)

    whole = await summary(db, found, "30d")

    assert (whole.up, whole.connections, whole.max_connections, whole.connections_pct) == (None, None, None, None)
    assert (whole.figures.qps, whole.figures.cache_hit_pct) == (None, None)


async def test_the_connections_of_a_summary_are_those_of_the_newest_look(db: Store) -> None:
    found = await make_database(db)
    await add(db, found, answer(NOON - MINUTE_MS, connections=40), answer(NOON, connections=10))

    whole = await summary(db, found)

    assert (whole.up, whole.connections, whole.max_connections, whole.connections_pct) == (True, 10, 50, 20.0)


async def test_a_server_that_did_not_answer_last_is_down(db: Store) -> None:
    found = await make_database(db)
    await add(db, found, answer(NOON - MINUTE_MS), Sample(NOON))

    whole = await summary(db, found)

    assert (whole.up, whole.connections, whole.connections_pct) == (False, None, None)
    assert whole.figures.qps == 10.0


async def test_after_a_minute_nobody_can_say_how_a_database_is_now(db: Store, clock: ManualClock) -> None:
    found = await make_database(db)
    await add(db, found, answer(NOON))
    clock.now_ms = NOON + 15_000 + MINUTE_MS
    fresh = await summary(db, found)

    clock.advance(1)
    stale = await summary(db, found)

    assert (fresh.up, fresh.connections) == (True, 3)
    assert (stale.up, stale.connections, stale.max_connections) == (None, None, None)
    assert stale.figures.qps == 10.0


async def test_databases_are_kept_apart(db: Store) -> None:
    found, other = await make_database(db), await make_database(db, name="other")
    await add(db, other, answer(NOON))

    assert (await summary(db, found)).up is None
    assert await db.read(lambda tx: metrics.series(tx, 2, other.id, "1h")) == await series(db, found)


async def test_a_round_is_written_whole(db: Store) -> None:
    found, other = await make_database(db), await make_database(db, name="other", tier="free")
    mine, theirs = await make_server(db, found), await make_server(db, other)
    first = Measurement(found, [seen(mine, NOON, restarts=2)], answer(NOON), DiskUsage(77, False))
    second = Measurement(other, [seen(theirs, NOON, cpu_milli=None)])

    await record(db, first, second)

    [stored] = await read_servers(db, found)
    assert (stored.cpu_milli, stored.memory_bytes, stored.seen_restarts) == (40, 30 * 2**20, 2)
    assert (stored.seen_at, stored.started_at) == (NOON, NOON - HOUR_MS)
    assert (await read_again(db, found)).disk_bytes == 77
    assert (await summary(db, found)).connections == 3
    assert [(each.cpu_milli, each.seen_at) for each in await read_servers(db, other)] == [(None, NOON)]


async def test_what_is_gone_by_the_time_a_round_is_written_stays_gone(db: Store) -> None:
    from moorage.products.databases import tables

    found, other = await make_database(db), await make_database(db, name="other")
    await db.write(lambda tx: tx.run(tables.DELETE, org_id=found.org_id, id=found.id))

    await record(db, Measurement(found, [], answer(NOON)), Measurement(other, [], answer(NOON)))

    assert (await summary(db, found)).up is None
    assert (await summary(db, other)).up is True


async def test_what_was_seen_of_a_server_that_has_been_replaced_is_not_taken_for_the_new_one(db: Store) -> None:
    found = await make_database(db)
    server = await make_server(db, found)

    await record(db, Measurement(found, [seen(replace(server, token="older"), NOON)]))

    assert [each.seen_at for each in await read_servers(db, found)] == [None]


async def test_rounds_and_removals_at_the_same_time_leave_nothing_of_what_was_removed(db: Store) -> None:
    from moorage.products.databases import tables

    found = [await make_database(db, name=f"number{number}") for number in range(4)]

    async def remove(each: Database) -> None:
        def unit(tx: Any) -> None:
            metrics.remove_of_database(tx, each.org_id, each.id)
            tx.run(tables.DELETE, org_id=each.org_id, id=each.id)

        await db.write(unit)

    rounds = [record(db, *(Measurement(each, [], answer(NOON + number)) for each in found)) for number in range(8)]
    await asyncio.gather(*rounds, *(remove(each) for each in found[:3]))

    assert [(await summary(db, each)).up for each in found] == [None, None, None, True]
    assert (await series(db, found[3]))[-1].qps == 10.0


async def test_only_databases_that_run_are_looked_at_and_new_ones_are_known(db: Store) -> None:
    found = await make_database(db)
    server = await make_server(db, found)
    for number, status in enumerate(each for each in DatabaseStatus if each != DatabaseStatus.RUNNING):
        await make_server(db, await make_database(db, name=f"other{number}", status=status))
    await make_database(db, name="trash", deleted_at=NOON)

    watched = await db.read(metrics.running)
    new = await db.read(metrics.never_seen)
    await record(db, Measurement(found, [seen(server, NOON)]))

    assert [(each.id, [its.id for its in servers]) for each, servers in watched] == [(found.id, [server.id])]
    assert (new, await db.read(metrics.never_seen)) == ({found.id}, set())


async def test_a_snapshot_adds_up_what_all_servers_use(db: Store) -> None:
    found = await make_database(db, architecture="replicaset")
    primary, replica = await make_server(db, found), await make_server(db, found, "replica", "s2")
    usages = [seen(primary, NOON, restarts=1), seen(replica, NOON, cpu_milli=2, restarts=3)]
    await record(db, Measurement(found, usages))

    its = await snapshot(db, found)

    assert (its.available, its.phase, its.ready, its.restarts) == (True, "Running", True, 4)
    assert (its.started_at, its.cpu_milli, its.memory_bytes) == (NOON - HOUR_MS, 42, 60 * 2**20)
    assert [(each.name, each.cpu_milli) for each in its.containers] == [("postgresql", 40), ("replica", 2)]


async def test_a_snapshot_shows_no_figures_that_are_older_than_a_minute(db: Store, clock: ManualClock) -> None:
    found = await make_database(db)
    server = await make_server(db, found)
    await record(db, Measurement(found, [seen(server, NOON)]))
    clock.now_ms = NOON + MINUTE_MS
    fresh = await snapshot(db, found)

    clock.advance(1)
    stale = await snapshot(db, found)

    assert (fresh.available, fresh.cpu_milli) == (True, 40)
    assert (stale.available, stale.phase, stale.ready, stale.started_at) == (False, None, False, None)
    assert (stale.cpu_milli, stale.memory_bytes, stale.containers[0].memory_bytes) == (None, None, None)


async def test_a_server_that_is_not_there_right_now_is_pending(db: Store) -> None:
    found = await make_database(db)
    server = await make_server(db, found)
    await record(db, Measurement(found, [seen(server, NOON, cpu_milli=None, memory_bytes=None, restarts=5)]))

    its = await snapshot(db, found)

    assert (its.available, its.phase, its.ready, its.restarts) == (False, "Pending", False, 5)


async def test_a_database_that_has_just_come_up_is_ready_before_it_has_figures(db: Store) -> None:
    found = await make_database(db)
    await make_server(db, found)

    its = await snapshot(db, found)

    assert (its.available, its.phase, its.ready) == (False, "Running", True)
    assert (its.cpu_milli, its.memory_bytes) == (None, None)


@pytest.mark.parametrize(
    ("status", "phase"),
    [
        (DatabaseStatus.PENDING, "Pending"),
        (DatabaseStatus.DEPLOYING, "Pending"),
        (DatabaseStatus.STOPPED, "Stopped"),
        (DatabaseStatus.FAILED, "Failed"),
        (DatabaseStatus.DELETING, "Terminating"),
    ],
)
async def test_a_database_that_does_not_run_has_no_figures(db: Store, status: DatabaseStatus, phase: str) -> None:
    found = await make_database(db, status=status)
    server = await make_server(db, found)
    await record(db, Measurement(found, [seen(server, NOON)]))

    assert await snapshot(db, found) == Snapshot(False, phase, False, 0, None, None, None, [])


async def test_the_disk_of_a_database_is_noted_only_while_it_runs(db: Store) -> None:
    full = DiskUsage(5 * 2**30, True, "its disk is full (5.00 of 1 GB)")
    found = await make_database(db)
    busy = await make_database(db, name="busy", status=DatabaseStatus.UPDATING)

    await record(db, Measurement(found, disk=full), Measurement(busy, disk=full))

    stored, untouched = await read_again(db, found), await read_again(db, busy)
    assert (stored.is_full, stored.disk_bytes, stored.status_reason) == (True, full.used, full.reason)
    assert (untouched.is_full, untouched.disk_bytes, untouched.status_reason) == (False, 0, None)


@pytest.mark.parametrize(
    ("reason", "left"), [("its disk is full (1.2 of 1 GB)", None), ("a restore failed", "a restore failed")]
)
async def test_with_room_again_only_the_reason_that_was_about_it_goes(db: Store, reason: str, left: str | None) -> None:
    found = await make_database(db, is_full=True, status_reason=reason)

    await record(db, Measurement(found, disk=DiskUsage(10, False)))

    stored = await read_again(db, found)
    assert (stored.is_full, stored.disk_bytes, stored.status_reason) == (False, 10, left)


async def test_what_stays_full_keeps_its_reason(db: Store) -> None:
    found = await make_database(db, is_full=True, status_reason="its disk is full (1.2 of 1 GB)")

    await record(db, Measurement(found, disk=DiskUsage(2**31, True)))

    stored = await read_again(db, found)
    assert (stored.is_full, stored.status_reason) == (True, "its disk is full (1.2 of 1 GB)")


async def test_the_figures_of_a_database_go_with_it(db: Store) -> None:
    found, other = await make_database(db), await make_database(db, name="other")
    for each in (found, other):
        await add(db, each, answer(NOON))

    await db.write(lambda tx: metrics.remove_of_database(tx, found.org_id, found.id))

    assert [(await summary(db, each, "30d")).figures.qps for each in (found, other)] == [None, 10.0]


async def test_the_timetable_has_fine_rows_forgotten_before_coarse_ones(
    db: Store, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(metrics, "MAX_DELETED_ROWS", 2)
    found = await make_database(db)
    now = NOON + HOUR_MS
    for ago in (2 * HOUR_MS, 8 * DAY_MS, 31 * DAY_MS):
        await add(db, found, *(answer(now - ago + off) for off in (-2 * HOUR_MS, -HOUR_MS, HOUR_MS)))
    handlers = Handlers()
    retention.register(handlers, LocalLogs(db.env.settings.folder("logs")))
    await handlers.ensure_maintenance(db, clock.now())
    clock.now_ms = now

    await Scheduler(db, Telemetry(quiet=True), handlers.ticks).turn()
    await Worker(db, handlers, Telemetry(quiet=True), slots=1).run_due(turns=20)

    assert await db.read(lambda tx: [kept(tx, found, step_s) for step_s in (15, 300, 3600)]) == [1, 4, 7]


def kept(tx: Any, found: Database, step_s: int) -> int:
    return len(metrics._sums(tx, found.org_id, found.id, step_s, 0, NOON + DAY_MS, 1000))
