"""Empty sandboxes, for calls that find no waiting sandbox of their runtime."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace

import pytest
from tests.runtime.workers.invoker_support import MODE_PARAMS, Host, Lab, lab_on, node_lab_on, running, until

from moorage.runtime.workers import empty_sandboxes, runtimes
from moorage.runtime.workers.zygotes import Setup

pytestmark = pytest.mark.group("cells-hulls")


@pytest.fixture(scope="module", params=MODE_PARAMS)
def shared(request: pytest.FixtureRequest) -> Iterator[Host]:
    """A host without waiting sandboxes."""
    with running(request.param, MOORAGE_FUNCTION_POOL="0") as running_host:
        yield running_host


@pytest.fixture
def host(shared: Host) -> Iterator[Host]:
    yield shared
    for number in list(shared.routes):
        shared.drop(number)


def kept(host: Host) -> set[int]:
    """Return the empty sandboxes of a host without instances, once the pool is full."""
    return set(
        until(
            lambda: sandboxes if len(sandboxes := host.sandboxes()) == empty_sandboxes.POOL_SIZE else [], "a full pool"
        )
    )


def is_node(pid: int) -> bool:
    return os.path.basename(os.readlink(f"/proc/{pid}/exe")).startswith("node")


@pytest.mark.parametrize(("lab_of", "ran"), [(lab_on, "answer = 1"), (node_lab_on, "return 1")])
def test_an_empty_sandbox_takes_whatever_runtime_is_asked_for_and_is_replaced(
    host: Host, lab_of: Callable[[Host], Lab], ran: str
) -> None:
    lab = lab_of(host)
    empty = kept(host)

    answer = lab.run(ran)

    assert answer == 1
    sandboxes = until(
        lambda: now if len(now := set(host.sandboxes())) == empty_sandboxes.POOL_SIZE + 1 else set(),
        "another empty sandbox",
    )
    assert empty < sandboxes
    assert [is_node(pid) for pid in empty].count(True) == (lab_of is node_lab_on)
    assert not any(is_node(pid) for pid in sandboxes - empty)


def test_more_calls_than_empty_sandboxes_are_answered_all_the_same(host: Host) -> None:
    labs = [lab_on(host) for _ in range(empty_sandboxes.POOL_SIZE * 2)]
    nodes = [node_lab_on(host) for _ in range(empty_sandboxes.POOL_SIZE * 2)]
    kept(host)

    with ThreadPoolExecutor(len(labs) * 2) as threads:
        answers = list(threads.map(lambda lab: lab.run("answer = 1" if lab in labs else "return 1"), labs + nodes))

    assert answers == [1] * len(labs) * 2


def test_empty_sandboxes_that_were_killed_are_replaced_without_failed_calls(host: Host) -> None:
    first, second = lab_on(host), lab_on(host)
    dead = kept(host)

    for pid in dead:
        os.kill(pid, signal.SIGKILL)
    until(lambda: not host.sandboxes(), "their end")

    assert [first.run("answer = 1"), second.run("answer = 2")] == [1, 2]
    until(lambda: len(host.sandboxes()) == empty_sandboxes.POOL_SIZE + 2, "new ones")


def test_a_call_that_meets_an_empty_sandbox_that_just_died_is_answered(host: Host) -> None:
    labs = [lab_on(host), node_lab_on(host)]
    dead = kept(host)

    with ThreadPoolExecutor(len(labs)) as threads:
        os.kill(host.invoker.pid, signal.SIGSTOP)
        for pid in dead:
            os.kill(pid, signal.SIGKILL)
        calls = [threads.submit(lab.run, ran) for lab, ran in zip(labs, ("answer = 1", "return 1"), strict=True)]
        until(lambda: host.health()["inFlight"] == len(labs), "calls that wait for a sandbox")
        os.kill(host.invoker.pid, signal.SIGCONT)
        answers = [call.result() for call in calls]

    assert answers == [1, 1]


def test_an_empty_sandbox_has_no_more_rights_than_a_full_one(host: Host) -> None:
    def status(pid: int) -> dict[str, str]:
        return dict(line.split(":\t", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines())

    lab_on(host)
    for pid in kept(host):
        until(lambda: status(pid)["Seccomp"] == "2", "its seal")  # noqa: B023 - done within the turn

        assert status(pid)["NoNewPrivs"] == "1"
        assert int(status(pid)["CapEff"], 16) == int(status(pid)["CapPrm"], 16) == 0
        assert os.stat(f"/proc/{pid}/ns/net").st_ino != os.stat("/proc/self/ns/net").st_ino


@pytest.mark.parametrize("mode", MODE_PARAMS)
def test_an_empty_sandbox_ends_with_its_invoker(mode: str) -> None:
    with running(mode, MOORAGE_FUNCTION_POOL="0") as own:
        lab_on(own)
        empty = kept(own)

        own.stop("moorage.runtime.workers.main", signal.SIGKILL)

        until(lambda: not any(os.path.exists(f"/proc/{pid}/ns/pid") for pid in empty), "their end")


@pytest.mark.parametrize("mode", MODE_PARAMS)
def test_a_host_without_functions_has_no_sandboxes_and_no_zygote(mode: str) -> None:
    with running(mode, MOORAGE_FUNCTION_POOL="0") as own:
        before = own.sandboxes()

        lab_on(own)

        assert before == []
        assert len(kept(own)) == empty_sandboxes.POOL_SIZE


@pytest.mark.anyio
async def test_a_zygote_of_the_idle_class_ends_after_a_while_without_forks() -> None:
    setup = Setup(sandbox=False, notify=False, own_users=False, root="/", runtimes=runtimes.installed())
    pool = empty_sandboxes.EmptySandboxes(SimpleNamespace(setup=setup))
    python = pool._default_python()
    usual, idle = (pool._zygote_for(python, is_idle) for is_idle in (False, True))
    try:
        pool.retire_unused()
        was_kept = pool._zygote_for(python, True) is idle
        for zygote in (usual, idle):
            zygote.used_at -= empty_sandboxes.IDLE_ZYGOTE_S + 1
        pool.retire_unused()

        assert was_kept
        assert idle.process.wait(10) == -signal.SIGKILL
        assert usual.process.poll() is None
        assert pool._zygote_for(python, True) is not idle
    finally:
        processes = [zygote.process for zygote in pool._zygotes.values()]
        pool.stop()
        for process in processes:
            process.wait(10)
