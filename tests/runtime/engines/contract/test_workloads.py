"""Contract of an engine: apps and servers, from their start to their end."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from http.client import HTTPException

import pytest
from tests.runtime.engines.contract.conftest import Lab

from moorage.runtime.engines.ports import CannotStart, Egress

pytestmark = pytest.mark.anyio


async def crash(lab: Lab, key: str, code: int = 3) -> None:
    with contextlib.suppress(OSError, HTTPException):
        await lab.get(key, "exit", str(code))


async def test_a_new_engine_runs_nothing(lab: Lab) -> None:
    assert dict(lab.engine.workloads.states()) == {}
    assert await lab.engine.workloads.look("r1") is None


async def test_an_app_runs_and_is_reached_at_its_address(lab: Lab) -> None:
    state = await lab.start(lab.app())

    assert (state.key, state.phase, state.restarts, state.is_once) == ("r1", "running", 0, False)
    assert str(state.address) == f"{state.host}:{state.port}"
    assert await lab.get("r1", "hello") == "hello"


async def test_an_app_has_the_variables_of_its_spec(lab: Lab) -> None:
    await lab.start(lab.app(env={"PATH": "/usr/bin:/bin", "GREETING": "ahoy"}))

    assert await lab.get("r1", "env", "GREETING") == "ahoy"
    assert await lab.get("r1", "env", "HOST") != ""


async def test_an_app_is_told_its_port(lab: Lab) -> None:
    state = await lab.start(lab.app())

    assert await lab.get("r1", "env", "PORT") == str(state.port)


async def test_an_app_may_choose_the_value_of_port(lab: Lab) -> None:
    await lab.start(lab.app(inside_port=3000))

    assert await lab.get("r1", "env", "PORT") == "3000"


async def test_apps_have_addresses_of_their_own(lab: Lab) -> None:
    one, two = await lab.start(lab.app("r1")), await lab.start(lab.app("r2"))

    assert one.address != two.address
    assert set(lab.engine.workloads.states()) == {"r1", "r2"}
    assert [await lab.get(key, "hello") for key in ("r1", "r2")] == ["hello", "hello"]


async def test_a_second_start_of_a_key_changes_nothing(lab: Lab) -> None:
    first = await lab.start(lab.app())

    second = await lab.start(lab.app(env={"PATH": "/usr/bin:/bin", "GREETING": "again"}))

    assert (second.address, second.pid) == (first.address, first.pid)
    assert await lab.get("r1", "env", "GREETING") == ""


async def test_two_starts_of_a_key_at_once_are_one(lab: Lab) -> None:
    one, two = await asyncio.gather(*(lab.engine.workloads.start(lab.app()) for _ in range(2)))

    assert (one.pid, one.address) == (two.pid, two.address)
    assert list(lab.engine.workloads.states()) == ["r1"]


async def test_a_program_that_does_not_exist_cannot_be_started(lab: Lab) -> None:
    with pytest.raises(CannotStart, match="it cannot be started"):
        await lab.engine.workloads.start(lab.app("r1", "missing"))

    assert lab.find("r1") is None


async def test_after_a_failed_start_the_key_is_free(lab: Lab) -> None:
    with pytest.raises(CannotStart):
        await lab.engine.workloads.start(lab.app("r1", "missing"))

    await lab.start(lab.app())

    assert await lab.get("r1", "hello") == "hello"


async def test_a_stopped_app_is_gone_and_refuses_connections(lab: Lab) -> None:
    state = await lab.start(lab.app())

    await lab.engine.workloads.stop("r1", 10.0)

    assert lab.find("r1") is None
    with pytest.raises(OSError, match=r"refused|No route"):  # The address of a pod goes with it.
        socket.create_connection((state.host, state.port), 30).close()


async def test_stopping_twice_or_what_never_ran_is_no_error(lab: Lab) -> None:
    await lab.start(lab.app())

    for key in ("r1", "r1", "never"):
        await lab.engine.workloads.stop(key, 10.0)

    assert dict(lab.engine.workloads.states()) == {}


async def test_a_stop_lets_a_program_end_by_itself(lab: Lab) -> None:
    await lab.start(lab.app("r1", "sleep"))
    await lab.printed("up")

    await lab.engine.workloads.stop("r1", 30.0)

    assert "goodbye" in await lab.lines()


async def test_a_program_that_ignores_the_stop_is_killed(lab: Lab) -> None:
    await lab.start(lab.app("r1", "stubborn"))
    await lab.printed("up")

    await lab.engine.workloads.stop("r1", 0.2)

    assert lab.find("r1") is None
    assert "goodbye" not in await lab.lines()


async def test_a_stopped_key_can_be_started_again(lab: Lab) -> None:
    await lab.start(lab.app())
    await lab.engine.workloads.stop("r1", 10.0)

    state = await lab.start(lab.app())

    assert state.restarts == 0
    assert await lab.get("r1", "hello") == "hello"


async def test_an_app_that_ends_is_started_again_at_its_address(lab: Lab) -> None:
    first = await lab.start(lab.app())

    await crash(lab, "r1")
    state = await lab.until("r1", lambda found: found.restarts == 1 and found.is_listening)

    assert state.address == first.address
    assert (state.exit_code, state.reason) == (3, "it ended with exit code 3")
    assert await lab.get("r1", "hello") == "hello"


async def test_an_app_that_keeps_crashing_waits_before_the_next_try(lab: Lab) -> None:
    await lab.engine.workloads.start(lab.app("r1", "crash"))

    state = await lab.until("r1", lambda found: found.phase == "waiting" and found.restarts > 0)

    assert (state.exit_code, state.is_listening) == (7, False)


async def test_a_waiting_app_can_be_stopped(lab: Lab) -> None:
    await lab.engine.workloads.start(lab.app("r1", "crash"))
    await lab.until("r1", lambda found: found.phase == "waiting")

    await lab.engine.workloads.stop("r1", 5.0)

    assert lab.find("r1") is None


async def test_listeners_get_the_keys_of_workloads_that_change_and_end(lab: Lab) -> None:
    changed = list[str]()
    lab.engine.workloads.listen(changed.append)
    await lab.start(lab.app())
    started = list(changed)

    await crash(lab, "r1")
    await lab.until("r1", lambda found: found.restarts == 1 and found.is_listening)
    crashed = changed[len(started) :]
    await lab.engine.workloads.stop("r1", 10.0)

    assert "r1" in started
    assert "r1" in crashed
    assert "r1" in changed[len(started) + len(crashed) :]


async def test_a_limit_may_change_while_an_app_runs_and_after_it_ended(lab: Lab) -> None:
    await lab.start(lab.app())

    for key, cpu in (("r1", 0.5), ("r1", None), ("never", 1.0)):
        await lab.engine.workloads.limit(key, cpu)

    assert await lab.get("r1", "hello") == "hello"


async def test_open_connections_are_counted_for_a_drain(lab: Lab) -> None:
    state = await lab.start(lab.app())

    async def count() -> int:
        found = await lab.engine.workloads.look("r1")
        assert found is not None
        return found.connections

    async def is_counted() -> bool:
        return await count() == 1

    async def is_over() -> bool:
        return await count() == 0

    _, writer = await asyncio.open_connection(state.host, state.port)
    await lab.wait_for(is_counted)
    writer.close()
    await lab.wait_for(is_over)


async def test_a_server_listens_at_the_port_of_its_spec(lab: Lab, free_port: int) -> None:
    state = await lab.start(lab.server("d1", free_port))

    assert state.port == free_port
    assert await lab.get("d1", "hello") == "hello"


async def test_a_server_gets_its_port_again(lab: Lab, free_port: int) -> None:
    await lab.start(lab.server("d1", free_port))
    await lab.get("d1", "hello")
    await lab.engine.workloads.stop("d1", 10.0)

    state = await lab.start(lab.server("d1", free_port))

    assert state.port == free_port


async def test_an_app_reaches_the_workloads_of_its_egress_rules_only(lab: Lab) -> None:
    other = await lab.start(lab.app("r1", name="database-1"))
    await lab.start(lab.app("r2", egress=[Egress("database-1", other.address)]))
    await lab.start(lab.app("r3"))

    answers = [await lab.get(key, "connect", str(other.port)) for key in ("r2", "r3")]

    assert answers == ["connected", "refused"]


async def test_the_usage_of_a_running_app_is_measured(lab: Lab) -> None:
    await lab.start(lab.app())

    async def is_measured() -> bool:
        found = await lab.engine.metrics.usage("r1")
        return found is not None and found.memory_bytes > 0

    await lab.wait_for(is_measured)  # A kubelet measures every ten seconds.
    usage, nothing = await lab.engine.metrics.usage("r1"), await lab.engine.metrics.usage("never")

    assert usage is not None
    assert usage.age_ms is not None
    assert nothing is None


# The control process is replaced.


async def test_workloads_outlive_the_control_process(lab: Lab) -> None:
    state = await lab.start(lab.app())

    await lab.engine.workloads.close()

    assert await asyncio.to_thread(_answers, state.host, state.port)
    lab.engine = lab.site.connect()
    await lab.engine.workloads.adopt({"r1": "token-r1"})


def _answers(host: str, port: int) -> bool:
    with socket.create_connection((host, port), 30) as sock:
        sock.sendall(b"GET /hello HTTP/1.0\r\n\r\n")
        return b"200" in sock.recv(1000)


async def test_a_workload_that_was_started_is_not_reported_as_never_started(lab: Lab) -> None:
    await lab.start(lab.app())
    await lab.engine.workloads.close()
    lab.engine = lab.site.connect()

    never_started = await lab.engine.workloads.adopt({"r1": "token-r1", "r2": "token-r2"})

    assert set(never_started) <= {"r2"}


async def test_an_app_is_adopted_by_its_token_at_the_same_address(lab: Lab) -> None:
    before = await lab.start(lab.app())

    await lab.restart()

    after = lab.find("r1")
    assert after is not None
    assert (after.address, after.pid, after.restarts) == (before.address, before.pid, 0)
    assert await lab.get("r1", "hello") == "hello"


@pytest.mark.parametrize("tokens", [{"r1": "another"}, {}], ids=["wrong token", "unknown key"])
async def test_an_app_that_is_not_adopted_ends(lab: Lab, tokens: dict[str, str]) -> None:
    state = await lab.start(lab.app())

    await lab.restart(tokens)

    assert lab.find("r1") is None
    await lab.wait_for(lambda: not _is_open(state.host, state.port))


def _is_open(host: str, port: int) -> bool:
    try:
        socket.create_connection((host, port), 5).close()
    except OSError:
        return False
    return True


async def test_an_adopted_app_is_stopped_and_reported_like_any_other(lab: Lab) -> None:
    await lab.start(lab.app())
    await lab.restart()
    changed = list[str]()
    lab.engine.workloads.listen(changed.append)

    await lab.engine.workloads.stop("r1", 10.0)

    assert lab.find("r1") is None
    assert "r1" in changed


async def test_a_key_that_was_not_adopted_can_be_started(lab: Lab) -> None:
    before = await lab.start(lab.app())
    await lab.restart({})

    after = await lab.start(lab.app())

    assert after.pid != before.pid
    assert await lab.get("r1", "hello") == "hello"


async def test_keys_that_do_not_run_are_not_adopted(lab: Lab) -> None:
    await lab.restart({"r1": "token-r1", "c1": "token-c1"})

    assert dict(lab.engine.workloads.states()) == {}
