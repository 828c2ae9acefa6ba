"""The invoker: pooled sandboxes, one function per sandbox, no leftovers."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import subprocess
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from tests.runtime.sandbox.sandbox_support import outside_address
from tests.runtime.workers.invoker_support import (
    LAB,
    MODE_PARAMS,
    MODES,
    WAIT_S,
    Host,
    ancestors_of,
    is_cell,
    lab_on,
    node_lab_on,
    parent_of,
    pids,
    running,
    until,
)

from moorage.runtime.edge import spool
from moorage.runtime.sandbox.cgroups.none import NoCgroups
from moorage.runtime.workers import empty_sandboxes
from moorage.runtime.workers.invoker import Invoker
from moorage.runtime.workers.sandbox import SandboxState
from moorage.runtime.workers.zygotes import Setup

pytestmark = pytest.mark.group("cells-invoker")

POOL = 2
WAITING = POOL + empty_sandboxes.POOL_SIZE  # sandboxes, with and without a runtime
WHO = """
import sys
def main(args):
    before, sys.owner = getattr(sys, "owner", None), args["me"]
    return before
"""


@pytest.fixture(scope="module", params=MODE_PARAMS)
def host(request: pytest.FixtureRequest) -> Iterator[Host]:
    with running(request.param, MOORAGE_FUNCTION_POOL=str(POOL)) as running_host:
        yield running_host


@pytest.fixture(params=MODE_PARAMS)
def own_host(request: pytest.FixtureRequest) -> Iterator[Host]:
    """A host of its own for tests that stop processes."""
    with running(request.param, MOORAGE_FUNCTION_POOL=str(POOL)) as running_host:
        yield running_host


def family(host: Host) -> list[int]:
    """Return all descendants of the invoker."""
    return [pid for pid in pids() if host.invoker.pid in ancestors_of(pid)]


def zygotes(host: Host) -> list[int]:
    return [
        pid
        for pid in family(host)
        if parent_of(pid) == host.invoker.pid
        and b"zygote.py" in Path(f"/proc/{pid}/cmdline").read_bytes()
        and not is_cell(pid)
    ]


def is_alive(pid: int) -> bool:
    try:
        return "\nState:\tZ" not in Path(f"/proc/{pid}/status").read_text()
    except FileNotFoundError:
        return False


# Supply.


@pytest.mark.deep
def test_a_sandbox_that_was_taken_is_replaced(own_host: Host) -> None:
    numbers = [own_host.put(LAB) for _ in range(3)]
    until(lambda: len(own_host.sandboxes()) == WAITING, "waiting sandboxes")

    for count, number in enumerate(numbers, 1):
        own_host.result(number, {"code": ""})
        until(lambda: len(own_host.sandboxes()) == WAITING + count, "another sandbox")  # noqa: B023 - done within the turn

    assert own_host.health()["instances"] == 3


def test_more_functions_than_sandboxes_that_wait_are_served_at_once(host: Host) -> None:
    numbers = [host.put(WHO) for _ in range(8)]

    with ThreadPoolExecutor(8) as threads:
        befores = list(threads.map(lambda number: host.result(number, {"me": number}), numbers))

    assert befores == [None] * 8


def test_a_sandbox_is_never_used_for_another_function_or_revision(host: Host) -> None:
    first, second = host.put(WHO), host.put(WHO)

    told = [host.result(number, {"me": number}) for number in (first, second, first, second)]
    host.deploy(first, WHO)
    told.append(host.result(first, {"me": first}))

    assert told == [None, None, first, second, None]


def test_a_runtime_that_is_not_there_is_named(host: Host) -> None:
    number = host.put(LAB, runtime="python:3.1")

    assert host.error(number) == "the function cannot run here: python:3.1 is not installed any more"


def test_code_that_cannot_be_read_is_told_and_hurts_nobody_else(host: Host) -> None:
    number = host.put(LAB, digest="not-there")

    assert host.error(number) == "the function cannot run here: its code cannot be read"
    assert lab_on(host).run("answer = 1") == 1


# Ends.


@pytest.mark.parametrize(
    ("code", "told"),
    [
        ("ctypes.CDLL(None)._exit(7)", "the function's process ended (exit code 7) before it answered"),
        ("ctypes.string_at(8)", "the function's process was ended by signal 11 before it answered"),
    ],
)
def test_a_sandbox_s_end_is_told_with_its_reason(host: Host, code: str, told: str) -> None:
    lab = lab_on(host)

    assert lab.error(code) == told
    assert lab.run("answer = 'fine'") == "fine"


def test_the_last_words_of_a_process_are_in_the_log_of_its_call(host: Host) -> None:
    lab = lab_on(host)
    code = "os.write(1, b'to out\\n'); os.write(2, b'to err\\n'); ctypes.CDLL(None)._exit(7)"

    told = host.call(lab.number, lab.params(code))

    record = next(each for each in host.records() if each.activation == told["activationId"])
    assert spool.log_texts(record.log) == ("to out\n", "to err\n")
    assert record.error == told["error"]


def test_node_s_end_is_told_as_well(host: Host) -> None:
    node = node_lab_on(host)

    assert "exit" in node.error("process.reallyExit(5)")
    assert node.run("return 'fine'") == "fine"


def test_a_call_past_its_time_ends_with_its_sandbox(own_host: Host) -> None:
    # Long enough for a sandbox to start on a busy machine.
    lab = lab_on(own_host, timeout_ms=2000)

    told = lab.error("if os.fork(): time.sleep(60)\ntime.sleep(60)")

    assert told == "the function ran past its 2000 ms timeout"
    until(lambda: len(own_host.sandboxes()) == WAITING, "the end of its processes")


def test_a_function_that_is_dropped_leaves_no_sandbox(own_host: Host) -> None:
    lab = lab_on(own_host)
    lab.run("answer = 1")
    until(lambda: len(own_host.sandboxes()) == WAITING + 1, "a full pool")

    own_host.drop(lab.number)

    until(lambda: len(own_host.sandboxes()) == WAITING, "its end")
    assert own_host.health()["instances"] == 0


@pytest.mark.anyio
async def test_a_process_that_got_the_number_of_an_ended_sandbox_is_left_alone(tmp_path: Path) -> None:
    setup = Setup(sandbox=False, notify=False, own_users=False, root="", runtimes={})
    invoker = Invoker(setup, NoCgroups(), None, tmp_path, None)
    sandbox, theirs = invoker.new_sandbox("python:3", 0)
    theirs.close()
    sandbox.state = SandboxState.TAKEN
    with subprocess.Popen(["sleep", "60"]) as other:
        sandbox.pid = other.pid
        invoker.ended(sandbox, 0)

        sandbox.kill()
        await asyncio.sleep(0.05)

        assert other.poll() is None
        other.kill()
    invoker.stop()


# Other processes' ends.


def test_nothing_outlives_an_invoker_that_is_killed(own_host: Host) -> None:
    lab, node = lab_on(own_host), node_lab_on(own_host)
    lab.run("if os.fork() == 0: time.sleep(1000)")
    lab.run("subprocess.Popen(['sleep', '1000'], start_new_session=True)")
    node.run("return 1")
    started = family(own_host)

    own_host.stop("moorage.runtime.workers.main", signal.SIGKILL)

    assert len(started) >= 6
    until(lambda: not any(is_alive(pid) for pid in started), "their end")


def test_after_an_invoker_s_death_the_next_one_clears_up_and_serves(own_host: Host) -> None:
    lab = lab_on(own_host)
    lab.run("answer = 1")
    own_host.stop("moorage.runtime.workers.main", signal.SIGKILL)
    left = set(own_host.groups())

    own_host.start("moorage.runtime.workers.main")

    assert until(lambda: own_host.call(lab.number, lab.params("answer = 2"))["result"] == 2, "an answer")
    gone = {name for name in left if not os.path.exists(name)}
    names = {os.path.basename(name) for name in own_host.groups()}
    assert gone == left or len(names) <= WAITING + 2


def test_a_zygote_that_is_killed_is_replaced(own_host: Host) -> None:
    lab_on(own_host).run("answer = 1")
    until(lambda: len(own_host.sandboxes()) == WAITING + 1, "a full pool")
    old = zygotes(own_host)

    for pid in old:
        os.kill(pid, signal.SIGKILL)
    until(lambda: not any(is_alive(pid) for pid in old), "the zygote's end")
    answers = [lab_on(own_host).run("answer = 1") for _ in range(WAITING + 3)]

    assert len(old) == 1
    assert answers == [1] * (WAITING + 3)
    assert not set(zygotes(own_host)) & set(old)


@pytest.mark.deep
def test_a_zygote_that_dies_at_work_keeps_nobody_waiting_for_long(own_host: Host) -> None:
    lab_on(own_host).run("answer = 1")
    zygote = zygotes(own_host)[0]
    os.kill(zygote, signal.SIGSTOP)
    labs = [lab_on(own_host) for _ in range(WAITING + 3)]

    with ThreadPoolExecutor(len(labs)) as threads:
        calls = [threads.submit(own_host.call, lab.number, lab.params("answer = 1")) for lab in labs]
        until(lambda: own_host.health()["inFlight"] >= 3, "calls that wait for a sandbox")
        os.kill(zygote, signal.SIGKILL)
        told = [call.result() for call in calls]

    assert [each["status"] for each in told] == ["success"] * len(labs)


@pytest.mark.deep
def test_a_busy_function_finishes_after_the_edge_s_death_and_the_next_edge_knows_its_routes() -> None:
    address = outside_address()
    # It runs until its call is read, which does not happen while the edge runs.
    code = """
    while True:
        try:
            socket.create_connection((args["address"], args["port"]), 5).close()
            break
        except OSError:
            time.sleep(0.05)
    """

    for mode in MODES:
        with socket.socket() as door, running(mode, MOORAGE_SANDBOX_ALLOW=address) as host:
            door.bind((address, 0))
            lab = lab_on(host)
            lab.run("answer = 1")
            until((host.data / "run" / "edge-routes.json").exists, "saved routes")
            with ThreadPoolExecutor(1) as thread:
                port = door.getsockname()[1]
                cut = thread.submit(host.call, lab.number, lab.params(code, address=address, port=port))
                until(lambda: host.health()["inFlight"] == 1, "the call")
                busy = set(host.sandboxes())
                host.stop("moorage.runtime.edge.main", signal.SIGKILL)
                assert cut.exception() is not None
            door.listen()
            door.settimeout(WAIT_S)
            door.accept()[0].close()
            host.start("moorage.runtime.edge.main")
            answer = lab.run("answer = 2")

        assert busy
        assert answer == 2


@pytest.mark.deep
def test_idle_sandboxes_end_with_the_edge_that_had_them(own_host: Host) -> None:
    lab_on(own_host).run("answer = 1")
    until(lambda: len(own_host.sandboxes()) == WAITING + 1, "a full pool")

    own_host.stop("moorage.runtime.edge.main", signal.SIGKILL)

    until(lambda: len(own_host.sandboxes()) == WAITING, "its end")
    assert own_host.invoker.poll() is None


# Nothing is left.


@pytest.mark.parametrize("mode", MODE_PARAMS)
def test_a_stop_leaves_no_process_no_group_and_no_mount(mode: str) -> None:
    mounts = Path("/proc/self/mountinfo").read_text()

    with running(mode) as host:
        lab_on(host).run("answer = 1")
        node_lab_on(host).run("return 1")
        started = family(host)
        had = host.groups()
        codes = [host.stop(module) for module in ("moorage.runtime.edge.main", "moorage.runtime.workers.main")]
        until(lambda: not any(is_alive(pid) for pid in started), "their end")
        left = host.groups()

    assert codes == [0, 0]
    assert left == []
    assert bool(had) is (mode == "root")
    assert Path("/proc/self/mountinfo").read_text() == mounts
    assert "Traceback" not in "".join(path.read_text() for path in host.data.glob("*.log"))


@pytest.mark.deep
def test_many_sandboxes_later_no_descriptor_is_left_over(own_host: Host) -> None:
    lab = lab_on(own_host)
    for _ in range(5):
        lab.run("answer = 1")
    settled = WAITING + 1
    until(lambda: len(own_host.sandboxes()) == settled, "a full pool")
    processes = (own_host.invoker.pid, own_host.edge.pid)
    before = [len(os.listdir(f"/proc/{pid}/fd")) for pid in processes]

    for _ in range(40):  # Many more than the tolerated number of descriptors below.
        own_host.deploy(lab.number, LAB)
        lab.run("answer = 1")
    until(lambda: len(own_host.sandboxes()) == settled, "the end of the old sandboxes")

    def now() -> list[int]:
        return [len(os.listdir(f"/proc/{pid}/fd")) for pid in processes]

    until(lambda: all(count <= old + 2 for count, old in zip(now(), before, strict=True)), f"{before}, not {now()}")
    assert len({os.path.basename(name) for name in own_host.groups()}) in (0, settled)
    assert "Traceback" not in own_host.log("moorage.runtime.workers.main") + own_host.log("moorage.runtime.edge.main")
