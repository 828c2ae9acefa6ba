"""Usage and requests of apps are added up per minute and shown over time."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator
from typing import Any

import pytest
from tests.builders import make_member, make_org, make_token
from tests.client import Client
from tests.products.analytics.support import Log, make_ingest, make_project, requests

from moorage.accounts.identity.gate import IdentityGate
from moorage.accounts.identity.roles import Role
from moorage.accounts.identity.sessions.session_tokens import Sessions
from moorage.core.db.store import Database
from moorage.core.http.dispatch import Dispatcher
from moorage.core.kit.clock import DAY_MS, HOUR_MS, MINUTE_MS, SECOND_MS, ManualClock, to_wire
from moorage.core.telemetry import Telemetry
from moorage.products.apps.metrics import service as metrics
from moorage.products.apps.metrics.routes import make_router
from moorage.products.apps.metrics.service import (
    STEPS_MS,
    WINDOW_MS,
    RequestCounter,
    Requests,
    RequestWindow,
    Stats,
    Usage,
    percentile,
    step_of,
)
from moorage.products.projects.tables import Project

pytestmark = pytest.mark.anyio

MINUTE = 1_767_225_600_000 + 10 * HOUR_MS  # the minute of now
NOTHING = {"1xx": 0, "2xx": 0, "3xx": 0, "4xx": 0, "5xx": 0}


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(MINUTE + 20 * SECOND_MS)


@pytest.fixture
def log(db: Database) -> Log:
    return Log(db)


@pytest.fixture
def window() -> RequestWindow:
    return RequestWindow()


@pytest.fixture
async def client(db: Database) -> AsyncIterator[Client]:
    """A client of a viewer of the organization that owns the projects; its id is 1."""
    org = await make_org(db)
    viewer = await make_member(db, org, Role.VIEWER)
    asgi = Dispatcher(make_router().routes, db, IdentityGate(Sessions(db.env)), Telemetry(quiet=True))
    yield Client(asgi, token=await make_token(db, viewer, org.id))
    await asgi.close()


async def make_app(db: Database, name: str = "harbor", **more: Any) -> Project:
    return await make_project(db, name=name, slug="container", **{"analytics": False, **more})


def asked(*durations_ms: float, status: int = 200) -> Requests:
    """Requests that took so long."""
    made = Requests(count=len(durations_ms))
    made.classes[status // 100 - 1] = len(durations_ms)
    for duration_ms in durations_ms:
        metrics.merge(made.histogram, {step_of(duration_ms): 1})
    return made


def usage(**changed: int) -> Usage:
    usual = {"cpu_us": 1, "cpu_share_us": 100, "span_ms": 10_000, "memory_bytes": 2**20, "replicas": 1}
    return Usage(**{**usual, **changed})


async def use(db: Database, project: Project, what: Usage, *, at: int = MINUTE) -> None:
    await db.write(lambda tx: metrics.add_usage(tx, project.org_id, project.id, at, what))


async def ask(db: Database, project: Project, what: Requests, *, at: int = MINUTE) -> None:
    await db.write(lambda tx: metrics.add_requests(tx, project.org_id, project.id, at, what))


async def total(db: Database, project: Project) -> Stats:
    return await db.read(lambda tx: metrics.stats(tx, project.org_id, project.id, 0, MINUTE + DAY_MS))


async def show(client: Client, query: str = "") -> Any:
    return (await client.get(f"/v1/projects/harbor/metrics{query}")).data


def test_the_scale_reaches_from_half_a_millisecond_to_two_minutes() -> None:
    assert (STEPS_MS[0], round(STEPS_MS[-1])) == (0.5, 120_000)
    assert [step_of(duration) for duration in (0, 0.5, 0.51, 119_999, 500_000)] == [0, 0, 1, 40, 41]


def test_a_percentile_is_near_the_true_one_however_it_was_added_up() -> None:
    chance = random.Random(7)
    durations = [chance.lognormvariate(4, 1) for _ in range(4000)]
    halves = asked(*durations[:1000])
    halves.merge(asked(*durations[1000:]))

    for percent in (50, 95, 99):
        true = sorted(durations)[len(durations) * percent // 100]
        assert percentile(halves.histogram, percent) == pytest.approx(true, rel=0.1)


def test_there_is_no_percentile_of_nothing_and_none_beyond_the_scale() -> None:
    assert percentile({}, 50) is None
    assert percentile(asked(1_000_000).histogram, 50) == 120_000
    assert percentile(asked(0.0).histogram, 95) == pytest.approx(0.475)


async def test_what_is_measured_within_a_minute_is_one_row_of_sums_and_highest_values(db: Database) -> None:
    app = await make_app(db)

    await use(db, app, usage(cpu_us=300, cpu_share_us=1000, memory_bytes=50, replicas=3), at=MINUTE + 10)
    await use(db, app, usage(cpu_us=100, cpu_share_us=1000, memory_bytes=90, replicas=2), at=MINUTE + 59_999)
    await use(db, app, usage(cpu_us=7, memory_bytes=1), at=MINUTE + 60_000)
    its = {"org_id": app.org_id, "project_id": app.id, "from_ms": MINUTE, "to_ms": MINUTE + 2 * MINUTE_MS}
    found = await db.read(lambda tx: metrics.read(tx, bucket_ms=MINUTE_MS, **its))

    assert [(each.start, each.cpu_us, each.memory_bytes, each.replicas) for each in found] == [
        (MINUTE, 400, 90, 3),
        (MINUTE + MINUTE_MS, 7, 1, 1),
    ]
    assert (found[0].cpu_percent, found[0].span_ms) == (20.0, 20_000)


async def test_requests_and_usage_of_one_minute_do_not_disturb_each_other(db: Database) -> None:
    app = await make_app(db)

    await ask(db, app, asked(10, 10))
    await use(db, app, usage(memory_bytes=77))
    await ask(db, app, asked(10, status=503))
    [found] = await db.read(lambda tx: metrics.read(tx, app.org_id, app.id, MINUTE, MINUTE + MINUTE_MS, MINUTE_MS))

    assert (found.memory_bytes, found.requests.count, found.requests.classes) == (77, 3, [0, 2, 0, 0, 1])
    assert found.requests.histogram == {step_of(10): 3}


async def test_requests_that_are_added_at_the_same_time_are_all_there(db: Database) -> None:
    app = await make_app(db)

    await asyncio.gather(*(ask(db, app, asked(number, number)) for number in range(1, 13)))

    found = await total(db, app)
    assert found.requests == 24
    assert found.p50_ms == pytest.approx(6.5, rel=0.2)


async def test_the_last_request_is_known_to_the_minute(db: Database, clock: ManualClock) -> None:
    app, other = await make_app(db), await make_app(db, "other")

    async def last() -> int | None:
        return await db.read(lambda tx: metrics.last_request_at(tx, app.org_id, app.id))

    await ask(db, other, asked(1))
    never = await last()
    await ask(db, app, asked(1), at=MINUTE - HOUR_MS)
    await use(db, app, usage())
    an_hour_ago = await last()
    await ask(db, app, asked(1))

    assert (never, an_hour_ago) == (None, MINUTE - HOUR_MS + MINUTE_MS - 1)
    assert await last() == clock.now()


async def test_what_is_older_than_eight_days_is_trimmed_in_small_units(db: Database) -> None:
    app = await make_app(db)
    for ago in (9 * DAY_MS, 8 * DAY_MS + MINUTE_MS, 8 * DAY_MS - MINUTE_MS, 0):
        await ask(db, app, asked(1), at=MINUTE - ago)

    gone = [await db.write(metrics.trim), await db.write(metrics.trim)]

    assert gone == [2, 0]
    assert (await total(db, app)).requests == 2


async def test_the_figures_of_a_project_go_with_it(db: Database) -> None:
    app, other = await make_app(db), await make_app(db, "other")
    await ask(db, app, asked(1))
    await ask(db, other, asked(1))

    await db.write(lambda tx: metrics.remove_of_project(tx, app.org_id, app.id))

    assert [(await total(db, each)).requests for each in (app, other)] == [0, 1]


async def test_apps_are_counted_out_of_the_log_and_analytics_counts_only_who_asked(
    db: Database, log: Log, window: RequestWindow
) -> None:
    app = await make_app(db)
    visited = await make_app(db, "visited", analytics=True)
    site = await make_project(db, name="site")
    log.visit(3, seconds=0.1)
    log.visit(2, status=502, seconds=2)
    log.visit(host="visited.localhost", status=404)
    log.visit(host="site.localhost")
    log.visit(host="nobody.localhost")

    await make_ingest(db, also=[RequestCounter(window)]).catch_up()

    found = await total(db, app)
    assert (found.requests, found.failed) == (5, 2)
    assert found.p50_ms == pytest.approx(100, rel=0.36)
    assert found.p95_ms == pytest.approx(2000, rel=0.36)
    assert [(await total(db, each)).requests for each in (visited, site)] == [1, 0]
    assert [await requests(db, each) for each in (app, visited, site)] == [0, 1, 1]
    assert window.stats(app.id, 0, log.now() + 1).requests == 5
    assert window.stats(site.id, 0, log.now() + 1).requests == 0


async def test_the_time_of_a_websocket_is_no_latency(db: Database, log: Log, window: RequestWindow) -> None:
    app = await make_app(db)
    log.visit(status=101, seconds=3600)
    log.visit(status=200, seconds=0.01)

    await make_ingest(db, also=[RequestCounter(window)]).catch_up()

    found = await total(db, app)
    assert found.requests == 2
    assert found.p95_ms is not None
    assert found.p95_ms < 15


async def test_readers_that_end_and_race_count_each_request_once(db: Database, log: Log, window: RequestWindow) -> None:
    app = await make_app(db)
    for _ in range(2):
        log.visit(1500)
        readers = [make_ingest(db, also=[RequestCounter(window)]) for _ in range(2)]
        await asyncio.gather(*(reader.catch_up() for reader in readers))

    assert (await total(db, app)).requests == 3000
    assert window.stats(app.id, 0, log.now() + 1).requests == 3000


async def test_a_batch_that_is_undone_is_not_counted_anywhere(db: Database, log: Log, window: RequestWindow) -> None:
    app = await make_app(db)
    log.visit(4)

    def fail(tx: Any, owned: Any) -> None:
        raise ConnectionError("the store is away")

    with pytest.raises(ConnectionError):
        await make_ingest(db, also=[RequestCounter(window), fail]).catch_up()
    undone = (await total(db, app)).requests, window.last_at(app.id)
    await make_ingest(db, also=[RequestCounter(window)]).catch_up()

    assert undone == (0, None)
    assert (await total(db, app)).requests == window.stats(app.id, 0, log.now() + 1).requests == 4


async def test_lines_of_days_that_are_no_longer_kept_are_left_out(
    db: Database, log: Log, window: RequestWindow
) -> None:
    app = await make_app(db)
    log.visit(ago_ms=9 * DAY_MS)
    log.visit(2, ago_ms=7 * DAY_MS)

    await make_ingest(db, also=[RequestCounter(window)]).catch_up()

    assert (await total(db, app)).requests == 2


def test_the_window_knows_which_second_it_was() -> None:
    window = RequestWindow()
    window.add(1, {MINUTE: asked(10, 20), MINUTE + 1000: asked(30, status=500)}, MINUTE + 1500)
    window.add(1, {MINUTE + 1000: asked(30)}, MINUTE + 1500)
    window.add(2, {MINUTE: asked(10)}, MINUTE + 1500)

    halves = [window.stats(1, MINUTE - 5000, MINUTE + 900), window.stats(1, MINUTE + 900, MINUTE + 5000)]

    assert [(half.requests, half.failed) for half in halves] == [(2, 0), (2, 1)]
    assert [window.last_at(project) for project in (1, 2, 3)] == [MINUTE + 1000, MINUTE, None]
    assert window.stats(3, 0, MINUTE) == Stats(0, 0, None, None)


def test_the_window_forgets_after_fifteen_minutes_but_not_when_the_last_request_was() -> None:
    window = RequestWindow()
    window.add(1, {MINUTE: asked(10)}, MINUTE)
    window.add(2, {MINUTE + WINDOW_MS: asked(10)}, MINUTE + WINDOW_MS)
    window.add(3, {MINUTE: asked(10)}, MINUTE + WINDOW_MS)  # read late

    assert [window.stats(project, 0, 2 * MINUTE).requests for project in (1, 2, 3)] == [0, 1, 0]
    assert [window.last_at(project) for project in (1, 3)] == [MINUTE, MINUTE]


def test_a_project_that_is_no_more_is_forgotten() -> None:
    window = RequestWindow()
    window.add(1, {MINUTE: asked(10)}, MINUTE)

    window.forget(1)

    assert (window.stats(1, 0, 2 * MINUTE).requests, window.last_at(1)) == (0, None)


async def test_an_hour_is_shown_by_the_minute(client: Client, db: Database) -> None:
    app = await make_app(db)
    await use(db, app, usage(cpu_us=1_250_000, cpu_share_us=5_000_000, memory_bytes=100 * 2**20, replicas=2))
    await ask(db, app, asked(*[20.0] * 19, 900.0))
    await ask(db, app, asked(20.0, status=500), at=MINUTE - 59 * MINUTE_MS)
    await ask(db, app, asked(20.0), at=MINUTE - 60 * MINUTE_MS)

    data = await show(client)

    assert list(data) == ["range", "bucketSeconds", "items", "totals"]
    assert (data["range"], data["bucketSeconds"], len(data["items"])) == ("1h", 60, 60)
    last = data["items"][-1]
    assert (last.pop("p50Ms"), last.pop("p95Ms")) == (pytest.approx(20, rel=0.36), pytest.approx(20, rel=0.36))
    assert last == {
        "at": to_wire(MINUTE),
        "cpuPercent": 25.0,
        "cpuMilli": 125,
        "memoryMiB": 100.0,
        "replicas": 2,
        "requests": 20,
        "statuses": {**NOTHING, "2xx": 20},
    }
    assert data["items"][0]["statuses"] == {**NOTHING, "5xx": 1}
    assert (data["totals"]["requests"], data["totals"]["failed"]) == (21, 1)
    assert data["totals"]["p50Ms"] == pytest.approx(20, rel=0.36)


async def test_a_minute_in_which_nothing_happened_is_there_with_zeros(client: Client, db: Database) -> None:
    await make_app(db)

    data = await show(client)

    assert data["items"][7] == {
        "at": to_wire(MINUTE - 52 * MINUTE_MS),
        "cpuPercent": None,
        "cpuMilli": 0,
        "memoryMiB": 0.0,
        "replicas": 0,
        "requests": 0,
        "p50Ms": None,
        "p95Ms": None,
        "statuses": NOTHING,
    }
    assert data["totals"] == {"requests": 0, "failed": 0, "p50Ms": None, "p95Ms": None}


@pytest.mark.parametrize(
    ("name", "seconds", "count"), [("1h", 60, 60), ("6h", 120, 180), ("24h", 300, 288), ("7d", 3600, 168)]
)
async def test_every_range_ends_with_the_present_bucket(
    client: Client, db: Database, name: str, seconds: int, count: int
) -> None:
    app = await make_app(db)
    span_ms = seconds * SECOND_MS * count
    for at in (MINUTE, MINUTE - span_ms // 2, MINUTE - span_ms + seconds * SECOND_MS, MINUTE - span_ms - MINUTE_MS):
        await ask(db, app, asked(5), at=at)

    data = await show(client, f"?range={name}")

    assert (data["range"], data["bucketSeconds"], len(data["items"])) == (name, seconds, count)
    assert data["items"][-1]["at"] == to_wire(MINUTE // (seconds * SECOND_MS) * seconds * SECOND_MS)
    assert [data["items"][at]["requests"] for at in (0, -1)] == [1, 1]
    assert data["totals"]["requests"] == 3


async def test_a_static_project_has_zeros(client: Client, db: Database) -> None:
    await make_project(db)

    data = await show(client, "?range=7d")

    assert {item["requests"] for item in data["items"]} == {0}
    assert data["totals"]["requests"] == 0


async def test_another_range_is_a_bad_request(client: Client, db: Database) -> None:
    await make_app(db)

    for value in ("30d", "", "1H", "60"):
        reply = await client.get(f"/v1/projects/harbor/metrics?range={value}")

        assert reply.status == 400
        assert list(reply.error["fields"]) == ["range"]


async def test_a_project_of_somebody_else_is_not_found(client: Client, db: Database) -> None:
    theirs = await make_app(db, org_id=2)
    await ask(db, theirs, asked(5))

    for name in ("harbor", "missing"):
        reply = await client.get(f"/v1/projects/{name}/metrics")

        assert reply.status == 404
