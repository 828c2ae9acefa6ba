"""Logs of the workloads of this machine: one folder of files for each."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from functools import partial
from pathlib import Path

from moorage.core.kit import folders
from moorage.runtime.engines.ports import LogLine
from moorage.runtime.logs import logfile, watching
from moorage.runtime.logs.reader import Cursor, LogFolder

POLL_INTERVAL_S = 0.2  # of a reader that waits without a watch


class LocalLogs:
    def __init__(self, root: Path) -> None:
        self._root = root
        self._watcher: watching.FolderWatcher | None = None  # made on first use

    async def read(
        self, log: str, *, since: int | None = None, until: int | None = None, search: str | None = None, limit: int
    ) -> list[LogLine]:
        read = partial(self.folder(log).read, since=since, until=until, search=search, limit=limit)
        return await asyncio.to_thread(read)

    async def open(self, log: str, *, after: str | None = None, tail: int | None = None) -> LocalLogReader:
        cursor, first = await asyncio.to_thread(_begin, self.folder(log), after, tail)
        return LocalLogReader(self, log, cursor, first)

    def writer(self, log: str, key: str, hidden: Iterable[str]) -> logfile.LogFile:
        return logfile.LogFile(self._root / log, key, hidden)

    async def forget(self, log: str) -> None:
        await asyncio.to_thread(folders.remove, self._root / log)

    async def trim(self, group: str, now_ms: int) -> None:
        await asyncio.to_thread(logfile.trim_each, self._root / group, now_ms)

    def next_change(self, log: str) -> watching.Change | None:
        """Watch the folder of a log; None if the kernel has no watch left."""
        self._watcher = self._watcher or watching.FolderWatcher()
        return self._watcher.next_change(self._root / log)

    def folder(self, log: str) -> LogFolder:
        return LogFolder(self._root / log)


class LocalLogReader:
    def __init__(self, logs: LocalLogs, log: str, cursor: Cursor, first: list[LogLine]) -> None:
        self._logs = logs
        self._log = log
        self._folder = logs.folder(log)
        self._cursor = cursor
        self._first = first  # lines before the cursor, returned by the next call of `news`

    async def news(self) -> list[LogLine]:
        first, self._first = self._first, []
        return first or await asyncio.to_thread(self._folder.news, self._cursor)

    async def wait(self, timeout_s: float) -> None:
        change = self._logs.next_change(self._log)
        if change is None:
            await asyncio.sleep(min(POLL_INTERVAL_S, timeout_s))
            return
        try:
            self._first = await self.news()  # written before the watch began
            if not self._first:
                await change.wait(timeout_s)
        finally:
            change.close()


def _begin(folder: LogFolder, after: str | None, tail: int | None) -> tuple[Cursor, list[LogLine]]:
    """Return the first position of a reader, and the lines before it that the reader returns first."""
    seen = Cursor.parse(after) if after else None
    if seen is not None:
        return folder.resume(seen), []
    if tail is None:
        return Cursor(0), []
    return folder.tail(tail)
