"""Copy the output of starting replicas into the log of their deployment."""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import AsyncIterator, Container
from typing import cast

from moorage.products.apps.logs.following import POLL_INTERVAL_S, log_of
from moorage.products.projects.deployments.logs import LogWriter, Stream
from moorage.runtime.engines.ports import LogLine, LogReader, Logs

MAX_LINES = 200  # of a start, in the log of the deployment
# Of the last attempt of a longer start that failed. A stack trace has its cause at its beginning or at its end.
FIRST_LINES = 160
LAST_LINES = 40
MAX_LAST_BATCHES = 100  # that are read after the end: an app may print faster than that


class _Attempt:
    """Output of one process of a replica: the first and the last lines of it."""

    def __init__(self, *, most_first: int = FIRST_LINES) -> None:
        self.first: list[LogLine] = []
        self.last: deque[LogLine] = deque(maxlen=LAST_LINES)
        self.has_ended = False
        self._most_first = most_first
        self._added = 0

    def add(self, line: LogLine) -> None:
        self._added += 1
        if len(self.first) < self._most_first:
            self.first.append(line)
        else:
            self.last.append(line)

    @property
    def shown(self) -> int:
        return len(self.first) + len(self.last)

    @property
    def left_out(self) -> int:
        return self._added - self.shown


class StartOutput:
    """Copies the lines of `keys` that a reader returns, up to MAX_LINES."""

    def __init__(self, reader: LogReader, log: LogWriter) -> None:
        self.keys: Container[str] = ()
        self._reader = reader
        self._log = log
        self.recent: deque[str] = deque(maxlen=MAX_LINES)  # output of the app, without lines of the platform
        self._is_over = asyncio.Event()
        self._copied = 0
        # Of the lines that were not copied: the last two attempts of each replica, and the replica of the last line.
        self._attempts: dict[str, deque[_Attempt]] = {}
        self._replica = ""

    @classmethod
    async def begin(cls, logs: Logs, project_id: int, log: LogWriter) -> StartOutput:
        """Skip all lines that exist already."""
        return cls(await logs.open(log_of(project_id), tail=0), log)

    @contextlib.asynccontextmanager
    async def copied(self) -> AsyncIterator[None]:
        """Copy lines while the context is open, and the remaining lines when it closes."""
        task = asyncio.create_task(self._run())
        has_failed = True
        try:
            yield
            has_failed = False
        finally:
            self._is_over.set()
            await task
            if has_failed:
                self._write_last()

    async def _run(self) -> None:
        while not self._is_over.is_set():
            await self._copy()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._is_over.wait(), POLL_INTERVAL_S)
        for _ in range(MAX_LAST_BATCHES):
            if not await self._copy():
                return

    async def _copy(self) -> bool:
        """Copy the next batch of lines; return whether there was one."""
        lines = await self._reader.news()
        for line in lines:
            if line.replica not in self.keys:
                continue
            if line.stream != "system":
                self.recent.append(line.message)
            if self._copied < MAX_LINES:
                self._write(line)
            else:
                self._keep(line)
            self._copied += 1
        return bool(lines)

    def _keep(self, line: LogLine) -> None:
        """Keep a line that is shown if the start fails; a process ends with a line of the platform."""
        self._replica = line.replica
        # The first process may have begun in the lines that were copied.
        attempts = self._attempts.setdefault(line.replica, deque([_Attempt(most_first=0)], maxlen=2))
        if attempts[-1].has_ended and line.stream != "system":
            attempts.append(_Attempt())
        attempts[-1].add(line)
        attempts[-1].has_ended = line.stream == "system"

    def _write_last(self) -> None:
        """Write the last process from its first line; with the one before, if it still runs."""
        attempts = list(self._attempts.get(self._replica, ()))
        if len(attempts) > 1 and attempts[-1].has_ended:
            del attempts[0]
        left_out = self._copied - MAX_LINES - sum(each.shown + each.left_out for each in attempts)
        for attempt in attempts:
            self._say_left_out(left_out)
            for line in attempt.first:
                self._write(line)
            self._say_left_out(attempt.left_out)
            for line in attempt.last:
                self._write(line)
            left_out = 0

    def _say_left_out(self, lines: int) -> None:
        if lines > 0:
            self._log.say(f"{lines} lines of the app's output are not shown here")

    def _write(self, line: LogLine) -> None:
        self._log.write(cast(Stream, line.stream), f"{line.message}\n")
