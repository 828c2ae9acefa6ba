"""Limits of scheduled functions: places of an organization, number of schedules, size of parameters."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from tests.builders import make_org
from tests.products.functions.edge_stand_in import EdgeStandIn, Fate
from tests.products.schedules.support import (
    Control,
    due,
    make_client,
    make_function,
    make_schedule,
    open_runs,
    read_schedule,
    until,
)

from moorage.app import App
from moorage.core.db.store import Database
from moorage.core.kit.clock import MINUTE_MS, ManualClock
from moorage.products.schedules import service
from moorage.products.schedules.places import Places
from moorage.products.schedules.runner import NO_PLACE
from moorage.products.schedules.schemas import MAX_PARAMS_BYTES
from moorage.products.schedules.tables import Schedule

pytestmark = pytest.mark.anyio


async def test_slow_runs_of_one_organization_leave_places_for_those_of_others(
    db: Database, clock: ManualClock, edge: EdgeStandIn, nightly: Schedule
) -> None:
    control, release = Control(db, most=4), asyncio.Event()
    for number in range(9):
        await make_schedule(db, nightly.org_id, name=f"slow-{number}")
    edge.fate = lambda call: Fate(waits=release) if call["function"] == nightly.function_id else Fate()
    due(clock)
    await control.tick()
    await until(lambda: len(edge.calls) == 2)
    other = await make_org(db)
    await make_function(db, other.id)
    theirs = [await make_schedule(db, other.id, name=f"other-{number}") for number in range(3)]
    due(clock)

    await control.tick()
    await until(lambda: len(edge.calls) == 5)
    called = [call["function"] == nightly.function_id for call in edge.calls]
    release.set()
    await control.finish()

    assert called == [True, True, False, False, False]
    assert {(await read_schedule(db, each)).last_status for each in theirs} == {"success"}
    assert await open_runs(db) == []
    await control.die()


async def test_a_run_that_waits_too_long_for_a_place_fails_with_that_reason(
    db: Database, clock: ManualClock, edge: EdgeStandIn, nightly: Schedule
) -> None:
    control, release = Control(db, most=2), asyncio.Event()
    edge.fate = lambda call: Fate(waits=release)
    due(clock)
    await control.tick()
    await until(lambda: len(edge.calls) == 1)
    second = await make_schedule(db, nightly.org_id, name="second", cron=f"{clock.now() // MINUTE_MS % 60 + 1} * * * *")
    due(clock)
    await control.tick()
    clock.advance(6 * MINUTE_MS)

    await control.recover()

    found = await read_schedule(db, second)
    assert (found.total_runs, found.last_status, found.last_error) == (1, "error", NO_PLACE)
    release.set()
    await control.finish()
    await control.die()


def test_places_are_given_to_organizations_in_turn() -> None:
    places = Places(3)
    for _ in range(3):
        places.take(9)
    for org_id, activation_id in ((1, "a"), (1, "b"), (2, "c"), (2, "d"), (1, "e"), (1, "f")):
        places.wait(org_id, activation_id)
    places.discard("e")
    order = []

    places.release(9)
    while following := places.next():
        order.append(following)
        places.take(following[0])
        places.release(following[0])

    assert order == [(1, "a"), (2, "c"), (1, "b"), (2, "d"), (1, "f")]
    assert len(places) == 0


async def test_open_runs_of_one_organization_do_not_hide_those_of_others(
    db: Database, clock: ManualClock, nightly: Schedule
) -> None:
    other = await make_org(db)
    await make_function(db, other.id)
    theirs = await make_schedule(db, other.id)

    def begin(tx: Any) -> None:
        for number in range(5):
            service.begin_run(tx, nightly.org_id, nightly.id, f"{number:032x}", tx.now)
        service.begin_run(tx, other.id, theirs.id, f"{5:032x}", tx.now)

    await db.write(begin)

    runs = await db.read(lambda tx: service.open_runs(tx, clock.now(), 2))

    assert [run.org_id for run in runs] == [nightly.org_id, other.id]


async def test_an_organization_has_a_bounded_number_of_schedules(
    app: App, db: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(service, "MAX_OF_ORGANIZATION", 2)
    client, org_id = await make_client(app.asgi, db)
    await make_function(db, org_id)
    body = {"function": "hello", "cronSchedule": "@daily"}

    made = [await client.post("/v1/scheduled-functions", json={"name": f"s{number}", **body}) for number in range(3)]

    assert [each.status for each in made] == [200, 200, 409]
    assert made[2].error["message"] == "An organization has at most 2 scheduled functions"


@pytest.mark.parametrize("field", ["params", "payload"])
async def test_params_have_a_bounded_size(app: App, db: Database, field: str) -> None:
    client, org_id = await make_client(app.asgi, db)
    await make_function(db, org_id)
    body = {"name": "nightly", "function": "hello", "cronSchedule": "@daily"}
    most, more = ({"a": "x" * (MAX_PARAMS_BYTES - len('{"a":""}') + extra)} for extra in (0, 1))

    refused = await client.post("/v1/scheduled-functions", json={**body, field: more})
    made = await client.post("/v1/scheduled-functions", json={**body, field: most})
    changed = await client.patch(f"/v1/scheduled-functions/{made.data['id']}", json={field: more})

    assert (refused.status, made.status, changed.status) == (400, 200, 400)
    assert list(refused.error["fields"]) == list(changed.error["fields"]) == [field]
