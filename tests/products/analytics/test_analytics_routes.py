"""The analytics route."""

from __future__ import annotations

from typing import Any

import pytest
from tests.builders import make_member, make_org, make_token
from tests.client import Client
from tests.products.analytics.support import Log, make_ingest, make_project

from moorage.accounts.identity.roles import Role
from moorage.core.db.store import Database
from moorage.core.kit.clock import DAY_MS, HOUR_MS, ManualClock, to_wire

pytestmark = pytest.mark.anyio

MIDNIGHT = 1_767_225_600_000


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(MIDNIGHT + 10 * HOUR_MS + 1234)


@pytest.fixture
def log(db: Database) -> Log:
    return Log(db)


@pytest.fixture
async def client(db: Database, api: Client) -> Client:
    """A client of a member of the organization that owns the projects; its id is 1."""
    org = await make_org(db)
    member = await make_member(db, org, Role.MEMBER)
    api.token = await make_token(db, member, org.id)
    return api


async def read(client: Client, query: str = "") -> Any:
    return (await client.get(f"/v1/projects/harbor/analytics{query}")).data


async def test_a_project_without_visits_has_zeros_in_every_bucket(client: Client, db: Database) -> None:
    await make_project(db)

    data = await read(client)

    assert list(data) == ["enabled", "range", "totals", "series", "topPaths", "topReferrers"]
    assert data["totals"] == {
        "requests": 0,
        "visitors": 0,
        "bytes": 0,
        "statuses": {"2xx": 0, "3xx": 0, "4xx": 0, "5xx": 0},
    }
    assert [bucket["t"] for bucket in data["series"]] == [to_wire(MIDNIGHT + hour * HOUR_MS) for hour in range(-13, 11)]
    assert all(bucket == {"t": bucket["t"], "requests": 0, "visitors": 0, "bytes": 0} for bucket in data["series"])
    assert (data["enabled"], data["range"], data["topPaths"], data["topReferrers"]) == (True, "24h", [], [])


async def test_figures_of_the_last_24_hours_are_shown_by_the_hour(client: Client, db: Database, log: Log) -> None:
    await make_project(db)
    log.visit(2, uri="/", size=100, referer="https://news.example.com/a?b")
    log.visit(1, uri="/missing", status=404, size=9)
    log.visit(1, uri="/", ago_ms=2 * HOUR_MS, ip="198.51.100.1")
    log.visit(1, uri="/early", ago_ms=30 * HOUR_MS, ip="198.51.100.2", size=1000)
    await make_ingest(db).catch_up()

    data = await read(client, "?range=24h")

    assert data["totals"] == {
        "requests": 4,
        "visitors": 2,
        "bytes": 215,
        "statuses": {"2xx": 3, "3xx": 0, "4xx": 1, "5xx": 0},
    }
    assert data["series"][-1] == {
        "t": to_wire(MIDNIGHT + 10 * HOUR_MS),
        "requests": 3,
        "visitors": 1,
        "bytes": 209,
    }
    assert data["series"][-3]["requests"] == 1
    assert data["topReferrers"] == [{"referrer": "news.example.com", "requests": 2}]
    # Lists are per day, so they include requests of the first day before the window.
    assert data["topPaths"] == [
        {"path": "/", "requests": 3},
        {"path": "/early", "requests": 1},
        {"path": "/missing", "requests": 1},
    ]


async def test_who_came_on_the_first_day_both_before_and_in_the_window_is_counted(
    client: Client, db: Database, log: Log
) -> None:
    await make_project(db)
    for ago, address in ((26, "a"), (25, "b"), (20, "a"), (12, "a"), (0, "a"), (0, "c")):
        log.visit(ago_ms=ago * HOUR_MS, ip=address)
    await make_ingest(db).catch_up()

    data = await read(client)

    assert data["totals"]["visitors"] == 3  # `a` on both days, `c`; `b` came too early
    assert [bucket["visitors"] for bucket in data["series"] if bucket["visitors"]] == [1, 1, 2]


@pytest.mark.parametrize(("name", "days"), [("7d", 7), ("30d", 30), ("90d", 90)])
async def test_longer_ranges_are_shown_by_the_day(client: Client, db: Database, log: Log, name: str, days: int) -> None:
    await make_project(db)
    for ago in (0, 1, 2, days - 1, days):
        log.visit(2, ago_ms=ago * DAY_MS, uri=f"/{ago}")
    log.visit(ago_ms=HOUR_MS)
    await make_ingest(db).catch_up()

    data = await read(client, f"?range={name}")

    assert len(data["series"]) == days
    assert (data["series"][0]["t"], data["series"][-1]["t"]) == (
        to_wire(MIDNIGHT - (days - 1) * DAY_MS),
        to_wire(MIDNIGHT),
    )
    assert data["series"][-1] == {"t": to_wire(MIDNIGHT), "requests": 3, "visitors": 1, "bytes": 18}
    assert (data["totals"]["requests"], data["totals"]["visitors"]) == (9, 4)
    assert sum(entry["requests"] for entry in data["topPaths"]) == 9


async def test_a_top_list_ends_with_what_all_others_come_to(client: Client, db: Database, log: Log) -> None:
    await make_project(db)
    for number in range(25):
        log.visit(30 - number, uri=f"/{number:02}")
    await make_ingest(db).catch_up()

    data = await read(client)

    assert [entry["path"] for entry in data["topPaths"]] == [*(f"/{number:02}" for number in range(20)), "other"]
    assert data["topPaths"][-1]["requests"] == 10 + 9 + 8 + 7 + 6


async def test_without_analytics_there_are_no_figures(client: Client, db: Database, log: Log) -> None:
    await make_project(db, analytics=False)
    log.visit(3)
    await make_ingest(db).catch_up()

    data = await read(client, "?range=7d")

    assert data == {
        "enabled": False,
        "range": "7d",
        "totals": {"requests": 0, "visitors": 0, "bytes": 0, "statuses": {"2xx": 0, "3xx": 0, "4xx": 0, "5xx": 0}},
        "series": [],
        "topPaths": [],
        "topReferrers": [],
    }


async def test_another_range_is_a_bad_request(client: Client, db: Database) -> None:
    await make_project(db)

    for value in ("1h", "", "24H", "7", "year"):
        reply = await client.get(f"/v1/projects/harbor/analytics?range={value}")

        assert reply.status == 400
        assert list(reply.error["fields"]) == ["range"]


async def test_a_project_of_somebody_else_is_not_found(client: Client, db: Database) -> None:
    await make_project(db, org_id=2)

    for name in ("harbor", "missing"):
        reply = await client.get(f"/v1/projects/{name}/analytics")

        assert reply.status == 404


async def test_without_a_token_nothing_is_shown(client: Client, db: Database) -> None:
    await make_project(db)
    client.token = None

    reply = await client.get("/v1/projects/harbor/analytics")

    assert reply.status == 401
