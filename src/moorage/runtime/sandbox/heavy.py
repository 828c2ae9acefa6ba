"""Heavy work for one tenant, such as unpacking and scanning an upload, in processes of low priority.

In a thread it would compete with the event loop for the interpreter lock, and have the processor share of the platform.
A process is started when there is work, and ends when there was none for a while. `heavy_child` is its other end.
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

from moorage.core.kit import children
from moorage.core.kit.children import Child
from moorage.errors import Internal

PROCESSES = 2  # Two, so that a large upload of one organization does not hold up all others.
IDLE_S = 30.0
LONGEST_ANSWER = 2**20
_KEPT = ("PATH", "LANG", "LC_ALL", "PYTHONPATH", "VIRTUAL_ENV", "TMPDIR")


class Refused(Exception):
    """The work found something wrong with what it was given; the message says what."""


class HeavyWork:
    """Runs functions of modules. An organization has one at a time, and waits for its turn."""

    def __init__(self, processes: int = PROCESSES, idle_s: float = IDLE_S) -> None:
        self._free = asyncio.Semaphore(processes)
        self._idle_s = idle_s
        self._idle: list[Child] = []
        self._timer: asyncio.TimerHandle | None = None
        self._turns: dict[int, asyncio.Lock] = {}
        self._waiting: Counter[int] = Counter()

    async def run(self, org_id: int, work: str, *args: str) -> Any:
        """Run `module:function` and return its result, which JSON can hold; raises Refused with the work's own reason.

        A process that is killed is replaced once. Cancelling ends the process.
        """
        turn = self._turns.setdefault(org_id, asyncio.Lock())
        self._waiting[org_id] += 1
        try:
            async with turn, self._free:
                answer = await self._ask(work, args) or await self._ask(work, args)
        finally:
            self._waiting[org_id] -= 1
            if not self._waiting[org_id]:
                del self._waiting[org_id], self._turns[org_id]
        match answer:
            case {"result": result}:
                return result
            case {"refused": str(why)}:
                raise Refused(why)
            case {"error": str(why)}:
                raise RuntimeError(why)
        raise Internal("a process of low priority ended before its work was done")

    def close(self) -> None:
        """End the processes that wait for work. Safe to repeat."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        idle, self._idle = self._idle, []
        for process in idle:
            _end(process)

    async def _ask(self, work: str, args: tuple[str, ...]) -> dict[str, Any] | None:
        """Let a process work; return None where it ended."""
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
            _end(process)
            raise
        if not line:
            _end(process)
            return None
        self._idle.append(process)
        self._timer = asyncio.get_running_loop().call_later(self._idle_s, self.close)
        answer: dict[str, Any] = msgspec.json.decode(line)
        return answer


async def _start() -> Child:
    # Nothing is imported from the folder that the platform was started in (-P).
    return await children.start(
        [sys.executable, "-P", "-m", "moorage.runtime.sandbox.heavy_child"],
        env={name: os.environ[name] for name in _KEPT if name in os.environ},
        stdin=PIPE,
        limit=LONGEST_ANSWER,
    )


def _end(process: Child) -> None:
    with contextlib.suppress(ProcessLookupError):
        process.kill_now()
