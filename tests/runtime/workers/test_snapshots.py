"""Snapshots: a slow function is loaded once, and further instances are forked."""

from __future__ import annotations

import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from tests.runtime.workers.invoker_support import MODE_PARAMS, Host, running, until

from moorage.runtime.workers import empty_sandboxes

pytestmark = pytest.mark.group("cells-templates")

POOL = 2
WAITING = POOL + empty_sandboxes.POOL_SIZE  # sandboxes, with and without a runtime
# Each load has a random number; calls count up and hold their instance for a requested time.
HEAVY = """
import ctypes, os, random, socket, sys, threading, time
{extra}
time.sleep(0.2)
load = random.SystemRandom().random()
calls = 0
print("loaded")

def main(args):
    global calls
    calls += 1
    if args.get("die"):
        ctypes.CDLL(None)._exit(9)
    held = b"x" * (args.get("mb", 0) << 20)
    time.sleep(args.get("hold", 0))
    return {{"pid": os.getpid(), "load": load, "calls": calls}}
"""


@pytest.fixture(scope="module", params=MODE_PARAMS)
def host(request: pytest.FixtureRequest) -> Iterator[Host]:
    with running(request.param, MOORAGE_FUNCTION_POOL=str(POOL)) as running_host:
        yield running_host


def put(host: Host, extra: str = "", **changed: Any) -> int:
    return host.put(HEAVY.format(extra=extra), **changed)


def at_once(host: Host, number: int, *params: dict[str, Any]) -> list[dict[str, Any]]:
    """Make concurrent calls, so that each needs its own instance."""
    with ThreadPoolExecutor(len(params)) as threads:
        return list(threads.map(lambda each: host.call(number, each), params))


def with_forks(host: Host, number: int) -> list[dict[str, Any]]:
    """Call until an instance is a fork; return the last results."""
    host.result(number)
    for count in range(2, 12):
        told = [each["result"] for each in at_once(host, number, *[{"hold": 0.3}] * count)]
        if any(each["pid"] > 1 for each in told):
            return told
    raise AssertionError("no instance was ever forked")


def test_further_instances_are_forked_off_one_load_and_share_no_state(host: Host) -> None:
    number = put(host)

    with_forks(host, number)
    told = [each["result"] for each in at_once(host, number, *[{"hold": 0.3}] * 8)]

    forks = [each for each in told if each["pid"] > 1]
    assert len(forks) >= 3
    assert len({each["load"] for each in forks}) == 1
    assert len({each["pid"] for each in forks}) == len(forks)
    assert min(each["calls"] for each in forks) == 1
    host.drop(number)


@pytest.mark.deep
def test_what_is_printed_while_loading_is_not_printed_again_by_forks(host: Host) -> None:
    number = put(host)

    with_forks(host, number)

    logs = [record.log for record in host.records() if record.function_id == number]
    loads = sum(log.count(b"loaded\n") for log in logs)
    instances = sum(record.cold for record in host.records() if record.function_id == number)
    assert 1 <= loads < instances
    host.drop(number)


@pytest.mark.parametrize(
    "extra",
    [
        pytest.param("threading.Thread(target=time.sleep, args=[1000], daemon=True).start()", id="a thread"),
        pytest.param("ours, theirs = socket.socketpair()", id="a connection"),
    ],
)
def test_a_function_that_has_something_forks_cannot_share_gets_none(host: Host, extra: str) -> None:
    number = put(host, extra)
    host.result(number)

    told = [each["result"] for count in (2, 4) for each in at_once(host, number, *[{"hold": 0.4}] * count)]

    assert {each["pid"] for each in told} == {1}
    assert len({each["load"] for each in told}) > 1
    host.drop(number)


def test_a_quick_load_gets_no_snapshot(host: Host) -> None:
    number = host.put("import os, time\ndef main(args):\n    time.sleep(args['hold'])\n    return os.getpid()")

    told = [each["result"] for count in (2, 4) for each in at_once(host, number, *[{"hold": 0.3}] * count)]

    assert set(told) == {1}
    host.drop(number)


def test_a_fork_s_crash_ends_no_other(host: Host) -> None:
    number = put(host)
    with_forks(host, number)

    told = at_once(host, number, *[{"hold": 0.5}] * 5, *[{"die": True}] * 5)

    assert [each["status"] for each in told] == ["success"] * 5 + ["error"] * 5
    assert {each["error"] for each in told[5:]} <= {
        "the function's process ended before it answered",  # a fork, whose exit code only its snapshot knows
        "the function's process ended (exit code 9) before it answered",
    }
    assert host.result(number)["calls"] >= 1
    host.drop(number)


def test_each_fork_has_the_memory_limit_to_itself(host: Host) -> None:
    number = put(host, memory_mb=128)
    with_forks(host, number)

    within = at_once(host, number, *[{"mb": 60, "hold": 0.6}] * 5)
    over = at_once(host, number, *[{"mb": 250, "hold": 2}] * 5, {"hold": 0.6})

    assert [each["status"] for each in within] == ["success"] * 5
    assert {each["error"] for each in over[:5]} == {"the function used more than its 128 MB of memory"}
    assert over[5]["status"] == "success"
    host.drop(number)


@pytest.mark.deep
def test_a_fork_is_ended_at_its_deadline_and_the_snapshot_lives_on(host: Host) -> None:
    number = put(host, timeout_ms=1000)
    with_forks(host, number)

    late = at_once(host, number, *[{"hold": 30}] * 4)
    told = [each["result"] for each in at_once(host, number, *[{"hold": 0.5}] * 4)]

    assert {each["error"] for each in late} == {"the function ran past its 1000 ms timeout"}
    assert any(each["pid"] > 1 for each in told)
    host.drop(number)


@pytest.mark.deep
def test_snapshot_and_forks_end_with_their_revision(host: Host) -> None:
    number = put(host)
    before = {each["load"] for each in with_forks(host, number) if each["pid"] > 1}

    host.deploy(number, HEAVY.format(extra=""))
    after = {each["load"] for each in with_forks(host, number)}
    host.drop(number)

    assert before
    assert not before & after
    until(lambda: len(host.sandboxes()) == WAITING, "the end of snapshots and forks")


def test_forks_are_in_groups_of_their_own_and_nobody_else_s(host: Host) -> None:
    number = put(host)

    with_forks(host, number)

    users = [os.stat(f"/proc/{pid}").st_uid for pid in host.sandboxes()]
    if host.mode == "root":
        members = [Path(name, "cgroup.procs").read_text().split() for name in host.groups()]
        assert len(set(users)) < len(users)  # A snapshot and its forks have the same user.
        assert max(len(pids) for pids in members) == 1
    else:
        assert len(set(users)) == 1
    host.drop(number)
