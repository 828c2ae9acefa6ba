"""CPU fairness with real processes in real cgroups."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from pathlib import Path
from types import SimpleNamespace

import pytest
from tests.runtime.workers.invoker_support import MODE_PARAMS, Host, is_cell, lab_on, parent_of, pids, running, until

from moorage.core.kit.processes import sessions
from moorage.runtime.sandbox.cgroups import groups as cgroups
from moorage.runtime.sandbox.cgroups import policies
from moorage.runtime.sandbox.cgroups.groups import Cgroups, NoCgroups
from moorage.runtime.workers.cpu.fairness import CpuCredit, Fairness
from moorage.runtime.workers.cpu.rescheduler import Rescheduler
from moorage.runtime.workers.messages import Message
from moorage.runtime.workers.sandbox import FunctionSandbox

pytestmark = pytest.mark.group("cells-fairness")

BURN = "while True: pass"
WAITING = "waits"
WAIT = f"import time; open('/proc/self/comm', 'w').write({WAITING!r}); time.sleep(1000)"
# Hosts that support the idle class, with and without cgroups.
KINDS = [
    kind
    for kind, can in (
        ("found", "idle" in cgroups.look()[1]),
        ("none", policies.can_leave_idle(NoCgroups().controllers)),
    )
    if can or kind == "none"
]

MakeSandbox = Callable[..., FunctionSandbox]


@pytest.fixture(params=[pytest.param(kind, marks=pytest.mark.twin) if kind == "none" else kind for kind in KINDS])
def groups(request: pytest.FixtureRequest) -> Iterator[Cgroups]:
    made = NoCgroups() if request.param == "none" else cgroups.find(f"t{uuid.uuid4().hex[:8]}")
    yield made
    made.close()


@pytest.fixture
def make_sandbox(groups: Cgroups) -> Iterator[MakeSandbox]:
    """Make sandboxes with a process that runs some code, and remove them at the end."""
    with ExitStack() as stack:

        def make(code: str, org: str = "1") -> FunctionSandbox:
            process = stack.enter_context(subprocess.Popen([sys.executable, "-I", "-S", "-c", code]))
            stack.callback(process.kill)
            ours, theirs = socket.socketpair()
            for each in (ours, theirs):
                stack.callback(each.close)
            sandbox = FunctionSandbox(process.pid, "python:3", 0, ours, (-1, -1), org=org, pid=process.pid)
            sandbox.group = groups.create(f"cell-{process.pid}")
            stack.callback(sandbox.group.remove)
            stack.callback(process.wait)  # In the idle class, a killed process can take long to end on a busy machine.
            stack.callback(sandbox.group.kill)
            sandbox.group.limit(memory_mb=128, pids=64, weight=100)
            sandbox.group.attach(process.pid)
            return sandbox

        yield make


@pytest.fixture
def fairness() -> Iterator[Fairness]:
    made = Fairness(Rescheduler(), can_leave_idle=True, call_soon=lambda check: None)
    yield made
    made.stop()


def sleeps(pid: int) -> bool:
    """Whether a process that runs `WAIT` has reached its sleep."""
    _, name, state, *_ = Path(f"/proc/{pid}/stat").read_text().split()
    return (name, state) == (f"({WAITING})", "S")


def is_scheduled_idle(sandbox: FunctionSandbox) -> bool:
    """Whether the kernel has the sandbox in the idle class, or it leaves a CPU free."""
    if os.sched_getscheduler(sandbox.pid) == os.SCHED_IDLE or leaves_cpu_free(sandbox.pid):
        return True
    folders = [
        Path(where, name)
        for where, names, _ in os.walk("/sys/fs/cgroup")
        for name in names
        if name.endswith(f"-cell-{sandbox.pid}")
        and str(sandbox.pid) in Path(where, name, "cgroup.procs").read_text().split()
    ]
    verdicts = [path / "cpu.idle" for folder in folders for path in (folder, folder.parent)]
    return any(path.exists() and path.read_text().strip() == "1" for path in verdicts)


def leaves_cpu_free(pid: int) -> bool:
    return os.sched_getaffinity(pid) < os.sched_getaffinity(0)


def check_until(fairness: Fairness, condition: Callable[[], bool], *busy: FunctionSandbox) -> None:
    """Check repeatedly, like the invoker, with these sandboxes busy."""

    def is_true() -> bool:
        fairness.count(busy)
        fairness.check()
        return condition()

    until(is_true, "a verdict")


def test_a_long_computation_steps_back_until_its_call_ends(
    fairness: Fairness, groups: Cgroups, make_sandbox: MakeSandbox
) -> None:
    sandbox = make_sandbox(BURN)

    fairness.watch(sandbox)
    check_until(fairness, lambda: sandbox.is_idle_class)
    behind = is_scheduled_idle(sandbox)
    fairness.unwatch(sandbox)

    assert behind is ("idle" in groups.controllers)
    assert not sandbox.is_idle_class
    assert is_scheduled_idle(sandbox) is not policies.can_leave_idle(groups.controllers)


def test_a_call_that_waits_does_not_step_back(fairness: Fairness, make_sandbox: MakeSandbox) -> None:
    sandbox = make_sandbox(WAIT)
    until(lambda: sleeps(sandbox.pid), "a process that waits")  # The start of the interpreter is CPU-bound too.

    fairness.watch(sandbox)
    for _ in range(8):
        time.sleep(0.1)
        fairness.check()

    assert not sandbox.is_idle_class


def test_a_computation_that_nobody_watches_is_left_alone(fairness: Fairness, make_sandbox: MakeSandbox) -> None:
    sandbox = make_sandbox(BURN)

    for _ in range(4):
        time.sleep(0.1)
        fairness.check()

    assert not sandbox.is_idle_class


def test_an_organization_over_its_share_steps_back_and_comes_forward_once_it_has_paid(
    groups: Cgroups,
    fairness: Fairness,
    make_sandbox: MakeSandbox,
) -> None:
    greedy = [make_sandbox(BURN, org="greedy") for _ in range(2)]
    # With many organizations the fair share is small.
    modest = [make_sandbox(WAIT, org=f"modest-{number}") for number in range(12)]

    check_until(fairness, lambda: all(sandbox.is_idle_class for sandbox in greedy), *greedy, *modest)
    others = [sandbox.is_idle_class for sandbox in modest]
    for sandbox in greedy:
        sandbox.group.freeze()
    check_until(fairness, lambda: not any(sandbox.is_idle_class for sandbox in greedy), *greedy, *modest)
    for sandbox in greedy:
        sandbox.group.thaw()

    assert others == [False] * len(modest)
    can_leave_idle = policies.can_leave_idle(groups.controllers)
    assert [is_scheduled_idle(sandbox) for sandbox in greedy] == [not can_leave_idle] * 2


def test_sandboxes_that_cannot_leave_the_idle_class_are_replaced_once_it_is_left(make_sandbox: MakeSandbox) -> None:
    sent: list[Message] = []
    fairness = Fairness(Rescheduler(), can_leave_idle=False, call_soon=lambda check: None)
    fairness.cores = 0
    greedy, other = make_sandbox(BURN), make_sandbox(WAIT, org="2")
    greedy.owner = SimpleNamespace(channel=SimpleNamespace(send=sent.append))
    fairness.watch(greedy)
    try:
        check_until(fairness, lambda: greedy.is_idle_class, greedy, other)
        before = list(sent)
        fairness.unwatch(greedy)
        is_idle_after_call = greedy.is_idle_class
        fairness.cores = 1000
        greedy.group.freeze()
        check_until(fairness, lambda: bool(sent), greedy, other)
        greedy.group.thaw()
    finally:
        fairness.stop()

    assert (before, is_idle_after_call) == ([], True)
    assert sent == [{"replace": greedy.number}]
    assert greedy.is_idle_class


def test_sandboxes_outside_of_their_organization_s_session_are_replaced(make_sandbox: MakeSandbox) -> None:
    sent: list[Message] = []
    fairness = Fairness(Rescheduler(), can_leave_idle=True, has_idle_session=True, call_soon=lambda check: None)
    fairness.cores = 0
    greedy, further, other = make_sandbox(BURN), make_sandbox(WAIT), make_sandbox(WAIT, org="2")
    further.is_in_idle_session = True
    for each in (greedy, further, other):
        each.owner = SimpleNamespace(channel=SimpleNamespace(send=sent.append))
    try:
        needed = fairness.needs_idle_session("1")
        check_until(fairness, lambda: greedy.is_idle_class, greedy, other)
        fairness.admit(further)
        in_debt = sent.copy(), fairness.needs_idle_session("1"), fairness.is_misplaced(further)
        fairness.cores = 1000
        greedy.group.freeze()
        check_until(fairness, lambda: not fairness.needs_idle_session("1"), greedy, other)
        greedy.group.thaw()
    finally:
        fairness.stop()

    assert not needed
    assert in_debt == ([{"replace": greedy.number}], True, False)
    assert sent[1:] == [{"replace": further.number}]
    assert fairness.is_misplaced(further)


@pytest.mark.boundary("tenant-to-tenant", "A flood of calls stays in the idle class while it gets half of its share.")
@pytest.mark.parametrize(
    ("is_idle_class", "spent_s", "has_gained"),
    [(False, 1.4, True), (False, 1.6, False), (True, 0.6, False), (True, 0.4, True)],
)
def test_an_organization_leaves_the_idle_class_only_below_half_of_its_share(
    is_idle_class: bool, spent_s: float, has_gained: bool
) -> None:
    credit = CpuCredit(now=0.0)
    credit.balance_s, credit.is_idle_class = 0.0, is_idle_class

    credit.update(fair_s=1.0, spent_s=spent_s)

    assert (credit.balance_s > 0) is has_gained


@pytest.mark.boundary("tenant-to-tenant", "A flood that returns to the idle class stays there longer each time.")
def test_an_organization_that_returns_soon_stays_in_the_idle_class_twice_as_long() -> None:
    credit, now, stays = CpuCredit(now=0.0), 0.0, []

    for pause_s in (0.0, 1.0, 1.0, 1.0, 60.0):  # in the normal class, before it returns
        entered = now = now + pause_s
        credit.change_class(True, now)
        while not credit.may_leave_idle_class(now):
            now += 1.0
        stays.append(now - entered)
        credit.change_class(False, now)

    assert stays == [0.0, 4.0, 8.0, 16.0, 0.0]


@pytest.mark.boundary("tenant-to-tenant", "A flood that gets little CPU time does not leave the idle class for that.")
def test_an_organization_stays_in_the_idle_class_while_it_would_use_all_cpus(
    fairness: Fairness, make_sandbox: MakeSandbox
) -> None:
    greedy = [make_sandbox(BURN) for _ in range(2)]
    other, fairness.cores = make_sandbox(WAIT, org="2"), 0
    check_until(fairness, lambda: greedy[0].is_idle_class, *greedy, other)

    fairness.cores = 2
    fairness._credits["1"].update(fair_s=1000, spent_s=0)
    for _ in range(3):
        time.sleep(0.45)  # more than the interval of updates in the idle class
        fairness.check()
        fairness._credits["1"].update(fair_s=1000, spent_s=0)
    with_two_runnable = greedy[0].is_idle_class
    greedy[1].group.freeze()
    check_until(fairness, lambda: not greedy[0].is_idle_class, *greedy, other)
    greedy[1].group.thaw()

    assert with_two_runnable


def test_one_organization_alone_has_the_machine_to_itself(fairness: Fairness, make_sandbox: MakeSandbox) -> None:
    sandbox = make_sandbox(BURN)
    fairness.cores = 0  # Any CPU use is above the share then.

    check_until(fairness, lambda: sandbox.group.cpu_us() > 1_500_000, sandbox)

    assert not sandbox.is_idle_class


@pytest.mark.boundary("tenant-to-tenant", "A flood loses its priority as soon as another organization is active.")
def test_the_debt_of_an_organization_alone_counts_when_another_one_becomes_active(make_sandbox: MakeSandbox) -> None:
    checks: list[Callable[[], None]] = []
    fairness = Fairness(Rescheduler(), can_leave_idle=True, call_soon=checks.append)
    sandbox, other = make_sandbox(BURN), make_sandbox(WAIT, org="2")
    fairness.cores = 0  # Any CPU use is above the share then.
    check_until(fairness, lambda: sandbox.group.cpu_us() > 1_500_000, sandbox)
    was_idle_class = sandbox.is_idle_class

    fairness.count([other])
    check = checks[-1]
    check()
    fairness.stop()

    assert not was_idle_class
    assert sandbox.is_idle_class
    assert len(checks) == 2


def test_the_end_of_a_call_does_not_pay_an_organization_s_debt(fairness: Fairness, make_sandbox: MakeSandbox) -> None:
    sandbox, other = make_sandbox(BURN), make_sandbox(WAIT, org="2")
    fairness.cores = 0
    check_until(fairness, lambda: sandbox.is_idle_class, sandbox, other)

    fairness.watch(sandbox)
    fairness.unwatch(sandbox)

    assert sandbox.is_idle_class


@pytest.mark.boundary("tenant-to-tenant", "Further sandboxes of a greedy organization get no normal CPU priority.")
def test_a_further_sandbox_of_an_organization_in_debt_starts_in_the_idle_class(
    fairness: Fairness, make_sandbox: MakeSandbox
) -> None:
    sandbox, other = make_sandbox(BURN), make_sandbox(WAIT, org="2")
    fairness.cores = 0
    check_until(fairness, lambda: sandbox.is_idle_class, sandbox, other)
    admitted, counted, modest = make_sandbox(WAIT), make_sandbox(WAIT), make_sandbox(WAIT, org="2")

    fairness.admit(admitted)
    fairness.admit(modest)
    fairness.count([counted, modest])

    assert (admitted.is_idle_class, counted.is_idle_class, modest.is_idle_class) == (True, True, False)


@pytest.mark.boundary("tenant-to-tenant", "A greedy organization has no sandbox with normal CPU priority, busy or not.")
def test_sandboxes_without_a_call_change_their_class_too(fairness: Fairness, make_sandbox: MakeSandbox) -> None:
    busy, waiting, other = make_sandbox(BURN), make_sandbox(WAIT), make_sandbox(WAIT, org="2")
    fairness.admit(waiting)
    fairness._credits.clear()  # The organization made no call for a while.
    fairness.cores = 0

    check_until(fairness, lambda: busy.is_idle_class, busy, other)
    was_idle_class = waiting.is_idle_class, other.is_idle_class
    fairness.cores = 1000
    busy.group.freeze()
    check_until(fairness, lambda: not busy.is_idle_class, busy, other)
    busy.group.thaw()

    assert was_idle_class == (True, False)
    assert not waiting.is_idle_class


def test_a_sandbox_that_has_ended_is_forgotten(fairness: Fairness, make_sandbox: MakeSandbox) -> None:
    sandbox, other = make_sandbox(BURN), make_sandbox(WAIT, org="2")
    fairness.watch(sandbox)
    fairness.count([sandbox, other])

    fairness.forget(sandbox)
    sandbox.group.kill()
    for _ in range(3):
        time.sleep(0.06)
        fairness.check()

    assert not sandbox.is_idle_class


def idle_states(host: Host) -> set[str]:
    """Return the values of `cpu.idle` of a host's cgroups."""
    found = set()
    for group in host.groups():
        for folder in (group, os.path.dirname(group)):  # Idle-class cgroups have a common parent.
            with suppress(OSError):  # The sandbox may have ended, and not every hierarchy has the file.
                found.add(Path(folder, "cpu.idle").read_text().strip())
    return found


@pytest.mark.deep
@pytest.mark.parametrize("mode", MODE_PARAMS)
def test_a_function_makes_way_while_it_computes_and_no_longer(mode: str) -> None:
    with running(mode) as host:
        lab = lab_on(host)
        before, during = idle_states(host), set()
        with ThreadPoolExecutor(1) as thread:
            code = "end = time.process_time() + 1\nwhile time.process_time() < end: pass"
            call = thread.submit(lab.run, code)
            while not call.done():
                during |= idle_states(host)
                time.sleep(0.02)
        until(lambda: "1" not in idle_states(host), "the end of the idle class")

        can = bool(idle_states(host))

    assert "1" not in before
    assert ("1" in during) is can
    assert call.result() is None


def session_of(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[3])


def idle_sandboxes(host: Host) -> set[int]:
    """Return the sandboxes that leave a CPU free, or have the policy of the idle class."""
    found = set()
    for pid in host.sandboxes():
        with suppress(ProcessLookupError):
            if os.sched_getscheduler(pid) == os.SCHED_IDLE or leaves_cpu_free(pid):
                found.add(pid)
    return found


def has_sandboxes_in_idle_session(host: Host) -> bool:
    """Whether sandboxes are in a session of the lowest priority, and in the idle class."""
    for pid in idle_sandboxes(host):
        with suppress(FileNotFoundError, ProcessLookupError):
            if f"nice {sessions.LOWEST_PRIORITY}" in Path(f"/proc/{pid}/autogroup").read_text():
                return True
    return False


@pytest.mark.boundary("tenant-to-tenant", "Without cgroups, code of a function cannot get a CPU share of its own.")
def test_without_cgroups_functions_stay_in_the_session_of_their_zygote() -> None:
    code = "child = subprocess.Popen(['sleep', '1000'], start_new_session=True); os.setsid(); answer = os.getsid(0)"
    with running("user") as host:
        before = set(pids())
        session = lab_on(host).run(code)
        new = set(pids()) - before
        sleeping = [pid for pid in new if is_cell(pid) and Path(f"/proc/{pid}/comm").read_text() == "sleep\n"]
        sessions = {session_of(pid) for pid in [*host.sandboxes(), *sleeping]}
        zygotes = [pid for pid in pids() if parent_of(pid) == host.invoker.pid and session_of(pid) == pid]

    has_weights = os.getuid() != 0 and "cpu" in cgroups.look()[1]
    assert len(sleeping) == 1
    # The session leader is outside of the PID namespace.
    assert (session == 0) is not has_weights
    assert (sessions <= set(zygotes)) is not has_weights


@pytest.mark.boundary(
    "tenant-to-tenant", "A greedy organization gets no normal CPU priority as an ordinary user either."
)
def test_without_cgroups_sandboxes_in_the_idle_class_are_replaced_and_no_call_fails() -> None:
    burn = "end = time.process_time() + 0.1\nwhile time.process_time() < end: pass"
    has_session = sessions.have_weights() and (os.getuid() == 0 or "cpu" not in cgroups.look()[1])
    with running("user") as host, ThreadPoolExecutor(4) as threads:
        greedy, others = lab_on(host), [lab_on(host, org=str(org)) for org in range(2, 17)]
        is_over = threading.Event()

        def compute() -> None:
            while not is_over.is_set():
                greedy.run(burn)

        def has_idle_sandboxes() -> bool:
            for each in (greedy, *others):
                each.run("answer = 1")
            return has_sandboxes_in_idle_session(host) if has_session else "1" in idle_states(host)

        flood = [threads.submit(compute) for _ in range(4)]
        try:
            until(has_idle_sandboxes, "sandboxes in the idle class")
        finally:
            is_over.set()
        for each in flood:
            each.result()
        until(lambda: not has_idle_sandboxes(), "their end")

        assert greedy.run("answer = 2") == 2
