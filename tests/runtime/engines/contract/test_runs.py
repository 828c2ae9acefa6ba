"""Contract of an engine: one-off runs and their results."""

from __future__ import annotations

import pytest
from tests.runtime.engines.contract.conftest import LOG, Lab

from moorage.runtime.engines.ports import ReplicaState

pytestmark = pytest.mark.anyio


async def ended(lab: Lab, key: str = "c1") -> ReplicaState:
    return await lab.until(key, lambda found: found.phase == "stopped")


async def test_a_run_ends_with_its_exit_code_and_its_output(lab: Lab) -> None:
    await lab.start(lab.once("c1", "exit", "0"))

    state = await ended(lab)

    assert (state.exit_code, state.reason, state.is_once) == (0, None, True)
    assert {"out", "err"} <= set(await lab.lines())


async def test_a_run_that_fails_has_a_reason(lab: Lab) -> None:
    await lab.start(lab.once("c1", "exit", "3"))

    state = await ended(lab)

    assert (state.exit_code, state.reason) == (3, "it ended with exit code 3")


async def test_a_run_is_told_of_no_port(lab: Lab) -> None:
    await lab.start(lab.once())

    await ended(lab)

    assert "port=" in await lab.lines()


async def test_a_run_is_not_started_again(lab: Lab) -> None:
    await lab.start(lab.once("c1", "exit", "3"))

    state = await ended(lab)

    assert state.restarts == 0
    assert (await lab.lines()).count("out") == 1


async def test_a_run_that_takes_too_long_is_ended(lab: Lab) -> None:
    await lab.start(lab.once("c1", "sleep", timeout_s=1))

    state = await ended(lab)

    assert state.reason == "it took longer than 1 second"


async def test_the_end_of_a_run_stays_known_until_it_is_stopped(lab: Lab) -> None:
    await lab.start(lab.once())
    await ended(lab)

    before = lab.find("c1")
    await lab.engine.workloads.stop("c1", 1.0)

    assert before is not None
    assert lab.find("c1") is None


async def test_the_log_of_a_run_has_its_end_once_also_after_the_control_process_is_replaced(lab: Lab) -> None:
    await lab.start(lab.once("c1", "exit", "3"))
    await ended(lab)
    before = await lab.lines(LOG, "system")

    await lab.restart()
    await ended(lab)

    assert await lab.lines(LOG, "system") == before


async def test_a_run_that_is_stopped_says_so_in_its_log(lab: Lab) -> None:
    await lab.start(lab.once("c1", "sleep"))
    await lab.printed("up")

    await lab.engine.workloads.stop("c1", 10.0)

    assert lab.find("c1") is None
    assert "ended: it was stopped" in await lab.lines(LOG, "system")


async def test_listeners_get_the_key_of_a_run_that_ends(lab: Lab) -> None:
    changed = list[str]()
    lab.engine.workloads.listen(changed.append)

    await lab.start(lab.once())
    await ended(lab)

    await lab.wait_for(lambda: "c1" in changed)


async def test_a_run_goes_on_while_the_control_process_is_replaced(lab: Lab) -> None:
    await lab.start(lab.once("c1", "sleep"))
    await lab.printed("up")

    await lab.restart()

    state = lab.find("c1")
    assert state is not None
    assert state.phase == "running"


async def test_the_result_of_a_run_survives_the_control_process(lab: Lab) -> None:
    await lab.start(lab.once("c1", "exit", "5"))
    await ended(lab)

    await lab.restart()

    state = lab.find("c1")
    assert state is not None
    assert (state.phase, state.exit_code, state.reason) == ("stopped", 5, "it ended with exit code 5")
    assert state.ended_ms > 0


async def test_the_result_of_a_run_that_nobody_asks_for_is_dropped(lab: Lab) -> None:
    await lab.start(lab.once("c1", "exit", "5"))
    await ended(lab)
    await lab.restart({})

    await lab.restart({"c1": "token-c1"})

    assert lab.find("c1") is None


async def test_a_key_can_run_once_more_after_it_was_stopped(lab: Lab) -> None:
    await lab.start(lab.once("c1", "exit", "5"))
    await ended(lab)
    await lab.engine.workloads.stop("c1", 1.0)

    await lab.start(lab.once("c1", "exit", "0"))

    assert (await ended(lab)).exit_code == 0
