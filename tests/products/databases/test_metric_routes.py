"""The metrics of a database, as a member of its organization reads them."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest
from tests.builders import make_member, make_org, make_token
from tests.client import Client
from tests.products.databases.metric_support import make_database, make_server

from moorage.accounts.identity.gate import IdentityGate
from moorage.accounts.identity.roles import Role
from moorage.accounts.identity.sessions.session_tokens import Sessions
from moorage.accounts.plans.service import Plan
from moorage.core.db.store import Database as Store
from moorage.core.http.dispatch import Dispatcher
from moorage.core.kit.clock import HOUR_MS, MINUTE_MS, SECOND_MS, ManualClock, to_wire
from moorage.core.telemetry import Telemetry
from moorage.products.databases.metrics import service as metrics
from moorage.products.databases.metrics.routes import make_router
from moorage.products.databases.metrics.service import Measurement, Sample, ServerUsage
from moorage.products.databases.states import DatabaseStatus

pytestmark = pytest.mark.anyio

NOON = 1_767_225_600_000 + 12 * HOUR_MS


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(NOON + 20 * SECOND_MS)


@pytest.fixture
def plan() -> Plan:
    return Plan.PRO


@pytest.fixture
async def client(db: Store, plan: Plan) -> AsyncIterator[Client]:
    """A client of a viewer of the organization that owns the databases; its id is 1."""
    org = await make_org(db, plan=plan)
    viewer = await make_member(db, org, Role.VIEWER)
    asgi = Dispatcher(make_router().routes, db, IdentityGate(Sessions(db.env)), Telemetry(quiet=True))
    yield Client(asgi, token=await make_token(db, viewer, org.id))
    await asgi.close()


async def show(client: Client, path: str = "") -> Any:
    return (await client.get(f"/v1/databases/harbor/metrics{path}")).data


async def measure(db: Store, **options: Any) -> None:
    """Add a running database with one measurement."""
    found = await make_database(db, **options)
    server = await make_server(db, found)
    look = ServerUsage(server, NOON, 2, NOON - HOUR_MS, 7, 33_700_000)
    sample = Sample(NOON, True, 4, 97, queries=100, queries_ms=15_000, cache_hits=2, cache_reads=1)
    await db.write(lambda tx: metrics.record(tx, [Measurement(found, [look], sample)]))


async def test_what_a_database_uses_now_is_shown_for_every_tier(client: Client, db: Store) -> None:
    await measure(db, tier="free", type_="mysql")

    assert await show(client) == {
        "available": True,
        "phase": "Running",
        "ready": True,
        "restarts": 2,
        "startedAt": to_wire(NOON - HOUR_MS),
        "cpuMilli": 7,
        "memoryMiB": 32.1,
        "containers": [{"name": "mysql", "cpuMilli": 7, "memoryMiB": 32.1}],
    }


async def test_a_database_that_does_not_run_yet_has_nothing_to_show(client: Client, db: Store) -> None:
    await make_database(db, status=DatabaseStatus.QUEUED)

    assert await show(client) == {
        "available": False,
        "phase": "Pending",
        "ready": False,
        "restarts": 0,
        "startedAt": None,
        "cpuMilli": None,
        "memoryMiB": None,
        "containers": [],
    }


async def test_a_summary_tells_how_the_engine_does(client: Client, db: Store) -> None:
    await measure(db)

    assert await show(client, "/summary?range=1h") == {
        "range": "1h",
        "enabled": True,
        "engine": "postgresql",
        "up": True,
        "connections": 4,
        "maxConnections": 97,
        "connectionsPct": 4.12,
        "qps": 6.67,
        "cacheHitPct": 66.67,
    }


async def test_a_summary_without_data_is_full_of_nulls(client: Client, db: Store) -> None:
    await make_database(db, type_="mysql")

    data = await show(client, "/summary")

    assert (data.pop("range"), data.pop("enabled"), data.pop("engine")) == ("24h", True, "mysql")
    assert set(data.values()) == {None}


async def test_a_series_has_a_point_for_every_bucket(client: Client, db: Store) -> None:
    await measure(db)

    data = await show(client, "/timeseries?range=1h")

    assert (data["range"], data["enabled"], data["engine"], len(data["points"])) == ("1h", True, "postgresql", 60)
    figures = {"connections": 4.0, "qps": 6.67, "cacheHitPct": 66.67}
    usage = {"cpuMilli": 7.0, "memoryMiB": 32.1, "diskMiB": None}
    assert data["points"][-1] == {"t": to_wire(NOON), **figures, **usage}
    assert data["points"][0] == {"t": to_wire(NOON - 59 * MINUTE_MS), **dict.fromkeys([*figures, *usage])}


async def test_a_day_is_what_is_shown_where_no_range_is_named(client: Client, db: Store) -> None:
    await measure(db)

    data = await show(client, "/timeseries")

    assert (data["range"], len(data["points"])) == ("24h", 288)


@pytest.mark.parametrize("path", ["summary", "timeseries"])
async def test_another_range_is_a_bad_request(client: Client, db: Store, path: str) -> None:
    await make_database(db)

    for value in ("6h", "", "24H", "1"):
        reply = await client.get(f"/v1/databases/harbor/metrics/{path}?range={value}")

        assert (reply.status, list(reply.error["fields"])) == (400, ["range"])


@pytest.mark.parametrize("path", ["summary", "timeseries"])
async def test_the_engine_of_the_free_tier_is_not_measured(client: Client, db: Store, path: str) -> None:
    await measure(db, tier="free")

    reply = await client.get(f"/v1/databases/harbor/metrics/{path}")

    assert (reply.status, reply.error["code"]) == (402, "quota_exceeded")


@pytest.mark.settings(billing="manual")
@pytest.mark.parametrize("plan", [Plan.FREE])
@pytest.mark.parametrize("path", ["summary", "timeseries"])
async def test_engine_metrics_need_a_paid_plan(client: Client, db: Store, path: str) -> None:
    await measure(db)

    reply = await client.get(f"/v1/databases/harbor/metrics/{path}")
    allowed = await client.get("/v1/databases/harbor/metrics")

    assert (reply.status, reply.error["code"]) == (402, "quota_exceeded")
    assert allowed.status == 200


@pytest.mark.parametrize("path", ["", "/summary", "/timeseries"])
async def test_a_database_of_somebody_else_is_not_found(client: Client, db: Store, path: str) -> None:
    await measure(db, org_id=2)

    for name in ("harbor", "missing"):
        reply = await client.get(f"/v1/databases/{name}/metrics{path}")

        assert reply.status == 404
