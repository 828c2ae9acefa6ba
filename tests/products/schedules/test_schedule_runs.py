"""Scheduled runs, by ticks and by request."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from tests.products.functions.edge_stand_in import EdgeStandIn, Fate
from tests.products.schedules.support import Control, due, make_record, make_schedule, open_runs, read_schedule, until

from moorage.core.audit.service import THE_PLATFORM
from moorage.core.db.store import Database
from moorage.core.kit.clock import HOUR_MS, MINUTE_MS, SECOND_MS, ManualClock
from moorage.errors import RateLimited
from moorage.products.functions.edge_client import EdgeLost, EdgeUnreachable
from moorage.products.schedules import jobs, service
from moorage.products.schedules.service import Changes
from moorage.products.schedules.tables import Schedule
from moorage.runtime.edge import spool

pytestmark = pytest.mark.anyio


async def test_a_tick_runs_the_function_with_its_params_and_is_counted(
    db: Database, clock: ManualClock, control: Control, edge: EdgeStandIn, nightly: Schedule
) -> None:
    due(clock)

    await control.tick_and_finish()

    found = await read_schedule(db, nightly)
    call = edge.calls[0]
    assert (call["function"], call["door"], call["schedule"]) == (nightly.function_id, "schedule", nightly.id)
    assert call["params"] == {"n": 1}
    assert (found.total_runs, found.last_status, found.last_error) == (1, "success", None)
    assert found.last_run_at == clock.now()
    assert found.next_run_at == clock.now() + MINUTE_MS
    assert await open_runs(db) == []


async def test_a_function_that_fails_is_counted_with_its_error(
    db: Database, clock: ManualClock, control: Control, edge: EdgeStandIn, nightly: Schedule
) -> None:
    edge.fate = lambda call: Fate(error="it broke")
    due(clock)

    await control.tick_and_finish()

    found = await read_schedule(db, nightly)
    assert (found.total_runs, found.last_status, found.last_error) == (1, "error", "it broke")


async def test_a_success_clears_the_error_of_the_run_before(
    db: Database, clock: ManualClock, control: Control, edge: EdgeStandIn, nightly: Schedule
) -> None:
    edge.fate = lambda call: Fate(error="it broke")
    due(clock)
    await control.tick_and_finish()
    edge.fate = lambda call: Fate()
    due(clock)

    await control.tick_and_finish()

    found = await read_schedule(db, nightly)
    assert (found.total_runs, found.last_status, found.last_error) == (2, "success", None)


async def test_after_an_outage_the_latest_tick_runs_once(
    db: Database, clock: ManualClock, control: Control, edge: EdgeStandIn, nightly: Schedule
) -> None:
    clock.advance(4 * MINUTE_MS + 1)

    await control.tick_and_finish()
    await control.tick_and_finish()

    assert len(edge.calls) == 1
    assert (await read_schedule(db, nightly)).total_runs == 1


async def test_a_paused_schedule_does_not_run_and_starts_from_now_when_resumed(
    db: Database, clock: ManualClock, control: Control, edge: EdgeStandIn, nightly: Schedule
) -> None:
    await db.write(lambda tx: service.update(tx, nightly.org_id, THE_PLATFORM, nightly.id, Changes(enabled=False)))
    clock.advance(3 * MINUTE_MS)
    await control.tick_and_finish()
    paused = await read_schedule(db, nightly)

    await db.write(lambda tx: service.update(tx, nightly.org_id, THE_PLATFORM, nightly.id, Changes(enabled=True)))
    await control.tick_and_finish()
    resumed = await read_schedule(db, nightly)

    assert edge.calls == []
    assert paused.next_run_at is None
    assert resumed.next_run_at == clock.now() + MINUTE_MS


async def test_an_edit_counts_from_now_but_new_params_keep_the_next_tick(
    db: Database, clock: ManualClock, nightly: Schedule
) -> None:
    clock.advance(10 * SECOND_MS)

    async def change(changes: Changes) -> Schedule:
        return await db.write(lambda tx: service.update(tx, nightly.org_id, THE_PLATFORM, nightly.id, changes))

    kept = await change(Changes(params={"n": 2}, cron="* * * * *", timezone="UTC", enabled=True))
    moved = await change(Changes(cron="0 * * * *"))
    zoned = await change(Changes(cron="0 9 * * *", timezone="Europe/Berlin"))

    hour = clock.now() - clock.now() % HOUR_MS
    assert kept.next_run_at == nightly.next_run_at
    assert kept.params == '{"n":2}'
    assert moved.next_run_at == hour + HOUR_MS
    assert zoned.next_run_at == hour + 8 * HOUR_MS


async def test_a_long_run_does_not_hold_back_the_next(
    db: Database, clock: ManualClock, control: Control, edge: EdgeStandIn, nightly: Schedule
) -> None:
    release = asyncio.Event()
    edge.fate = lambda call: Fate(waits=release) if len(edge.calls) == 1 else Fate()
    due(clock)
    await control.tick()
    await until(lambda: len(edge.calls) == 1)
    due(clock)

    await control.tick()
    await until(lambda: len(edge.calls) == 2)
    while (await read_schedule(db, nightly)).total_runs != 1:
        await control.recorder.catch_up()
    release.set()
    await control.finish()

    found = await read_schedule(db, nightly)
    assert found.total_runs == 2
    # The shown run is the one that started last, although the other ended later.
    assert found.last_run_at == clock.now()


async def test_more_runs_than_may_be_in_flight_wait_for_their_turn(
    db: Database, clock: ManualClock, edge: EdgeStandIn, nightly: Schedule
) -> None:
    control = Control(db, most=2)
    for number in range(9):
        await make_schedule(db, nightly.org_id, name=f"other-{number}")
    due(clock)

    await control.tick_and_finish()

    assert len(edge.ran) == 10
    assert set(edge.ran.values()) == {1}
    assert await open_runs(db) == []
    await control.die()


async def test_deleting_a_schedule_takes_its_runs_along(
    db: Database, clock: ManualClock, control: Control, edge: EdgeStandIn, nightly: Schedule
) -> None:
    edge.fate = lambda call: Fate(refusal=429)
    due(clock)
    await control.tick()
    await until(lambda: edge.calls)

    await db.write(lambda tx: service.delete(tx, nightly.org_id, THE_PLATFORM, nightly.id))
    await control.finish()
    due(clock)
    fired = await control.tick()

    assert fired == 0
    assert await open_runs(db) == []


async def test_asking_for_a_run_counts_it_at_once_and_leaves_the_next_tick(
    db: Database, clock: ManualClock, control: Control, edge: EdgeStandIn, nightly: Schedule
) -> None:
    clock.advance(7 * SECOND_MS)

    outcome = await control.runner.run_now(nightly.org_id, nightly.id)

    found = await read_schedule(db, nightly)
    assert (outcome.status, bytes(outcome.result)) == ("success", b'"done"')
    assert edge.calls[0]["door"] == "schedule"
    assert (found.total_runs, found.last_run_at, found.last_status) == (1, clock.now(), "success")
    assert found.next_run_at == nightly.next_run_at


async def test_a_tick_that_was_answered_and_left_no_record_is_counted_by_its_answer(
    db: Database, clock: ManualClock, control: Control, edge: EdgeStandIn, nightly: Schedule
) -> None:
    edge.spool = None
    edge.fate = lambda call: Fate(error="it broke")
    due(clock)
    await control.tick_and_finish()

    await control.recover()
    await control.recover()
    await control.finish()

    found = await read_schedule(db, nightly)
    assert len(edge.calls) == 1
    assert (found.total_runs, found.last_status, found.last_error) == (1, "error", "it broke")


async def test_a_run_that_was_asked_for_and_left_no_record_is_counted_by_its_answer(
    db: Database, clock: ManualClock, control: Control, edge: EdgeStandIn, nightly: Schedule
) -> None:
    edge.spool = None
    edge.fate = lambda call: Fate(error="it broke")

    await control.runner.run_now(nightly.org_id, nightly.id)

    found = await read_schedule(db, nightly)
    assert (found.total_runs, found.last_status, found.last_error) == (1, "error", "it broke")


async def test_a_run_that_was_asked_for_and_refused_does_not_count(
    db: Database, control: Control, edge: EdgeStandIn, nightly: Schedule
) -> None:
    edge.fate = lambda call: Fate(refusal=429)

    with pytest.raises(RateLimited):
        await control.runner.run_now(nightly.org_id, nightly.id)

    assert await open_runs(db) == []
    assert (await read_schedule(db, nightly)).total_runs == 0


@pytest.mark.usefixtures("impatient")
async def test_a_run_that_was_asked_for_while_the_gateway_is_away_does_not_count(
    db: Database, control: Control, edge: EdgeStandIn, nightly: Schedule
) -> None:
    await edge.stop()

    with pytest.raises(EdgeUnreachable):
        await control.runner.run_now(nightly.org_id, nightly.id)

    assert await open_runs(db) == []
    assert (await read_schedule(db, nightly)).total_runs == 0


@pytest.mark.parametrize(
    ("fate", "counted"), [(Fate(starts=False), 0), (Fate(ends=False), 1), (Fate(answers=False), 1)]
)
async def test_a_run_that_was_asked_for_and_whose_answer_is_lost_is_not_sent_again(
    db: Database,
    clock: ManualClock,
    control: Control,
    edge: EdgeStandIn,
    nightly: Schedule,
    fate: Fate,
    counted: int,
) -> None:
    edge.fate = lambda call: fate

    with pytest.raises(EdgeLost):
        await control.runner.run_now(nightly.org_id, nightly.id)
    clock.advance(2 * MINUTE_MS)
    await control.finish()

    assert len(edge.calls) == 1
    assert (await read_schedule(db, nightly)).total_runs == counted
    assert await open_runs(db) == []


async def test_totals_are_true_when_processes_tick_run_and_recover_at_the_same_time(
    db: Database, clock: ManualClock, edge: EdgeStandIn, nightly: Schedule
) -> None:
    processes = [Control(db), Control(db)]
    others = [await make_schedule(db, nightly.org_id, name=f"other-{number}") for number in range(5)]
    edge.fate = lambda call: Fate(error="it broke") if len(edge.calls) % 3 == 0 else Fate()

    for _ in range(4):
        due(clock)
        await asyncio.gather(
            *(process.tick() for process in processes),
            *(process.runner.run_now(nightly.org_id, nightly.id) for process in processes),
        )
    for process in processes:
        await process.finish()

    totals = [(await read_schedule(db, schedule)).total_runs for schedule in (nightly, *others)]
    assert totals == [12, 4, 4, 4, 4, 4]
    assert sum(edge.ran.values()) == len(edge.ran) == 32
    assert await open_runs(db) == []
    for process in processes:
        await process.die()


async def test_records_may_be_taken_in_any_number_at_once(db: Database, nightly: Schedule) -> None:
    activations = [f"{number:032x}" for number in range(50)]

    def begin_all(tx: Any) -> None:
        for activation in activations:
            service.begin_run(tx, nightly.org_id, nightly.id, activation, tx.now)

    await db.write(begin_all)
    starts = [make_record(spool.START, nightly, each, 1_000 + at) for at, each in enumerate(activations)]
    ends = [make_record(spool.END, nightly, each, 1_000 + at) for at, each in enumerate(activations)]

    await db.write(lambda tx: jobs.on_scheduled(tx, starts, list(reversed(ends))))

    found = await read_schedule(db, nightly)
    assert (found.total_runs, found.last_run_at) == (50, 1_049)
