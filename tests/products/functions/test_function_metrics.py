"""Metrics of functions in the API, their buckets, and the monthly usage."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.products.functions.spool_writer import NOON, make_function, record, write
from tests.products.functions.support import Team, make_team

from moorage.app import App
from moorage.core.db.store import Database
from moorage.core.kit.clock import DAY_MS, HOUR_MS, MINUTE_MS, ManualClock, to_wire
from moorage.products.functions.records import metrics
from moorage.products.functions.records.metrics import MAX_BUCKETS, window_of
from moorage.settings import Settings

pytestmark = pytest.mark.anyio

METRICS = "/v1/functions/hello/metrics"
LAST = 253_402_300_799_999


@pytest.fixture
async def crew(app: App, db: Database) -> Team:
    return await make_team(app.asgi, db)


@pytest.fixture
def folder(settings: Settings) -> Path:
    return settings.folder("spool")


async def test_a_day_is_shown_in_buckets_of_five_minutes_with_the_present_one_last(
    crew: Team, db: Database, folder: Path, clock: ManualClock
) -> None:
    function_id = await make_function(db, crew.org_id)
    clock.advance(7 * MINUTE_MS + 1)
    of = {"function_id": function_id, "org_id": crew.org_id}
    write(
        folder,
        record(1_000, **of, started_ms=clock.now()),
        record(2_002, **of, started_ms=clock.now() - 1, ok=False),
        record(9_000, **of, started_ms=NOON + 4 * MINUTE_MS),
        record(9_000, **of, started_ms=clock.now() - DAY_MS - 5 * MINUTE_MS),
    )

    shown = (await crew.api.get(METRICS)).data

    assert {len(values) for values in shown.values()} == {MAX_BUCKETS}
    assert set(shown) == {"timestamps", "invocations", "errors", "latency"}
    assert shown["timestamps"][-2:] == ["2026-01-01T00:00:00.000Z", "2026-01-01T00:05:00.000Z"]
    assert shown["timestamps"][0] == "2025-12-31T00:10:00.000Z"
    assert shown["invocations"] == [0] * 286 + [1, 2]
    assert shown["errors"] == [0] * 287 + [1]
    assert shown["latency"] == [None] * 286 + [9.0, 1.501]


async def test_a_window_may_be_asked_for_and_what_lies_outside_is_not_counted(
    crew: Team, db: Database, folder: Path
) -> None:
    function_id = await make_function(db, crew.org_id)
    of = {"function_id": function_id, "org_id": crew.org_id}
    write(folder, *(record(1, **of, started_ms=NOON + minute * MINUTE_MS) for minute in range(-5, 10)))

    shown = (await crew.api.get(f"{METRICS}?fromMs={NOON}&toMs={NOON + 3 * MINUTE_MS}")).data

    assert shown["timestamps"] == [to_wire(NOON + minute * MINUTE_MS) for minute in range(3)]
    assert shown["invocations"] == [1, 1, 1]


async def test_wide_buckets_hold_what_happened_in_them(crew: Team, db: Database, folder: Path) -> None:
    function_id = await make_function(db, crew.org_id)
    of = {"function_id": function_id, "org_id": crew.org_id}
    write(folder, *(record(1_000, **of, started_ms=NOON + hour * HOUR_MS) for hour in range(30)))

    shown = (await crew.api.get(f"{METRICS}?fromMs={NOON}&toMs={NOON + 200 * DAY_MS}")).data

    assert shown["invocations"] == [24, 6] + [0] * 198
    assert shown["latency"] == [1.0, 1.0] + [None] * 198


@pytest.mark.parametrize(
    ("query", "field"),
    [
        ("fromMs=2&toMs=1", "fromMs"),
        (f"fromMs={NOON + DAY_MS}", "fromMs"),
        ("fromMs=-1", "fromMs"),
        ("toMs=-1", "toMs"),
        ("fromMs=1.5", "fromMs"),
        ("toMs=soon", "toMs"),
        ("fromMs=", "fromMs"),
        (f"toMs={LAST + 1}", "toMs"),
        ("toMs=99999999999999999999", "toMs"),
    ],
)
async def test_a_bad_window_is_refused_by_its_field(crew: Team, db: Database, query: str, field: str) -> None:
    await make_function(db, crew.org_id)

    reply = await crew.api.get(f"{METRICS}?{query}")

    assert (reply.status, list(reply.error["fields"])) == (400, [field])


@pytest.mark.parametrize("query", ["toMs=0", "fromMs=0", f"fromMs=0&toMs={LAST}", "fromMs=5&toMs=5", f"fromMs={NOON}"])
async def test_windows_at_the_bounds_are_answered(crew: Team, db: Database, query: str) -> None:
    await make_function(db, crew.org_id)

    shown = (await crew.api.get(f"{METRICS}?{query}")).data

    assert 1 <= len(shown["timestamps"]) <= MAX_BUCKETS
    assert set(shown["invocations"]) == {0}
    assert set(shown["latency"]) == {None}


@given(st.integers(0, LAST), st.integers(0, LAST), st.integers(0, LAST))
def test_every_window_has_few_aligned_buckets_that_cover_it(first: int, second: int, now: int) -> None:
    start, end = sorted((first, second))

    window = window_of(start, end, now)

    buckets = window.buckets
    assert 1 <= len(buckets) <= MAX_BUCKETS
    assert all(bucket % window.width == 0 for bucket in buckets)
    assert buckets[0] <= start
    assert buckets[-1] + window.width >= end
    assert window.width % MINUTE_MS == 0


@given(st.integers(0, LAST))
def test_the_last_day_is_never_more_than_its_buckets_and_ends_with_the_present_one(now: int) -> None:
    window = window_of(None, None, now)

    buckets = window.buckets
    assert len(buckets) <= MAX_BUCKETS
    assert buckets[-1] <= now < buckets[-1] + window.width
    assert len(buckets) == MAX_BUCKETS or now < DAY_MS


@pytest.mark.parametrize(
    ("span", "width"),
    [
        (HOUR_MS, MINUTE_MS),
        (288 * MINUTE_MS, MINUTE_MS),
        (289 * MINUTE_MS, 5 * MINUTE_MS),
        (DAY_MS, 5 * MINUTE_MS),
        (2 * DAY_MS, 10 * MINUTE_MS),
        (3 * DAY_MS, 15 * MINUTE_MS),
        (6 * DAY_MS, 30 * MINUTE_MS),
        (7 * DAY_MS, HOUR_MS),
        (24 * DAY_MS, 2 * HOUR_MS),
        (30 * DAY_MS, 3 * HOUR_MS),
        (72 * DAY_MS, 6 * HOUR_MS),
        (90 * DAY_MS, 12 * HOUR_MS),
        (200 * DAY_MS, DAY_MS),
        (365 * DAY_MS, 7 * DAY_MS),
    ],
)
def test_buckets_are_as_wide_as_a_reader_expects(span: int, width: int) -> None:
    assert window_of(NOON, NOON + span, NOON).width == width


async def metered(crew: Team) -> dict[str, Any]:
    found: dict[str, Any] = (await crew.api.get("/v1/usage")).data["metered"]
    return found


async def test_usage_shows_what_the_organization_used_in_this_month(
    crew: Team, app: App, db: Database, folder: Path, clock: ManualClock
) -> None:
    other = await make_team(app.asgi, db)
    function_id, theirs = await make_function(db, crew.org_id), await make_function(db, other.org_id)
    of = {"function_id": function_id, "org_id": crew.org_id, "memory_mb": 512}
    nothing = await metered(crew)
    write(
        folder,
        record(3_000_000, **of, started_ms=NOON - 1),
        record(2_000_000, **of, started_ms=NOON),
        record(1_000_000, **of, started_ms=NOON + 30 * DAY_MS),
        record(7, theirs, org_id=other.org_id),
    )
    await app.products.functions.recorder.catch_up()

    clock.advance(30 * DAY_MS)
    in_january = await metered(crew)
    clock.advance(2 * DAY_MS)

    assert nothing == {"invocations": 0, "gbSeconds": 0}
    assert in_january == {"invocations": 2, "gbSeconds": 1.5}
    assert await metered(crew) == {"invocations": 0, "gbSeconds": 0}


@pytest.mark.usefixtures("impatient")
async def test_usage_of_a_month_counts_functions_that_are_gone(
    crew: Team, app: App, db: Database, folder: Path
) -> None:
    function_id = await make_function(db, crew.org_id)
    write(folder, record(1_000_000, function_id, org_id=crew.org_id, memory_mb=1024))
    await app.products.functions.recorder.catch_up()

    deleted = await crew.api.delete("/v1/functions/hello")

    assert deleted.status == 200
    assert await db.read(lambda tx: metrics.usage_of_month(tx, crew.org_id)) == (1, 1.0)
