"""The wake-ups on each CPU while sandboxes compute in the idle class, with a real process."""

from __future__ import annotations

import ctypes
import os
import platform
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.runtime.workers.invoker_support import until

from moorage.runtime.workers.cpu import slices
from moorage.runtime.workers.cpu.rescheduler import LINGER_S, Rescheduler

NEEDS_IT = "import sys, time; from moorage.runtime.workers.cpu.rescheduler import Rescheduler; "
NEEDS_IT += "made = Rescheduler(); made.update(True, 0.0); print(made.process.pid, flush=True); time.sleep(1000)"


@pytest.fixture
def rescheduler() -> Iterator[Rescheduler]:
    made = Rescheduler()
    yield made
    made.stop()


def pid_of(rescheduler: Rescheduler) -> int:
    assert rescheduler.process is not None
    return rescheduler.process.pid


def wakers(pid: int) -> list[int]:
    """Return the threads of a process that wake up; the main thread waits for the end of its input."""
    return [int(each.name) for each in Path(f"/proc/{pid}/task").iterdir() if int(each.name) != pid]


def switches(thread: int) -> int:
    lines = Path(f"/proc/{thread}/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("voluntary_ctxt_switches"))


def may_be_realtime() -> bool:
    """Whether a process outside of the platform's cgroup may have a realtime policy on this machine."""
    code = "import os; os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1))"
    return subprocess.run([sys.executable, "-I", "-S", "-c", code], stderr=subprocess.DEVNULL).returncode == 0


@pytest.mark.boundary("tenant-to-tenant", "During a flood, the scheduler of each CPU picks a task every millisecond.")
def test_each_cpu_wakes_up_often_while_it_is_needed(rescheduler: Rescheduler) -> None:
    rescheduler.update(True, now=0.0)

    pid, cpus = pid_of(rescheduler), os.sched_getaffinity(0)
    until(lambda: len(wakers(pid)) == len(cpus), "a thread for each CPU")
    until(lambda: all(len(os.sched_getaffinity(each)) == 1 for each in wakers(pid)), "threads with a CPU each")
    assert {next(iter(os.sched_getaffinity(each))) for each in wakers(pid)} == cpus
    policy = os.SCHED_FIFO if may_be_realtime() else os.SCHED_OTHER
    until(lambda: {os.sched_getscheduler(each) for each in wakers(pid)} == {policy}, "the policy")
    before = {each: switches(each) for each in wakers(pid)}
    until(lambda: all(switches(each) > count + 100 for each, count in before.items()), "100 wake-ups of each thread")


SLICE = """
import os, threading, time
threading.Thread(target=time.sleep, args=(1000,), daemon=True).start()
child = os.fork()
if child == 0:
    time.sleep(1000)
print(child, flush=True)
os.wait()
"""


def slice_ns(thread: int) -> int:
    """Return the time slice that a thread has set, 0 on kernels without such slices."""
    size = 56
    attributes = ctypes.create_string_buffer(size)
    number = {"x86_64": 315, "aarch64": 275}[platform.machine()]
    assert ctypes.CDLL(None).syscall(number, thread, attributes, size, 0) == 0
    return int.from_bytes(attributes.raw[24:32], sys.byteorder)


def has_slices() -> bool:
    """Whether this kernel lets processes choose their slices (Linux 6.12 and later)."""
    return tuple(map(int, platform.release().split(".")[:2])) >= (6, 12)


def test_the_platform_has_short_slices_while_it_is_needed() -> None:
    with subprocess.Popen([sys.executable, "-c", SLICE], stdout=subprocess.PIPE) as supervisor:
        assert supervisor.stdout is not None
        child = int(supervisor.stdout.readline())
        rescheduler = Rescheduler(supervisor.pid)
        try:
            rescheduler.update(True, now=0.0)
            expected = slices.SLICE_NS if has_slices() else 0
            everyone = [supervisor.pid, *map(int, os.listdir(f"/proc/{supervisor.pid}/task")), child]
            until(lambda: {slice_ns(each) for each in everyone} == {expected}, "short slices")
        finally:
            rescheduler.stop()
            os.kill(child, signal.SIGKILL)
            supervisor.kill()


@pytest.mark.parametrize("is_inherited", [False, True])
def test_processes_that_the_platform_starts_have_a_short_slice_only_if_it_says_so(is_inherited: bool) -> None:
    code = "import os, time; from moorage.runtime.workers.cpu import slices;"
    code += f"slices.shorten(os.getpid(), is_inherited={is_inherited});"
    code += "child = os.fork(); child or time.sleep(1000); print(child, flush=True); time.sleep(1000)"
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE) as parent:
        assert parent.stdout is not None
        child = int(parent.stdout.readline())
        found = slice_ns(parent.pid), slice_ns(child)
        for pid in (child, parent.pid):
            os.kill(pid, signal.SIGKILL)

    assert (found[0] == slices.SLICE_NS) is has_slices()
    assert (found[1] == slices.SLICE_NS) is (is_inherited and has_slices())


def test_it_ends_a_while_after_it_was_needed_and_comes_back(rescheduler: Rescheduler) -> None:
    rescheduler.update(True, now=0.0)
    process = rescheduler.process
    assert process is not None
    rescheduler.update(False, now=LINGER_S - 1)
    is_kept = rescheduler.process is process

    rescheduler.update(False, now=LINGER_S + 1)

    assert is_kept
    assert process.wait(30) == 0
    assert rescheduler.process is None
    rescheduler.update(True, now=LINGER_S + 2)
    assert pid_of(rescheduler) != process.pid


def test_one_that_was_killed_is_started_again(rescheduler: Rescheduler) -> None:
    rescheduler.update(True, now=0.0)
    first = pid_of(rescheduler)
    os.kill(first, signal.SIGKILL)

    def is_replaced() -> bool:
        rescheduler.update(True, now=1.0)
        return pid_of(rescheduler) != first

    until(is_replaced, "another process")


def test_it_ends_with_the_process_that_started_it() -> None:
    with subprocess.Popen([sys.executable, "-c", NEEDS_IT], stdout=subprocess.PIPE) as invoker:
        assert invoker.stdout is not None
        pid = int(invoker.stdout.readline())
        started = Path(f"/proc/{pid}").exists()
        invoker.kill()

    deadline = time.monotonic() + 30
    while Path(f"/proc/{pid}/exe").exists() and time.monotonic() < deadline:
        time.sleep(0.02)
    assert started
    assert not Path(f"/proc/{pid}/exe").exists()
