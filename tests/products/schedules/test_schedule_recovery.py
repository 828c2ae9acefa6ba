"""A run is sent and counted once, whichever process dies at any time."""

from __future__ import annotations

import asyncio

import pytest
from tests.builders import make_org
from tests.products.functions.edge_stand_in import EdgeStandIn, Fate
from tests.products.schedules.support import (
    Control,
    due,
    make_function,
    make_record,
    make_schedule,
    once,
    open_runs,
    read_schedule,
    until,
)

from moorage.core.audit.service import THE_PLATFORM
from moorage.core.db.store import Database
from moorage.core.kit.clock import HOUR_MS, MINUTE_MS, SECOND_MS, ManualClock
from moorage.products.schedules import jobs, service, tables
from moorage.products.schedules.runner import CUT_SHORT, NEVER_SENT, STRANDED
from moorage.products.schedules.tables import Schedule
from moorage.runtime.edge import spool

pytestmark = pytest.mark.anyio


async def test_a_process_that_dies_between_the_tick_and_the_call_leaves_a_run_for_the_next(
    db: Database, clock: ManualClock, edge: EdgeStandIn, nightly: Schedule
) -> None:
    dead = Control(db, most=0)
    due(clock)
    await dead.tick()
    await dead.die()
    clock.advance(10 * SECOND_MS)

    control = Control(db)
    await control.recover()
    await control.tick_and_finish()

    found = await read_schedule(db, nightly)
    assert list(edge.ran.values()) == [1]
    assert (found.total_runs, found.last_status) == (1, "success")
    await control.die()


async def test_a_gateway_that_dies_before_the_start_is_sent_the_run_again_under_the_same_id(
    db: Database, clock: ManualClock, control: Control, edge: EdgeStandIn, nightly: Schedule
) -> None:
    edge.fate = once(Fate(starts=False))
    due(clock)

    await control.tick_and_finish()

    assert len(edge.calls) == 2
    assert list(edge.ran.values()) == [1]
    assert (await read_schedule(db, nightly)).total_runs == 1


async def test_a_gateway_that_dies_after_the_end_has_the_run_counted_and_not_sent_again(
    db: Database, clock: ManualClock, control: Control, edge: EdgeStandIn, nightly: Schedule
) -> None:
    edge.fate = once(Fate(answers=False))
    due(clock)

    await control.tick_and_finish()

    found = await read_schedule(db, nightly)
    assert list(edge.ran.values()) == [1]
    assert (found.total_runs, found.last_status) == (1, "success")


async def test_a_run_cut_short_by_a_restart_is_an_error_after_its_timeout_and_is_never_sent_again(
    db: Database, clock: ManualClock, control: Control, edge: EdgeStandIn, nightly: Schedule
) -> None:
    edge.fate = once(Fate(ends=False))
    due(clock)
    started = clock.now()
    await control.tick()
    await until(lambda: edge.calls)
    clock.advance(89 * SECOND_MS)
    for _ in range(3):
        await control.recover()
        await control.recorder.catch_up()
        await asyncio.sleep(0.03)
    early = await read_schedule(db, nightly)

    clock.advance(2 * SECOND_MS)
    await control.finish()

    found = await read_schedule(db, nightly)
    assert early.total_runs == 0
    assert list(edge.ran.values()) == [1]
    assert (found.total_runs, found.last_status, found.last_error) == (1, "error", CUT_SHORT)
    assert found.last_run_at == started


async def test_a_run_whose_gateway_restarts_is_an_error_at_once_and_is_never_sent_again(
    db: Database, clock: ManualClock, control: Control, edge: EdgeStandIn, nightly: Schedule
) -> None:
    edge.fate = once(Fate(ends=False))
    due(clock)
    started = clock.now()
    await control.tick()
    await until(lambda: edge.calls)
    await edge.stop()
    clock.advance(SECOND_MS)

    await edge.start()
    await control.finish()

    found = await read_schedule(db, nightly)
    assert list(edge.ran.values()) == [1]
    assert (found.total_runs, found.last_status, found.last_error) == (1, "error", CUT_SHORT)
    assert found.last_run_at == started


async def everything_restarted(db: Database, clock: ManualClock, edge: EdgeStandIn) -> Control:
    """Send a run, restart the edge and the control process, and return the latter."""
    dead = Control(db)
    due(clock)
    await dead.tick()
    await until(lambda: edge.calls)
    await dead.die()
    await edge.stop()
    clock.advance(10 * SECOND_MS)
    await edge.start()
    return Control(db)


async def test_after_a_restart_of_everything_a_run_that_had_started_is_an_error_at_once(
    db: Database, clock: ManualClock, edge: EdgeStandIn, nightly: Schedule
) -> None:
    edge.fate = once(Fate(ends=False))
    control = await everything_restarted(db, clock, edge)

    await control.recover()
    await control.finish()

    found = await read_schedule(db, nightly)
    assert list(edge.ran.values()) == [1]
    assert (found.total_runs, found.last_error) == (1, CUT_SHORT)
    await control.die()


async def test_an_end_that_a_gateway_wrote_before_it_restarted_counts(
    db: Database, clock: ManualClock, edge: EdgeStandIn, nightly: Schedule
) -> None:
    edge.fate = once(Fate(answers=False))
    control = await everything_restarted(db, clock, edge)

    await control.recover()
    await control.finish()

    found = await read_schedule(db, nightly)
    assert list(edge.ran.values()) == [1]
    assert (found.total_runs, found.last_status) == (1, "success")
    await control.die()


async def test_a_run_that_goes_on_while_the_control_process_restarts_is_counted_when_it_ends(
    db: Database, clock: ManualClock, edge: EdgeStandIn, nightly: Schedule
) -> None:
    release = asyncio.Event()
    edge.fate = lambda call: Fate(waits=release)
    dead = Control(db)
    due(clock)
    await dead.tick()
    await until(lambda: edge.calls)
    await dead.die()
    clock.advance(10 * SECOND_MS)

    control = Control(db)
    await control.recover()
    await asyncio.sleep(0.05)
    before = await read_schedule(db, nightly)
    release.set()
    await control.finish()

    assert before.total_runs == 0
    assert list(edge.ran.values()) == [1]
    assert (await read_schedule(db, nightly)).total_runs == 1
    await control.die()


async def test_an_end_that_comes_after_a_run_was_given_up_does_not_count_again(
    db: Database, clock: ManualClock, control: Control, edge: EdgeStandIn, nightly: Schedule
) -> None:
    edge.fate = once(Fate(ends=False))
    due(clock)
    await control.tick()
    await until(lambda: edge.calls)
    clock.advance(2 * MINUTE_MS - 1)
    await control.finish()
    activation = edge.calls[0]["activation"]
    late = make_record(spool.END, nightly, activation, clock.now())

    await db.write(lambda tx: jobs.on_scheduled(tx, [], [late, late]))

    found = await read_schedule(db, nightly)
    assert (found.total_runs, found.last_error) == (1, CUT_SHORT)


async def test_a_run_that_was_never_sent_within_five_minutes_is_an_error(
    db: Database, clock: ManualClock, edge: EdgeStandIn, nightly: Schedule
) -> None:
    dead = Control(db, most=0)
    due(clock)
    was_due = clock.now()
    await dead.tick()
    await dead.die()
    clock.advance(5 * MINUTE_MS)

    control = Control(db)
    await control.recover()
    await control.finish()

    found = await read_schedule(db, nightly)
    assert edge.calls == []
    assert (found.total_runs, found.last_status, found.last_error) == (1, "error", NEVER_SENT)
    assert found.last_run_at == was_due
    await control.die()


@pytest.mark.parametrize("status", [429, 404])
async def test_a_run_that_is_refused_at_first_is_sent_until_it_is_taken(
    db: Database, clock: ManualClock, control: Control, edge: EdgeStandIn, nightly: Schedule, status: int
) -> None:
    edge.fate = lambda call: Fate(refusal=status) if len(edge.calls) < 4 else Fate()
    due(clock)

    await control.tick_and_finish()

    assert len(edge.calls) == 4
    assert (await read_schedule(db, nightly)).total_runs == 1


@pytest.mark.parametrize(("status", "patience_ms"), [(429, 5 * MINUTE_MS), (404, 10 * SECOND_MS)])
async def test_a_run_that_is_refused_for_too_long_is_an_error_with_the_reason(
    db: Database,
    clock: ManualClock,
    control: Control,
    edge: EdgeStandIn,
    nightly: Schedule,
    status: int,
    patience_ms: int,
) -> None:
    edge.fate = lambda call: Fate(refusal=status)
    due(clock)
    await control.tick()
    await until(lambda: len(edge.calls) > 2)
    before = await read_schedule(db, nightly)

    clock.advance(patience_ms)
    await control.finish()

    found = await read_schedule(db, nightly)
    assert before.total_runs == 0
    assert (found.total_runs, found.last_status) == (1, "error")
    assert found.last_error is not None
    assert ("queue is full" in found.last_error) is (status == 429)


async def test_a_gateway_that_is_away_for_a_while_gets_the_run_when_it_is_back(
    db: Database, clock: ManualClock, control: Control, edge: EdgeStandIn, nightly: Schedule
) -> None:
    await edge.stop()
    due(clock)
    await control.tick()
    await asyncio.sleep(0.1)

    await edge.start()
    await control.finish()

    assert list(edge.ran.values()) == [1]
    assert (await read_schedule(db, nightly)).total_runs == 1


async def test_a_call_that_the_gateway_knows_already_is_waited_for(
    db: Database, clock: ManualClock, control: Control, edge: EdgeStandIn, nightly: Schedule
) -> None:
    edge.fate = lambda call: Fate(refusal=409)
    due(clock)
    await control.tick()
    await until(lambda: len(edge.calls) > 2)
    activation = edge.calls[0]["activation"]

    end = make_record(spool.END, nightly, activation, clock.now())
    await db.write(lambda tx: jobs.on_scheduled(tx, [], [end]))
    await control.finish()

    assert edge.ran == {}
    assert (await read_schedule(db, nightly)).total_runs == 1


async def test_a_run_whose_schedule_is_gone_is_cleared_away(db: Database, clock: ManualClock, control: Control) -> None:
    org = await make_org(db)
    await make_function(db, org.id)
    schedule = await make_schedule(db, org.id)
    # A manual run concurrent with a deletion may leave this row.
    await db.write(lambda tx: service.delete(tx, org.id, THE_PLATFORM, schedule.id))
    await db.write(
        lambda tx: tx.run(tables.ADD_RUN, org_id=org.id, schedule_id=schedule.id, activation_id="f" * 32, due_at=1)
    )

    await control.recover()

    assert await open_runs(db) == []


async def test_a_run_of_another_machine_is_left_to_it_until_it_is_stranded(
    db: Database, clock: ManualClock, control: Control, edge: EdgeStandIn, nightly: Schedule
) -> None:
    activation = "f" * 32
    await db.write(lambda tx: service.begin_run(tx, nightly.org_id, nightly.id, activation, tx.now))
    clock.advance(MINUTE_MS)
    await control.recover()
    await control.finish()
    soon = await read_schedule(db, nightly)

    clock.advance(HOUR_MS)
    await control.recover()
    await control.finish()

    found = await read_schedule(db, nightly)
    if db.dialect == "postgresql":
        assert (soon.total_runs, edge.calls) == (0, [])
        assert (found.total_runs, found.last_error) == (1, STRANDED)
    else:
        # An SQLite database belongs to one machine, even after a move to another.
        assert (soon.total_runs, len(edge.calls)) == (1, 1)
