"""SIGSTOP the process trees of shims while their files are copied.

`python -m moorage.platform.backups.freezing PID:STARTED ...` is the guard: it sends SIGCONT when its standard input
closes, which also happens when the process that copies is killed. Each argument is a shim; its whole tree is stopped.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence

from moorage.runtime.sandbox.cgroups.files import read
from moorage.runtime.sandbox.network import setup as network
from moorage.runtime.sandbox.usage import process_tree

STOPPED_STATES = "TtZX"  # /proc state of a thread: stopped, stopped by a tracer, zombie, dead
STOP_TIMEOUT_S = 30.0  # Only a thread that waits for a disk does not stop at once.
POLL_INTERVAL_S = 0.001
Shim = tuple[int, int]  # PID and start time, which identify a process


class CannotFreeze(OSError):
    """A process does not stop; all processes were continued."""


@contextlib.contextmanager
def frozen(shims: Sequence[Shim]) -> Iterator[frozenset[int]]:
    """Stop the descendants of these shims, yield their PIDs, then continue them.

    They are also continued when this process is killed.
    """
    if not shims:
        yield frozenset()
        return
    with _guarded(shims):
        try:
            yield _stop(shims)
        finally:
            _continue(shims)


@contextlib.contextmanager
def _guarded(shims: Sequence[Shim]) -> Iterator[None]:
    argv = [sys.executable, "-m", "moorage.platform.backups.freezing", *(f"{pid}:{started}" for pid, started in shims)]
    with subprocess.Popen(
        argv,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env=network.environment(),
        cwd="/",
        start_new_session=True,  # An interrupt of this process must not end the guard.
    ) as guard:
        assert guard.stdin is not None
        assert guard.stdout is not None
        if not guard.stdout.readline():
            raise CannotFreeze("cannot start the process that continues stopped database servers; is memory short?")
        try:
            yield
        finally:
            guard.stdin.close()


def descendants(shims: Sequence[Shim]) -> frozenset[int]:
    """Return all descendants of the shims that still run."""
    living = [pid for pid, started in shims if process_tree.started(pid) == started]
    return frozenset(process_tree.with_descendants(child for pid in living for child in process_tree.children(pid)))


def is_stopped(pid: int) -> bool:
    """Return whether all threads are stopped; their system calls are finished then."""
    for thread in process_tree.threads(pid):
        with contextlib.suppress(OSError):
            if read(f"/proc/{pid}/task/{thread}/stat").rpartition(")")[2].split()[0] not in STOPPED_STATES:
                return False
    return True


def _stop(shims: Sequence[Shim]) -> frozenset[int]:
    """Stop all descendants, also those that are started meanwhile."""
    deadline, previous = time.monotonic() + STOP_TIMEOUT_S, frozenset[int]()
    while True:
        pids = descendants(shims)
        running = [pid for pid in pids if not is_stopped(pid)]
        # A stopped process starts no other, so a second pass finds all that the first one missed.
        if not running and pids == previous:
            return pids
        previous = pids
        _send(running, signal.SIGSTOP)
        if time.monotonic() > deadline:
            raise CannotFreeze(f"{len(running)} processes of a database server do not stop; check the disk")
        time.sleep(POLL_INTERVAL_S)


def _continue(shims: Sequence[Shim]) -> None:
    _send(descendants(shims), signal.SIGCONT)


def _send(pids: Sequence[int] | frozenset[int], number: signal.Signals) -> None:
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)


def main(argv: list[str]) -> None:
    shims = [(int(pid), int(started)) for pid, started in (word.split(":") for word in argv)]
    print("watching", flush=True)
    sys.stdin.read()
    _continue(shims)


if __name__ == "__main__":
    main(sys.argv[1:])
