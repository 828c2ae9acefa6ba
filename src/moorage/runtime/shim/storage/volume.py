"""The folder that an app keeps: how much it holds, and a stop to more of it when that is too much."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
import time
from collections.abc import Callable, Iterable

from moorage.core.kit import folders
from moorage.runtime.engines.ports import CannotStart
from moorage.runtime.sandbox import syscalls as sys_
from moorage.runtime.sandbox.usage import quotas
from moorage.runtime.sandbox.usage.open_files import UnnamedFiles
from moorage.runtime.shim.child import DATA

MB = 2**20
LEAST_PAUSE_S, QUIET_PAUSE_S = 4.0, 16.0  # between two looks, without and with nothing that has changed
CHANGE = 2**20  # Less is no change.
LOOK_S = 60.0  # between two looks, at most, at a folder whose free space gives no reason for one
NEAR_SHARE = 10  # the same while the disk of the machine is nearly full
SERVER_SHARE = 3  # A server is ended at so many times its disk: its data, and the two copies that a sort of it takes.
SHARE = 100  # of the time may be spent with such looks: one in so many
ENTRIES_PER_TURN = 200  # The shim answers for the app's network too, and a folder may hold a million files.
WRITABLE_AGAIN = 0.95
TAKEN_S = 3.0  # What was killed has let go of everything after this.
PAUSE_S = 0.02


class Volume:
    """Counts what a volume holds, deleted files that the app still has open included.

    Walking may be slow, so free space tells when to look: nothing can be written without it. Others use and free the
    same disk, so what is walked quickly is looked at often all the same.
    """

    def __init__(self, folder: str, disk_mb: int, *, is_boxed: bool = True, is_server: bool = False) -> None:
        self._folder = folder
        self._most = disk_mb * MB * (SERVER_SHARE if is_server else 1)
        self._is_server = is_server
        self.looked_at = float("-inf")
        self._took_s = 0.0
        self._pause = LEAST_PAUSE_S
        self._free = free_bytes(folder) if is_server else 0
        self._unnamed = UnnamedFiles({DATA: folder}, is_boxed=is_boxed)
        self.used = 0
        self.is_full = False

    async def look(self, processes: Callable[[], Iterable[int]] = tuple, *, drop: int | None = None) -> None:
        """Find out what it holds, unless that cannot have become too much, and whether that is too much.

        With `drop`, look as well when the free space has become less by so many bytes.
        """
        free = free_bytes(self._folder)
        if not self._is_due(free, drop):
            return
        self.looked_at, self._free = time.monotonic(), free
        before, self.used = self.used, await self._used_bytes(processes)
        self._took_s = time.monotonic() - self.looked_at
        has_changed = abs(self.used - before) >= CHANGE
        self._pause = LEAST_PAUSE_S if has_changed else min(2 * self._pause, QUIET_PAUSE_S)
        if self._most:
            self.is_full = self.used > self._most * (WRITABLE_AGAIN if self.is_full else 1)

    def _is_due(self, free: int, drop: int | None) -> bool:
        since_s, less = time.monotonic() - self.looked_at, self._free - free
        if drop is not None and less >= drop and since_s > NEAR_SHARE * self._took_s:
            return True
        if self._is_server:  # The control process walks its folder every minute; this is for what cannot wait.
            self._free = max(self._free, free)
            return bool(self._most) and less > self._most // SERVER_SHARE
        if since_s > min(LOOK_S, max(self._pause, SHARE * self._took_s)):
            return True
        return less < 0 if self.is_full else self.used + less > self._most

    async def _used_bytes(self, processes: Callable[[], Iterable[int]]) -> int:
        counted = quotas.find_used_bytes(self._folder)
        if counted is not None:
            return counted
        unnamed = self._unnamed.used_bytes(processes())
        return unnamed + await used_bytes(self._folder, self._unnamed.note)


def hold(folder: str) -> int:
    """Take the folder of a server for as long as we live: two servers on one would ruin it. Raises CannotStart.

    Some servers tell by the number of a process whether another one is there, which in a sandbox means nothing.
    """
    opened = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    deadline = time.monotonic() + TAKEN_S
    while True:
        try:
            fcntl.flock(opened, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return opened
        except BlockingIOError:
            if time.monotonic() > deadline:
                os.close(opened)
                raise CannotStart("it cannot be started: another server runs on its folder") from None
        time.sleep(PAUSE_S)


def free_bytes(folder: str) -> int:
    found = os.statvfs(folder)
    return found.f_bavail * found.f_frsize


async def used_bytes(folder: str, note: Callable[[os.stat_result], None] = lambda _: None) -> int:
    """Return what the names in a folder take on disk, letting others have their turn meanwhile."""
    used, top = 0, folder.rstrip("/").count("/")
    for number, entry in enumerate(folders.walk(folder, is_lenient=True)):
        if entry.path.count("/") - top > folders.MAX_DEPTH:
            return folders.ENDLESS_BYTES
        with contextlib.suppress(OSError):
            found = entry.stat(follow_symlinks=False)
            used += max(found.st_blocks * folders.BLOCK_BYTES, folders.MIN_ENTRY_BYTES)
            note(found)
        if number % ENTRIES_PER_TURN == ENTRIES_PER_TURN - 1:
            await asyncio.sleep(0)
    return used


def seal(namespaces: tuple[int, int], on: bool, *, is_root: bool) -> int:
    """Let a running sandbox write to its volume no more, or again; return the errno.

    Only a process of the sandbox's own mount namespace may do this, so a fork of ours goes there. While the app has a
    file open for writing the kernel refuses (EBUSY).
    """
    pid = os.fork()
    if pid == 0:
        code = 255
        try:
            _seal_inside(namespaces, on, is_root=is_root)
            code = 0
        except OSError as error:
            code = error.errno or code
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def _seal_inside(namespaces: tuple[int, int], on: bool, *, is_root: bool) -> None:
    mounts, users = namespaces
    if not is_root:
        sys_.setns(users, sys_.CLONE_NEWUSER)
    sys_.setns(mounts, sys_.CLONE_NEWNS)
    read_only = sys_.MOUNT_ATTR_RDONLY
    sys_.mount_setattr(sys_.AT_FDCWD, DATA, 0, read_only if on else 0, 0 if on else read_only)
