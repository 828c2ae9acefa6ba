"""Logs of the workloads of this machine: one folder of files for each."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from functools import partial
from pathlib import Path

from moorage.core.kit import folders
from moorage.runtime.engines.ports import LogLine
from moorage.runtime.logs import logfile
from moorage.runtime.logs.reader import Cursor, LogFolder


class LocalLogs:
    def __init__(self, root: Path) -> None:
        self._root = root

    async def read(
        self, log: str, *, since: int | None = None, until: int | None = None, search: str | None = None, limit: int
    ) -> list[LogLine]:
        read = partial(self._folder(log).read, since=since, until=until, search=search, limit=limit)
        return await asyncio.to_thread(read)

    async def open(self, log: str, *, after: str | None = None, tail: int | None = None) -> LocalLogReader:
        return await asyncio.to_thread(_open, self._folder(log), after, tail)

    def writer(self, log: str, key: str, hidden: Iterable[str]) -> logfile.LogFile:
        return logfile.LogFile(self._root / log, key, hidden)

    async def forget(self, log: str) -> None:
        await asyncio.to_thread(folders.remove, self._root / log)

    async def trim(self, group: str, now_ms: int) -> None:
        await asyncio.to_thread(logfile.trim_each, self._root / group, now_ms)

    def _folder(self, log: str) -> LogFolder:
        return LogFolder(self._root / log)


class LocalLogReader:
    def __init__(self, folder: LogFolder, cursor: Cursor, first: list[LogLine]) -> None:
        self._folder = folder
        self._cursor = cursor
        self._first = first  # lines before the cursor, returned by the first call

    async def news(self) -> list[LogLine]:
        first, self._first = self._first, []
        return first or await asyncio.to_thread(self._folder.news, self._cursor)


def _open(folder: LogFolder, after: str | None, tail: int | None) -> LocalLogReader:
    seen = Cursor.parse(after) if after else None
    if seen is not None:
        return LocalLogReader(folder, folder.resume(seen), [])
    if tail is None:
        return LocalLogReader(folder, Cursor(0), [])
    return LocalLogReader(folder, *folder.tail(tail))
