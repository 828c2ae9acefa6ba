"""The folder that an app keeps: how much it holds, and a stop to more of it when that is too much."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
import time

from moorage.engines.ports import CannotStart
from moorage.kit import folders
from moorage.sandbox import syscalls as sys_
from moorage.shim.child import DATA

MB = 2**20
LOOK_S = 60.0  # between two looks, at most, at a folder whose free space gives no reason for one
SHARE = 100  # of the time may be spent with such looks: one in so many
ENTRIES_PER_TURN = 200  # The shim answers for the app's network too, and a folder may hold a million files.
WRITABLE_AGAIN = 0.95
TAKEN_S = 3.0  # What was killed has let go of everything after this.
PAUSE_S = 0.02


class Volume:
    """Walking may be slow, so free space tells when to look: nothing can be written without it.

    Others use and free the same disk, so what is walked quickly is looked at often all the same.
    """

    def __init__(self, folder: str, disk_mb: int) -> None:
        self._folder = folder
        self._most = disk_mb * MB
        self._looked_at = float("-inf")
        self._pause = LOOK_S
        self._free = 0
        self.used = 0
        self.is_sealed = False

    async def look(self) -> None:
        """Find out what it holds, unless that cannot have become too much, and whether it is to be written to."""
        free = _free(self._folder)
        may_have_used = self.used + self._free - free
        is_stale = time.monotonic() - self._looked_at > self._pause
        if not is_stale and (may_have_used <= self._most if not self.is_sealed else free <= self._free):
            return
        self._looked_at, self._free = time.monotonic(), free
        self.used = await used_bytes(self._folder)
        self._pause = min(LOOK_S, SHARE * (time.monotonic() - self._looked_at))
        if self._most:
            self.is_sealed = self.used > self._most * (WRITABLE_AGAIN if self.is_sealed else 1)


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


def _free(folder: str) -> int:
    found = os.statvfs(folder)
    return found.f_bavail * found.f_frsize


async def used_bytes(folder: str) -> int:
    """Return what a folder takes on disk, letting others have their turn meanwhile."""
    used, top = 0, folder.rstrip("/").count("/")
    for number, entry in enumerate(folders.walk(folder, is_lenient=True)):
        if entry.path.count("/") - top > folders.DEEPEST:
            return folders.ENDLESS
        with contextlib.suppress(OSError):
            used += max(entry.stat(follow_symlinks=False).st_blocks * folders.BLOCK, folders.LEAST)
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
