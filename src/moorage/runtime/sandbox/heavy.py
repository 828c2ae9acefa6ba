"""Pool of low-priority processes for CPU-heavy work, such as scanning an upload.

A thread would compete with the event loop for the interpreter lock, and use the platform's CPU share. A process starts
when there is work and ends after an idle time. `heavy_child` is the code of the processes.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
from collections import Counter
from subprocess import PIPE
from typing import Any

import msgspec

from moorage.core.kit.processes import children
from moorage.core.kit.processes.children import Child
from moorage.errors import Internal

PROCESSES = 3  # so that a large upload of one organization does not block all others
IDLE_TIMEOUT_S = 30.0
MAX_ANSWER_BYTES = 2**20
_INHERITED_ENV = ("PATH", "LANG", "LC_ALL", "PYTHONPATH", "VIRTUAL_ENV", "TMPDIR")


class Refused(Exception):
    """The work rejects its input; the message is the reason."""


class HeavyWork:
    """Runs functions in the pool, one at a time per organization."""

    def __init__(self, processes: int = PROCESSES, idle_s: float = IDLE_TIMEOUT_S) -> None:
        self._free = asyncio.Semaphore(processes)
        self._idle_s = idle_s
        self._idle: list[Child] = []
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
            async with lock, self._free:
                answer = await self._call(work, args) or await self._call(work, args)
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
        idle, self._idle = self._idle, []
        for process in idle:
            _kill(process)

    async def _call(self, work: str, args: tuple[str, ...]) -> dict[str, Any] | None:
        """Run the work in a process and return its answer; None if the process ended."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        process = self._idle.pop() if self._idle else await _start()
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
        self._idle.append(process)
        self._timer = asyncio.get_running_loop().call_later(self._idle_s, self.close)
        answer: dict[str, Any] = msgspec.json.decode(line)
        return answer


async def _start() -> Child:
    # -P: do not import modules from the working directory.
    return await children.start(
        [sys.executable, "-P", "-m", "moorage.runtime.sandbox.heavy_child"],
        env={name: os.environ[name] for name in _INHERITED_ENV if name in os.environ},
        stdin=PIPE,
        limit=MAX_ANSWER_BYTES,
    )


def _kill(process: Child) -> None:
    with contextlib.suppress(ProcessLookupError):
        process.kill_now()
