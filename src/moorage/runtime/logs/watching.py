"""Notifications about changed log folders, by inotify: a follower of an idle log causes no work.

One inotify instance serves all folders: the kernel allows 128 per user, and needs up to 30 ms to close one. A watch
reports one event and is then removed, so a log that is written all the time wakes its followers only while they wait.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import os
import struct
from collections.abc import Callable
from dataclasses import field
from pathlib import Path

from moorage.core.kit.records import dataclass

IN_MODIFY, IN_MOVED_TO, IN_CREATE, IN_DELETE_SELF, IN_MOVE_SELF = 0x2, 0x80, 0x100, 0x400, 0x800
IN_ONLYDIR, IN_MASK_ADD, IN_ONESHOT = 0x01000000, 0x20000000, 0x80000000
FLAGS = IN_ONLYDIR | IN_MASK_ADD | IN_ONESHOT  # A log may also be the closest parent of another log: both masks hold.
WRITTEN = IN_MODIFY | IN_MOVED_TO | IN_CREATE | IN_DELETE_SELF | IN_MOVE_SELF
CREATED = IN_MOVED_TO | IN_CREATE | IN_DELETE_SELF | IN_MOVE_SELF
EVENT = struct.Struct("=iIII")  # watch, mask, cookie, length of the name that follows
READ_BYTES = 64 * 1024


@dataclass(eq=False)
class _Watch:
    """A watch of the kernel, and the followers that wait for it."""

    number: int
    changes: set[Change] = field(default_factory=set)


class Change:
    """The next change of a folder. Close it after use."""

    def __init__(self, close: Callable[[Change], None]) -> None:
        self.happened = asyncio.Event()
        self._close = close

    async def wait(self, timeout_s: float) -> None:
        """Return after the change, or after the timeout."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                await self.happened.wait()

    def close(self) -> None:
        """Stop the watch if no other follower waits for it. Safe to repeat."""
        self._close(self)


class FolderWatcher:
    """Watches folders for files that are added or written. Used by one event loop."""

    def __init__(self) -> None:
        self._fd = -1
        self._watches: dict[int, _Watch] = {}

    def next_change(self, folder: Path) -> Change | None:
        """Watch a folder, or its closest existing parent; None if the kernel has no watch left.

        Changes before this call are not reported, so the caller reads the folder afterwards.
        """
        try:
            number = self._add(folder)
        except OSError:
            return None
        watch = self._watches.setdefault(number, _Watch(number))
        change = Change(self._forget)
        watch.changes.add(change)
        return change

    def _add(self, folder: Path) -> int:
        if self._fd < 0:
            self._fd = _libc("inotify_init1", os.O_NONBLOCK | os.O_CLOEXEC)
            asyncio.get_running_loop().add_reader(self._fd, self._read)
        path, mask = folder, WRITTEN
        while True:
            try:
                number = _libc("inotify_add_watch", self._fd, os.fsencode(path), mask | FLAGS)
            except FileNotFoundError:
                path, mask = path.parent, CREATED
                continue
            if path == folder or not folder.exists():
                return number
            path, mask = folder, WRITTEN  # created between the two calls

    def _read(self) -> None:
        data = os.read(self._fd, READ_BYTES)
        offset = 0
        while offset < len(data):
            number, _, _, length = EVENT.unpack_from(data, offset)
            offset += EVENT.size + length
            if number < 0:  # The kernel's queue was full, and events were lost.
                for lost in list(self._watches.values()):
                    self._end(lost)
            elif watch := self._watches.get(number):
                self._end(watch)

    def _end(self, watch: _Watch) -> None:
        del self._watches[watch.number]
        for change in watch.changes:
            change.happened.set()

    def _forget(self, change: Change) -> None:
        for watch in [each for each in self._watches.values() if change in each.changes]:
            watch.changes.discard(change)
            if not watch.changes:
                del self._watches[watch.number]
                with contextlib.suppress(OSError):  # removed by the kernel, with an event that is not read yet
                    _libc("inotify_rm_watch", self._fd, watch.number)

    def __del__(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)


def _libc(name: str, *arguments: int | bytes) -> int:
    result = getattr(ctypes.CDLL(None, use_errno=True), name)(*arguments)
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return int(result)
