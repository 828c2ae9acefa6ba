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

STILL = "TtZX"  # stopped, stopped by who traces it, dead
STOP_S = 30.0  # for processes that wait for a disk; nothing else keeps one from stopping
PAUSE_S = 0.001
Shim = tuple[int, int]  # number and start of a process, which name it for good


class CannotHold(OSError):
    """Processes do not stop; all go on."""


@contextlib.contextmanager
def held(shims: Sequence[Shim]) -> Iterator[frozenset[int]]:
    """Stop everything below these, and give who was stopped; at the end all go on, even if we are killed meanwhile."""
    if not shims:
        yield frozenset()
        return
    with _guarded(shims):
        try:
            yield _stop(shims)
        finally:
            _go_on(shims)


@contextlib.contextmanager
def _guarded(shims: Sequence[Shim]) -> Iterator[None]:
    argv = [sys.executable, "-m", "moorage.platform.backups.freezing", *(f"{pid}:{started}" for pid, started in shims)]
    with subprocess.Popen(
        argv,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env=network.environment(),
        cwd="/",
        start_new_session=True,  # Whoever interrupts us must not end it too.
    ) as guard:
        assert guard.stdin is not None
        assert guard.stdout is not None
        if not guard.stdout.readline():
            raise CannotHold("nobody would let database servers go on if this process was killed; is memory short?")
        try:
            yield
        finally:
            guard.stdin.close()


def below(shims: Sequence[Shim]) -> frozenset[int]:
    """Return all processes below shims that still are who they were."""
    living = [pid for pid, started in shims if process_tree.started(pid) == started]
    return frozenset(process_tree.with_descendants(child for pid in living for child in process_tree.children(pid)))


def is_still(pid: int) -> bool:
    """Tell whether no thread of a process does anything; the system finishes what was begun before one stops."""
    for thread in process_tree.threads(pid):
        with contextlib.suppress(OSError):
            if read(f"/proc/{pid}/task/{thread}/stat").rpartition(")")[2].split()[0] not in STILL:
                return False
    return True


def _stop(shims: Sequence[Shim]) -> frozenset[int]:
    """Stop all, those too that are started meanwhile."""
    deadline, before = time.monotonic() + STOP_S, frozenset[int]()
    while True:
        found = below(shims)
        moving = [pid for pid in found if not is_still(pid)]
        # Whoever stands still starts nobody, so a second look finds those whom the first one has missed.
        if not moving and found == before:
            return found
        before = found
        _send(moving, signal.SIGSTOP)
        if time.monotonic() > deadline:
            raise CannotHold(f"{len(moving)} processes of a database server do not stop; is the disk in order?")
        time.sleep(PAUSE_S)


def _go_on(shims: Sequence[Shim]) -> None:
    _send(below(shims), signal.SIGCONT)


def _send(pids: Sequence[int] | frozenset[int], number: signal.Signals) -> None:
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)


def main(argv: list[str]) -> None:
    shims = [(int(pid), int(started)) for pid, started in (word.split(":") for word in argv)]
    print("watching", flush=True)
    sys.stdin.read()
    _go_on(shims)


if __name__ == "__main__":
    main(sys.argv[1:])
