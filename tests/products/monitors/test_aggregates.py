"""Uptimes of monitors, and hourly and daily buckets."""

from __future__ import annotations

from typing import Any

import pytest
from sqlalchemy import insert
from tests.products.monitors.support import Team, make_beat, make_monitor

from moorage.core.db.query import Command, sets_of
from moorage.core.db.store import Database
from moorage.core.kit.clock import DAY_MS, HOUR_MS, MINUTE_MS, SECOND_MS, ManualClock, to_wire
from moorage.products.monitors import aggregates, tables
from moorage.products.monitors.aggregates import Bucket, floor_percent
from moorage.products.monitors.probing import recording
from moorage.products.monitors.tables import DAY_S, HOUR_S, MINUTE_S, Monitor

pytestmark = pytest.mark.anyio

ADD_ROLLUP = Command(insert(tables.rollup), sets=sets_of(tables.rollup))
HOLD = Command(tables.monitor.update().values(prober="p"))


@pytest.fixture
async def shop(team: Team, db: Database) -> Monitor:
    return await make_monitor(db, team)


async def add(db: Database, monitor: Monitor, span_s: int, start: int, up: int, down: int = 0, ms: int = 0) -> None:
    row = {"org_id": monitor.org_id, "monitor_id": monitor.id, "span_s": span_s, "start": start}
    figures = {"up": up, "down": down, "response_sum": ms}
    await db.write(lambda tx: tx.run(ADD_ROLLUP, **row, **figures))


async def aggregate(team: Team, monitor: Monitor, hours: int | None = None) -> Any:
    query = "" if hours is None else f"?hours={hours}"
    return (await team.get(f"/{monitor.id}/aggregate{query}")).data


async def uptimes(team: Team, monitor: Monitor) -> set[float | None]:
    """Return the uptime of a monitor in every response that has it."""
    listed = {each["id"]: each["uptimePercent"] for each in (await team.get("")).data}
    return {listed[monitor.id], (await team.read(monitor.id))["uptimePercent"]}


@pytest.mark.parametrize(
    ("up", "down", "percent"),
    [
        (0, 0, None), (1, 0, 100), (0, 1, 0), (1, 2, 33.33), (2, 1, 66.66), (24999, 1, 99.99), (1, 24999, 0),
        (999_999_999, 1, 99.99), (9999, 1, 99.99), (10**15, 1, 99.99), (29, 71, 29),
    ],
)  # fmt: skip
def test_a_percentage_is_never_rounded_up(up: int, down: int, percent: float | None) -> None:
    assert floor_percent(up, down) == percent


@pytest.mark.parametrize(("up", "total", "average"), [(0, 0, None), (1, 7, 7), (2, 7, 4), (2, 5, 3), (3, 10, 3)])
def test_an_average_is_rounded_to_a_whole_number(up: int, total: int, average: int | None) -> None:
    assert Bucket(0, up, 5, 0, total).average_ms == average


@pytest.mark.parametrize(
    ("up", "down", "paused", "status"),
    [(5, 1, 1, "DOWN"), (5, 0, 1, "UP"), (0, 0, 1, "PAUSE"), (0, 0, 0, None), (0, 1, 0, "DOWN")],
)
def test_the_worst_of_a_bucket_is_its_status(up: int, down: int, paused: int, status: str | None) -> None:
    assert Bucket(0, up, down, paused, 0).status == status


async def test_without_checks_there_is_no_uptime(team: Team, shop: Monitor) -> None:
    assert await uptimes(team, shop) == {None}
    assert (await aggregate(team, shop))["uptimePercent"] is None


async def test_the_uptime_is_that_of_the_last_day_to_the_minute(
    team: Team, shop: Monitor, db: Database, clock: ManualClock
) -> None:
    clock.now_ms = clock.now() // DAY_MS * DAY_MS + 10 * HOUR_MS + 20 * MINUTE_MS
    since = clock.now() - DAY_MS
    whole = since + 40 * MINUTE_MS
    await add(db, shop, MINUTE_S, since - MINUTE_MS, 0, 1000)  # before it
    await add(db, shop, HOUR_S, whole - HOUR_MS, 0, 1000)  # began before it
    await add(db, shop, DAY_S, since // DAY_MS * DAY_MS, 0, 1000)
    await add(db, shop, MINUTE_S, since, 1)
    await add(db, shop, MINUTE_S, whole - MINUTE_MS, 1)
    await add(db, shop, MINUTE_S, whole, 0, 1000)  # is in the hour as well
    await add(db, shop, HOUR_S, whole, 1)
    await add(db, shop, HOUR_S, clock.now() - 20 * MINUTE_MS, 0, 1)

    assert await uptimes(team, shop) == {75}


async def test_at_the_full_hour_the_last_day_is_made_of_hours(
    team: Team, shop: Monitor, db: Database, clock: ManualClock
) -> None:
    clock.now_ms = clock.now() // HOUR_MS * HOUR_MS
    since = clock.now() - DAY_MS
    await add(db, shop, MINUTE_S, since, 0, 1000)
    await add(db, shop, HOUR_S, since - HOUR_MS, 0, 1000)
    await add(db, shop, HOUR_S, since, 2)
    await add(db, shop, HOUR_S, clock.now(), 0, 1)

    assert await uptimes(team, shop) == {66.66}


async def test_uptimes_are_told_apart(team: Team, stranger: Team, db: Database, clock: ManualClock) -> None:
    good, bad, new = [await make_monitor(db, team, name=name) for name in ("good", "bad", "new")]
    theirs = await make_monitor(db, stranger)
    now = clock.now() // HOUR_MS * HOUR_MS
    await add(db, good, HOUR_S, now, 5)
    await add(db, bad, HOUR_S, now, 1, 3)
    await add(db, theirs, HOUR_S, now, 0, 9)

    found = await db.read(lambda tx: aggregates.uptimes(tx, team.org_id))

    assert found == {good.id: 100, bad.id: 25}
    assert new.id not in found


@pytest.mark.parametrize(
    ("hours", "count", "width"),
    [(1, 1, HOUR_MS), (24, 24, HOUR_MS), (168, 168, HOUR_MS), (169, 8, DAY_MS), (192, 8, DAY_MS), (2160, 90, DAY_MS)],
)
async def test_up_to_a_week_is_shown_by_hours_and_more_by_days_and_empty_ones_are_there(
    team: Team, shop: Monitor, clock: ManualClock, hours: int, count: int, width: int
) -> None:
    clock.now_ms += 5 * HOUR_MS + 1234

    found = await aggregate(team, shop, hours)

    last = clock.now() // width * width
    starts = [to_wire(last - number * width) for number in reversed(range(count))]
    empty = {"upCount": 0, "downCount": 0, "pausedCount": 0, "avgResponseTime": None, "status": None}
    assert found == {
        "monitorId": shop.id,
        "windowHours": hours,
        "uptimePercent": None,
        "buckets": [{"bucket": start, **empty} for start in starts],
    }


async def test_a_day_is_the_usual_window(team: Team, shop: Monitor) -> None:
    found = await aggregate(team, shop)

    assert (found["windowHours"], len(found["buckets"])) == (24, 24)


@pytest.mark.parametrize(("hours", "span_s"), [(3, HOUR_S), (200, DAY_S)])
async def test_buckets_hold_what_was_counted_in_them_and_the_uptime_is_over_those_shown(
    team: Team, shop: Monitor, db: Database, clock: ManualClock, hours: int, span_s: int
) -> None:
    width = span_s * SECOND_MS
    last = clock.now() // width * width
    first = last - (len((await aggregate(team, shop, hours))["buckets"]) - 1) * width
    await add(db, shop, span_s, first - width, 0, 1000)  # before the window
    await add(db, shop, MINUTE_S, last, 0, 1000)  # another width
    await add(db, shop, span_s, first, 2, ms=51)
    await add(db, shop, span_s, last, 3, 1, ms=90)

    found = await aggregate(team, shop, hours)

    assert found["buckets"][0] == {
        "bucket": to_wire(first), "upCount": 2, "downCount": 0, "pausedCount": 0, "avgResponseTime": 26, "status": "UP",
    }  # fmt: skip
    assert found["buckets"][-1] == {
        "bucket": to_wire(last), "upCount": 3, "downCount": 1, "pausedCount": 0, "avgResponseTime": 30,
        "status": "DOWN",
    }  # fmt: skip
    assert found["uptimePercent"] == 83.33


async def test_hours_within_a_pause_say_so_without_a_heartbeat_of_their_own(
    team: Team, shop: Monitor, clock: ManualClock
) -> None:
    clock.now_ms = clock.now() // HOUR_MS * HOUR_MS + 30 * MINUTE_MS
    clock.advance(HOUR_MS)
    await team.post(f"/{shop.id}/pause")
    clock.advance(2 * HOUR_MS)
    during = (await aggregate(team, shop, 5))["buckets"]
    await team.post(f"/{shop.id}/resume")
    clock.advance(HOUR_MS)

    after = await aggregate(team, shop, 6)

    assert [each["status"] for each in during] == [None, None, "PAUSE", "PAUSE", "PAUSE"]
    assert [each["pausedCount"] for each in after["buckets"]] == [0, 0, 1, 1, 1, 0]
    assert after["uptimePercent"] is None


async def test_a_pause_that_ends_with_the_hour_is_not_in_the_next_one(
    team: Team, shop: Monitor, clock: ManualClock
) -> None:
    clock.now_ms = clock.now() // HOUR_MS * HOUR_MS + 30 * MINUTE_MS
    await team.post(f"/{shop.id}/pause")
    clock.advance(30 * MINUTE_MS)
    await team.post(f"/{shop.id}/resume")

    found = (await aggregate(team, shop, 2))["buckets"]

    assert [each["pausedCount"] for each in found] == [1, 0]


async def test_a_pause_of_no_time_is_counted_once_where_it_was(team: Team, shop: Monitor, clock: ManualClock) -> None:
    clock.now_ms = clock.now() // HOUR_MS * HOUR_MS
    await team.post(f"/{shop.id}/pause")
    await team.post(f"/{shop.id}/resume")

    now = (await aggregate(team, shop, 2))["buckets"]
    clock.advance(HOUR_MS)
    later = (await aggregate(team, shop, 2))["buckets"]

    assert [each["pausedCount"] for each in now] == [0, 1]
    assert [each["pausedCount"] for each in later] == [1, 0]


async def test_what_is_written_down_of_checks_is_what_is_shown(
    team: Team, shop: Monitor, db: Database, clock: ManualClock
) -> None:
    now = clock.now() // HOUR_MS * HOUR_MS + 50 * MINUTE_MS
    clock.now_ms = now
    beats = [make_beat(shop, now - number * MINUTE_MS, up=number != 3, response_ms=10 * number) for number in range(8)]
    await db.write(lambda tx: tx.run(HOLD))

    await db.write(lambda tx: recording.record(tx, "p", beats[::-1]))

    (bucket,) = (await aggregate(team, shop, 1))["buckets"]
    assert await uptimes(team, shop) == {87.5}
    assert (bucket["upCount"], bucket["downCount"], bucket["status"]) == (7, 1, "DOWN")
    assert bucket["avgResponseTime"] == round((0 + 10 + 20 + 40 + 50 + 60 + 70) / 7)
