"""Copy the output of starting replicas into the log of their deployment."""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import AsyncIterator, Container
from typing import cast

from moorage.products.apps.logs.log_files import POLL_INTERVAL_S, AppLogs, Cursor, LogLine
from moorage.products.projects.deployments.logs import LogWriter, Stream

MAX_LINES = 200  # of a start, in the log of the deployment
LAST_LINES = 40  # of a longer start that failed


class StartOutput:
    """Copies the lines of `keys` that are written after `cursor`, up to MAX_LINES."""

    def __init__(self, logs: AppLogs, project_id: int, cursor: Cursor, log: LogWriter) -> None:
        self.keys: Container[str] = ()
        self._logs = logs
        self._project_id = project_id
        self._cursor = cursor
        self._log = log
        self.recent: deque[str] = deque(maxlen=MAX_LINES)  # output of the app, without lines of the platform
        self._is_over = asyncio.Event()
        self._copied = 0
        self._last: deque[LogLine] = deque(maxlen=LAST_LINES)  # of those that were not copied

    @classmethod
    async def begin(cls, logs: AppLogs, project_id: int, log: LogWriter) -> StartOutput:
        """Skip all lines that exist already."""
        return cls(logs, project_id, await asyncio.to_thread(logs.end, project_id), log)

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
        await self._copy()

    async def _copy(self) -> None:
        lines = await asyncio.to_thread(self._logs.news, self._project_id, self._cursor)
        for line in lines:
            if line.replica not in self.keys:
                continue
            if line.stream != "system":
                self.recent.append(line.message)
            if self._copied < MAX_LINES:
                self._write(line)
            else:
                self._last.append(line)
            self._copied += 1

    def _write_last(self) -> None:
        left_out = self._copied - MAX_LINES - len(self._last)
        if left_out > 0:
            self._log.say(f"{left_out} lines of the app's output are not shown here")
        for line in self._last:
            self._write(line)

    def _write(self, line: LogLine) -> None:
        self._log.write(cast(Stream, line.stream), f"{line.message}\n")
