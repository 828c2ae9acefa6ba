"""The prober when its database, network or process fails."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
from tests.products.monitors.prober_support import GOOD, REFUSED, UNKNOWN, WRONG, Faulty, Org, Stage, settle, until
from tests.products.monitors.support import make_monitor, read_monitor

from moorage.core.db.store import Database
from moorage.core.kit.clock import SECOND_MS
from moorage.products.monitors.probing import recording, writing
from moorage.products.monitors.probing.beats import Outcome
from moorage.products.monitors.probing.prober import Prober
from moorage.products.monitors.tables import Monitor

pytestmark = pytest.mark.anyio


@pytest.fixture
def faulty(db: Database) -> Faulty:
    return Faulty(db)


async def make(stage: Stage, org: Org, **fields: Any) -> Monitor:
    return await make_monitor(stage.db, org, **{"interval_s": 30, **fields})


def everything(_: Any) -> bool:
    return True


async def test_what_is_found_while_the_store_is_away_is_written_when_it_is_back(
    org: Org, stage: Stage, faulty: Faulty
) -> None:
    monitor = await make(stage, org)
    prober = stage.prober(owns_store=True, db=faulty)
    await stage.refresh()
    faulty.fails_at = everything
    await stage.pass_s(95, looks=False)
    checked, written = stage.targets.times(monitor.id), len(await stage.beats(monitor))

    faulty.fails_at = lambda _: False
    await stage.refresh()

    assert written == 1
    assert checked >= 3
    assert len(await stage.beats(monitor)) == checked
    assert prober.lag().missed == 0


async def test_a_look_that_fails_costs_nothing_but_time(org: Org, stage: Stage, faulty: Faulty) -> None:
    monitor = await make(stage, org)
    prober = stage.prober(db=faulty)
    faulty.fails_at = everything
    with pytest.raises(OSError, match="away"):
        await prober.refresh()

    faulty.fails_at = lambda _: False
    await stage.refresh()

    assert len(await stage.beats(monitor)) == 1


async def test_who_cannot_renew_begins_no_check_once_others_may_have_taken_over(
    org: Org, stage: Stage, faulty: Faulty
) -> None:
    monitors = [await make(stage, org) for _ in range(10)]
    stage.prober(db=faulty)
    await stage.refresh()
    faulty.fails_at = everything
    await stage.pass_s(9, looks=False)
    within = len(stage.targets.seen)

    await stage.pass_s(60, looks=False)
    past = len(stage.targets.seen)
    faulty.fails_at = lambda _: False
    await stage.pass_s(15)

    assert past == within
    assert len(stage.targets.seen) >= past + len(monitors)


async def test_only_so_much_is_kept_and_the_oldest_goes_first(
    org: Org, stage: Stage, faulty: Faulty, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writing, "MAX_BUFFERED", 2)
    monitor = await make(stage, org)
    stage.prober(owns_store=True, db=faulty)
    await stage.refresh()
    faulty.fails_at = everything
    await stage.pass_s(155, looks=False)
    checked = stage.targets.times(monitor.id)

    faulty.fails_at = lambda _: False
    await stage.step()

    beats = await stage.beats(monitor)
    assert stage.dropped("no room") == checked - 3
    assert len(beats) == 3
    assert stage.clock.now() - beats[1].slot < 60 * SECOND_MS


def _records(unit: Any) -> bool:
    return unit.func is recording.record


async def test_a_result_that_the_store_refuses_holds_up_no_other(org: Org, stage: Stage, faulty: Faulty) -> None:
    monitors = [await make(stage, org) for _ in range(20)]
    refused = monitors[13]
    stage.prober(db=faulty)
    faulty.fails_at = lambda unit: (
        _records(unit) and any(beat.monitor_id == refused.id for beat in unit.keywords["beats"])
    )

    await stage.refresh()

    assert [len(await stage.beats(monitor)) for monitor in monitors] == [1] * 13 + [0] + [1] * 6
    assert stage.dropped("refused") == 1


async def test_a_batch_of_which_nobody_knows_whether_it_arrived_counts_once(
    org: Org, stage: Stage, db: Database
) -> None:
    monitor = await make(stage, org)
    stage.prober(db=_Forgetful(db))

    await stage.refresh()
    await stage.step()

    assert len(await stage.beats(monitor)) == 1


class _Forgetful(Faulty):
    """Commits a write and then reports a failure, once."""

    has_failed = False

    async def write(self, unit: Any) -> Any:
        result = await super().write(unit)
        if _records(unit) and not self.has_failed:
            self.has_failed = True
            raise OSError("the connection was lost")
        return result


class Canary:
    def __init__(self, answer: bool | Exception) -> None:
        self.answer = answer
        self.asked = 0

    async def __call__(self) -> bool:
        self.asked += 1
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer


@pytest.mark.parametrize("outcome", [REFUSED, UNKNOWN])
async def test_a_target_that_cannot_be_reached_is_not_down_while_the_canary_cannot_be_either(
    org: Org, stage: Stage, outcome: Outcome
) -> None:
    monitor = await make(stage, org)
    canary = Canary(False)
    stage.prober(canary=canary)
    stage.targets.outcomes[monitor.id] = outcome
    await stage.refresh()
    before = await stage.beats(monitor)

    canary.answer = True
    await stage.pass_s(45)

    assert before == []
    assert stage.dropped("canary") == 1
    assert {beat.status for beat in await stage.beats(monitor)} == {"DOWN"}
    assert (await stage.state(monitor)).missed == 0


async def test_a_target_that_answers_is_judged_whatever_the_canary_says(org: Org, stage: Stage) -> None:
    good, wrong = await make(stage, org), await make(stage, org)
    canary = Canary(False)
    stage.prober(canary=canary)
    stage.targets.outcomes = {good.id: GOOD, wrong.id: WRONG}

    await stage.refresh()

    assert [beat.status for beat in await stage.beats(good)] == ["UP"]
    assert [beat.status for beat in await stage.beats(wrong)] == ["DOWN"]
    assert canary.asked == 0


async def test_one_answer_of_the_canary_does_for_a_few_seconds(org: Org, stage: Stage) -> None:
    monitors = [await make(stage, org) for _ in range(20)]
    canary = Canary(True)
    stage.prober(canary=canary)
    stage.targets.outcomes = {monitor.id: REFUSED for monitor in monitors}

    await stage.refresh()
    at_once = canary.asked
    await stage.pass_s(45)

    assert at_once == 1
    assert 1 < canary.asked < 10


async def test_a_canary_that_is_broken_itself_hides_nothing(org: Org, stage: Stage) -> None:
    monitor = await make(stage, org)
    stage.prober(canary=Canary(RuntimeError("a mistake of ours")))
    stage.targets.outcomes[monitor.id] = REFUSED

    await stage.refresh()

    assert [beat.status for beat in await stage.beats(monitor)] == ["DOWN"]


async def test_who_stops_writes_what_it_found_and_calls_off_what_runs(org: Org, stage: Stage) -> None:
    found, running = await make(stage, org), await make(stage, org)
    prober = stage.prober()
    stage.targets.hold(running.id)
    await prober.refresh()
    prober.start_due()
    await settle()

    await prober.stop()
    await prober.stop()

    assert len(await stage.beats(found)) == 1
    assert stage.targets.called_off == [running.id]
    assert {(await read_monitor(stage.db, org, monitor.id)).prober for monitor in (found, running)} == {None}
    assert (prober.lag().monitors, prober.lag().in_flight) == (0, 0)


async def test_who_stopped_takes_and_begins_nothing_more(org: Org, stage: Stage) -> None:
    monitor = await make(stage, org)
    prober = stage.prober()
    await prober.stop()

    await stage.refresh()

    assert stage.targets.seen == []
    assert (await read_monitor(stage.db, org, monitor.id)).prober is None
    assert not prober.is_alive()


async def test_a_store_that_is_away_does_not_keep_one_from_stopping(org: Org, stage: Stage, faulty: Faulty) -> None:
    await make(stage, org)
    prober = stage.prober(db=faulty)
    await stage.refresh()
    faulty.fails_at = everything

    await prober.stop()

    assert prober.lag().monitors == 0


async def test_what_one_gives_back_was_written_before(org: Org, stage: Stage) -> None:
    monitors = [await make(stage, org) for _ in range(12)]
    first = stage.prober()
    await first.refresh()
    first.start_due()
    await settle()
    await stage.prober().refresh()

    await first.refresh()

    assert first.lag().monitors == 6
    assert [len(await stage.beats(monitor)) for monitor in monitors] == [1] * 12


# All loops in real time; only the clock of the database stands still.


@pytest.fixture
async def prober(stage: Stage) -> AsyncIterator[Prober]:
    running = Prober(stage.db, stage.targets, stage.telemetry, owns_store=False)
    task = asyncio.create_task(running.run())
    yield running
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    await running.stop()


async def test_a_prober_that_runs_checks_what_is_new_once_it_is_woken(org: Org, stage: Stage, prober: Prober) -> None:
    await until(prober.is_alive)
    monitor = await make(stage, org)

    prober.wake()
    await until(lambda: stage.targets.times(monitor.id) == 1)
    while not (beats := await stage.beats(monitor)):
        await asyncio.sleep(0.01)

    assert [beat.slot for beat in beats] == [monitor.from_at]


async def test_a_prober_that_runs_goes_on_from_slot_to_slot(org: Org, stage: Stage, prober: Prober) -> None:
    monitor = await make(stage, org)
    prober.wake()
    await until(lambda: stage.targets.times(monitor.id) == 1)

    while len(beats := await stage.beats(monitor)) < 2:
        stage.clock.advance(SECOND_MS)
        await asyncio.sleep(0.05)

    assert len({beat.slot for beat in beats}) == len(beats)


async def test_waiting_checks_begin_as_soon_as_there_is_room(org: Org, stage: Stage) -> None:
    monitors = [await make(stage, org) for _ in range(5)]
    prober = Prober(stage.db, stage.targets, stage.telemetry, owns_store=True, most=1)
    task = asyncio.create_task(prober.run())

    await until(lambda: len(stage.targets.seen) == 5)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    await prober.stop()

    assert [len(await stage.beats(monitor)) for monitor in monitors] == [1] * 5


async def test_who_is_cancelled_and_stopped_after_that_leaves_in_order_too(org: Org, stage: Stage) -> None:
    monitor = await make(stage, org)
    prober = Prober(stage.db, stage.targets, stage.telemetry, owns_store=True)
    task = asyncio.create_task(prober.run())
    await until(lambda: bool(stage.targets.seen))

    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    await prober.stop()

    assert len(await stage.beats(monitor)) == 1
    assert (await read_monitor(stage.db, org, monitor.id)).prober is None


async def test_a_prober_outlives_a_store_that_fails_for_a_while(org: Org, stage: Stage, faulty: Faulty) -> None:
    monitor = await make(stage, org)
    faulty.fails_at = everything
    prober = Prober(faulty, stage.targets, stage.telemetry, owns_store=True)
    task = asyncio.create_task(prober.run())
    await until(lambda: prober._log_limit._logged_at != {})

    faulty.fails_at = lambda _: False
    await until(lambda: stage.targets.times(monitor.id) == 1)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    await prober.stop()

    assert len(await stage.beats(monitor)) == 1
