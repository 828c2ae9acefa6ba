"""Figures of requests: anonymous visitors, bounded top lists and retention."""

from __future__ import annotations

from typing import Any

import pytest
from tests.products.analytics.support import Log, addresses, hours, make_ingest, make_project, requests, top, visitors

from moorage.core import jobs
from moorage.core.db.scope import PLATFORM_ORG_ID
from moorage.core.db.store import Database
from moorage.core.jobs import timetable
from moorage.core.kit.clock import DAY_MS, HOUR_MS, MINUTE_MS, ManualClock
from moorage.core.telemetry import Telemetry
from moorage.core.vault import service as vault
from moorage.core.worker.pool import Worker
from moorage.core.worker.run import Handlers
from moorage.products.analytics import counting, retention, service, tables
from moorage.products.analytics.tables import OTHER, PATH, REFERRER

pytestmark = pytest.mark.anyio

NOON = 1_767_225_600_000 + 12 * HOUR_MS


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(NOON)


@pytest.fixture
def log(db: Database) -> Log:
    return Log(db)


async def trim(db: Database) -> None:
    handlers = Handlers()
    retention.register(handlers)
    await db.write(lambda tx: jobs.add(tx, retention.TrimAnalytics(), lane=jobs.Lane.CHORES))
    await Worker(db, handlers, Telemetry(quiet=True), slots=1).run_due(turns=5)


async def rows(db: Database, sql: str) -> list[tuple[Any, ...]]:
    return await db.read(lambda tx: tx._driver.rows(sql, []))


async def salts(db: Database) -> list[str]:
    return await db.read(lambda tx: vault.names(tx, PLATFORM_ORG_ID, counting.SALTS))


async def test_requests_bytes_and_kinds_of_answers_are_added_up_by_the_hour(db: Database, log: Log) -> None:
    project = await make_project(db)
    for status in (200, 204, 206, 301, 304, 404, 500, 0, 101):
        log.visit(status=status, size=10)
    log.visit(ago_ms=HOUR_MS, size=7)

    await make_ingest(db).catch_up()

    assert await hours(db, project) == [
        tables.Hour(NOON - HOUR_MS, 1, 1, 1, 7, 1, 0, 0, 0),
        tables.Hour(NOON, 9, 1, 0, 90, 3, 2, 1, 1),
    ]


async def test_a_visitor_counts_once_in_each_hour_and_once_in_a_day(db: Database, log: Log) -> None:
    project = await make_project(db)
    for ago in (3, 2, 2, 0):
        log.visit(2, ago_ms=ago * HOUR_MS)
        await make_ingest(db).catch_up()
    log.visit(ip="198.51.100.1")
    log.visit(agent="another browser")
    await make_ingest(db).catch_up()

    found = await hours(db, project)

    assert [(hour.visitors, hour.newcomers) for hour in found] == [(1, 1), (1, 0), (3, 2)]


async def test_a_visitor_is_a_new_one_on_the_next_day(db: Database, log: Log, clock: ManualClock) -> None:
    project = await make_project(db)
    for _ in range(3):
        log.visit(2)
        await make_ingest(db).catch_up()
        clock.advance(DAY_MS)

    assert await visitors(db, project) == 3


async def test_bots_are_requests_but_not_visitors(db: Database, log: Log) -> None:
    project = await make_project(db)
    log.visit(5, agent="Googlebot/2.1")

    await make_ingest(db).catch_up()

    assert await requests(db, project) == 5
    assert await visitors(db, project) == 0


async def test_no_address_and_no_query_is_stored_and_a_visitor_has_another_name_in_each_project(
    db: Database, log: Log
) -> None:
    await make_project(db)
    await make_project(db, name="pier")
    referer = "https://search.example/?q=private"
    for host in ("harbor.localhost", "pier.localhost"):
        log.visit(host=host, ip="203.0.113.77", uri="/a?email=ada@example.com", referer=referer)
    await make_ingest(db).catch_up()

    stored = "analytics_visitor", "analytics_top", "analytics_position", "analytics_hour", "vault_secret"
    text = "".join([str(await rows(db, f"SELECT * FROM {name}")) for name in stored])

    assert len(set(await rows(db, "SELECT visitor FROM analytics_visitor"))) == 2
    assert "search.example" in text
    assert not [word for word in ("203.0.113.77", "Mozilla", "email", "private") if word in text]


async def test_a_list_has_at_most_500_rows_a_day_and_the_rest_is_counted_together(db: Database, log: Log) -> None:
    project = await make_project(db)
    for number in range(490):
        log.visit(uri=f"/page/{number}")
    await make_ingest(db).catch_up()
    for number in range(485, 540):
        log.visit(2 if number == 530 else 1, uri=f"/page/{number}", referer="https://news.example/")

    await make_ingest(db).catch_up()
    paths = await top(db, project, PATH)
    its = {"org_id": project.org_id, "project_id": project.id, "kind": PATH, "start": 0}
    listed = await db.read(lambda tx: tx.one(tables.LISTED, **its))

    assert len(paths) == 500
    assert paths["/page/485"] == 2
    assert paths["/page/530"] == 2  # the most requested of the new paths
    assert OTHER not in paths
    assert listed == 490 + 56
    assert listed - sum(paths.values()) == 40
    assert await top(db, project, REFERRER) == {"news.example": 56}


async def test_made_up_visitors_do_not_fill_the_store(db: Database, log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(counting, "MAX_VISITORS", 10)
    project = await make_project(db)
    for address in addresses(25):
        log.visit(ip=address)
        if address.endswith(".7"):
            await make_ingest(db).catch_up()
    await make_ingest(db).catch_up()

    assert await rows(db, "SELECT count(*) FROM analytics_visitor") == [(10,)]
    assert await visitors(db, project) == 10
    assert await requests(db, project) == 25


async def test_lines_from_the_future_or_from_long_ago_are_not_counted(db: Database, log: Log) -> None:
    project = await make_project(db)
    for ago in (-2 * DAY_MS, 91 * DAY_MS, NOON):
        log.visit(ago_ms=ago)

    await make_ingest(db).catch_up()

    assert await hours(db, project) == []


async def test_the_salt_of_a_day_is_gone_soon_after_it_and_its_visitors_a_day_later(
    db: Database, log: Log, clock: ManualClock
) -> None:
    project = await make_project(db)
    log.visit()
    await make_ingest(db).catch_up()
    seen = []

    for step in (11 * HOUR_MS, HOUR_MS + 30 * 60_000, HOUR_MS, 23 * HOUR_MS):
        clock.advance(step)
        await trim(db)
        stored = await rows(db, "SELECT visitor FROM analytics_visitor")
        seen.append((len(await salts(db)), len(stored)))

    assert seen == [(1, 1), (1, 1), (0, 1), (0, 0)]
    assert await visitors(db, project) == 1


async def test_figures_are_kept_for_90_days(db: Database, log: Log, clock: ManualClock) -> None:
    project = await make_project(db)
    log.visit(600, uri="/a")
    for number in range(600):
        log.visit(uri=f"/{number}", ago_ms=number % 12 * HOUR_MS)
    await make_ingest(db).catch_up()

    clock.advance(90 * DAY_MS)
    await trim(db)
    kept = await requests(db, project)
    clock.advance(DAY_MS)
    await trim(db)

    assert kept == 1200
    assert await hours(db, project) == []
    assert await top(db, project, PATH) == {}


async def test_the_timetable_holds_the_chore(db: Database) -> None:
    handlers = Handlers()
    retention.register(handlers)

    await handlers.ensure_maintenance(db, NOON)
    due = await db.read(lambda tx: timetable.find(tx, PLATFORM_ORG_ID, retention.KIND, ""))

    assert due is not None
    assert due.next_run_at == NOON + 7 * MINUTE_MS
    assert list(handlers.ticks) == [retention.KIND]


async def test_a_deleted_project_leaves_nothing_and_others_keep_theirs(db: Database, log: Log) -> None:
    project, other = await make_project(db), await make_project(db, name="pier")
    log.visit(2, referer="https://news.example/")
    log.visit(3, host="pier.localhost", referer="https://news.example/")
    await make_ingest(db).catch_up()

    await db.write(lambda tx: service.remove_of_project(tx, project.org_id, project.id))
    await db.write(lambda tx: service.remove_of_project(tx, 999, other.id))

    assert await hours(db, project) == []
    assert await top(db, project, PATH) == await top(db, project, REFERRER) == {}
    assert await requests(db, other) == 3
    assert await rows(db, "SELECT project_id FROM analytics_visitor") == [(other.id,)]
