"""Pool of low-priority processes for CPU-heavy work, such as scanning an upload.

A thread would compete with the event loop for the interpreter lock, and use the platform's CPU share. A process starts
when there is work and ends after an idle time. `heavy_child` is the code of the processes.

An organization that uses much CPU time gets processes in the idle class of the scheduler, so that its uploads take only
the CPU time that no other organization uses.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
import time
from collections import Counter
from functools import partial
from subprocess import PIPE
from typing import Any

import msgspec

from moorage.core.kit.processes import children
from moorage.core.kit.processes.children import Child
from moorage.errors import Internal

PROCESSES = 3  # so that a large upload of one organization does not block all others
IDLE_TIMEOUT_S = 30.0
MAX_ANSWER_BYTES = 2**20
MAX_CREDIT_S = 0.5  # CPU time that an organization may use at once before it gets the idle class
EARNED_SHARE = 0.1  # of one core: CPU time that an organization earns
MAX_CHARGED_S = 2 * MAX_CREDIT_S  # An organization gets the normal class again after ten seconds without work.
IDLE_CLASS_OPTION = "--idle-class"
_INHERITED_ENV = ("PATH", "LANG", "LC_ALL", "PYTHONPATH", "VIRTUAL_ENV", "TMPDIR")


class Refused(Exception):
    """The work rejects its input; the message is the reason."""


class CpuCredits:
    """CPU time that organizations may use before they get the idle class."""

    def __init__(self) -> None:
        self._charged: dict[int, tuple[float, float]] = {}  # by organization: CPU time used, and when it was charged

    def charge(self, org_id: int, cpu_s: float) -> None:
        self._charged[org_id] = min(MAX_CHARGED_S, self._used_s(org_id) + cpu_s), time.monotonic()
        for org in [org for org in self._charged if not self._used_s(org)]:
            del self._charged[org]

    def are_spent(self, org_id: int) -> bool:
        return self._used_s(org_id) > MAX_CREDIT_S

    def _used_s(self, org_id: int) -> float:
        used_s, at = self._charged.get(org_id, (0.0, 0.0))
        return max(0.0, used_s - EARNED_SHARE * (time.monotonic() - at))


class HeavyWork:
    """Runs functions in the pool, one at a time per organization."""

    def __init__(self, processes: int = PROCESSES, idle_s: float = IDLE_TIMEOUT_S, *, has_credits: bool = True) -> None:
        """Without credits, work never gets the idle class."""
        # Work in the idle class may take long on a busy machine, so other work does not wait for its processes.
        self._free = {in_idle_class: asyncio.Semaphore(processes) for in_idle_class in (False, True)}
        self._idle_s = idle_s
        self._has_credits = has_credits
        self._credits = CpuCredits()
        self._idle: dict[bool, list[Child]] = {False: [], True: []}  # by whether they are in the idle class
        self._timer: asyncio.TimerHandle | None = None
        self._locks: dict[int, asyncio.Lock] = {}
        self._calls: Counter[int] = Counter()

    async def run(self, org_id: int, work: str, *args: str) -> Any:
        """Run `module:function` and return its JSON result; raises Refused.

        If the process is killed, the work is retried once. Cancelling kills the process.
        """
        lock = self._locks.setdefault(org_id, asyncio.Lock())
        self._calls[org_id] += 1
        try:
            async with lock:
                in_idle_class = self._has_credits and self._credits.are_spent(org_id)
                async with self._free[in_idle_class]:
                    call = partial(self._call, in_idle_class, work, args)
                    answer = await call() or await call()
            if answer is not None:
                self._credits.charge(org_id, answer["cpu_s"])
        finally:
            self._calls[org_id] -= 1
            if not self._calls[org_id]:
                del self._calls[org_id], self._locks[org_id]
        match answer:
            case {"result": result}:
                return result
            case {"refused": str(reason)}:
                raise Refused(reason)
            case {"error": str(trace)}:
                raise RuntimeError(trace)
        raise Internal("a low-priority process ended before its work was done")

    def close(self) -> None:
        """Kill the idle processes. Safe to repeat."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        idle = [process for processes in self._idle.values() for process in processes]
        for processes in self._idle.values():
            processes.clear()
        for process in idle:
            _kill(process)

    async def _call(self, in_idle_class: bool, work: str, args: tuple[str, ...]) -> dict[str, Any] | None:
        """Run the work in a process and return its answer; None if the process ended."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        idle = self._idle[in_idle_class]
        process = idle.pop() if idle else await _start(in_idle_class)
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            process.stdin.write(msgspec.json.encode([work, *args]) + b"\n")
            line = await process.stdout.readline()
        except ConnectionError:
            line = b""
        except BaseException:
            _kill(process)
            raise
        if not line:
            _kill(process)
            return None
        idle.append(process)
        self._timer = asyncio.get_running_loop().call_later(self._idle_s, self.close)
        answer: dict[str, Any] = msgspec.json.decode(line)
        return answer


async def _start(in_idle_class: bool) -> Child:
    # -P: do not import modules from the working directory.
    command = [sys.executable, "-P", "-m", "moorage.runtime.sandbox.heavy_child"]
    return await children.start(
        [*command, *([IDLE_CLASS_OPTION] if in_idle_class else [])],
        env={name: os.environ[name] for name in _INHERITED_ENV if name in os.environ},
        stdin=PIPE,
        limit=MAX_ANSWER_BYTES,
    )


def _kill(process: Child) -> None:
    with contextlib.suppress(ProcessLookupError):
        process.kill_now()
