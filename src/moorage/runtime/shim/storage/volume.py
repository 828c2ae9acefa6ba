"""Volume of an app: its size, and switching it to read-only."""

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
MIN_INTERVAL_S, QUIET_INTERVAL_S = 4.0, 16.0  # between two measurements: after a change, and after none
CHANGE_BYTES = 2**20  # A smaller difference is no change.
MAX_INTERVAL_S = 60.0  # between two measurements, if the disk's free space gives no reason for one
DUTY_CYCLE = 100  # A measurement may take one hundredth of the time,
NEAR_DUTY_CYCLE = 10  # or a tenth while the machine's disk is nearly full.
SERVER_SHARE = 3  # A server is killed at three times its disk: its data, and the two copies that sorting it takes.
ENTRIES_PER_TURN = 200  # The same event loop serves the app's network, and a folder may have a million files.
WRITABLE_AGAIN = 0.95
LOCK_RELEASE_S = 3.0  # A killed process has released its lock after this.
LOCK_RETRY_INTERVAL_S = 0.02


class Volume:
    """Measures the size of a volume, including deleted files that are still open.

    Walking the folder may be slow, so the disk's free space decides when: nothing can be written without using some.
    Other workloads use and free the same disk, so a folder that is fast to walk is also measured regularly.
    """

    def __init__(self, folder: str, disk_mb: int, *, is_boxed: bool = True, is_server: bool = False) -> None:
        self._folder = folder
        self._max_bytes = disk_mb * MB * (SERVER_SHARE if is_server else 1)
        self._is_server = is_server
        self.measured_at = float("-inf")
        self._took_s = 0.0
        self._interval = MIN_INTERVAL_S
        self._free = free_bytes(folder) if is_server else 0
        self._unnamed = UnnamedFiles({DATA: folder}, is_boxed=is_boxed)
        self.used = 0
        self.is_full = False

    async def measure(self, processes: Callable[[], Iterable[int]] = tuple, *, drop: int | None = None) -> None:
        """Update `used` and `is_full`, if the volume may have become full.

        With `drop`, also measure when the disk's free space has shrunk by at least that many bytes.
        """
        free = free_bytes(self._folder)
        if not self._is_due(free, drop):
            return
        self.measured_at, self._free = time.monotonic(), free
        before, self.used = self.used, await self._used_bytes(processes)
        self._took_s = time.monotonic() - self.measured_at
        has_changed = abs(self.used - before) >= CHANGE_BYTES
        self._interval = MIN_INTERVAL_S if has_changed else min(2 * self._interval, QUIET_INTERVAL_S)
        if self._max_bytes:
            self.is_full = self.used > self._max_bytes * (WRITABLE_AGAIN if self.is_full else 1)

    def _is_due(self, free: int, drop: int | None) -> bool:
        since_s, shrunk = time.monotonic() - self.measured_at, self._free - free
        if drop is not None and shrunk >= drop and since_s > NEAR_DUTY_CYCLE * self._took_s:
            return True
        if self._is_server:  # The control process walks a server's folder every minute; this is for faster growth.
            self._free = max(self._free, free)
            return bool(self._max_bytes) and shrunk > self._max_bytes // SERVER_SHARE
        if since_s > min(MAX_INTERVAL_S, max(self._interval, DUTY_CYCLE * self._took_s)):
            return True
        return shrunk < 0 if self.is_full else self.used + shrunk > self._max_bytes

    async def _used_bytes(self, processes: Callable[[], Iterable[int]]) -> int:
        quota_bytes = quotas.find_used_bytes(self._folder)
        if quota_bytes is not None:
            return quota_bytes
        unnamed = self._unnamed.used_bytes(processes())
        return unnamed + await used_bytes(self._folder, self._unnamed.note)


def lock_folder(folder: str) -> int:
    """Lock a server's folder for the life of the shim; raises CannotStart.

    Two servers would corrupt it. Some servers check a PID file, but PIDs have no meaning between sandboxes.
    """
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    deadline = time.monotonic() + LOCK_RELEASE_S
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return descriptor
        except BlockingIOError:
            if time.monotonic() > deadline:
                os.close(descriptor)
                raise CannotStart("it cannot be started: another server runs on its folder") from None
        time.sleep(LOCK_RETRY_INTERVAL_S)


def free_bytes(folder: str) -> int:
    status = os.statvfs(folder)
    return status.f_bavail * status.f_frsize


async def used_bytes(folder: str, note: Callable[[os.stat_result], None] = lambda _: None) -> int:
    """Return the disk space of a folder; yields to the event loop between entries."""
    used, top = 0, folder.rstrip("/").count("/")
    for number, entry in enumerate(folders.walk(folder, is_lenient=True)):
        if entry.path.count("/") - top > folders.MAX_DEPTH:
            return folders.ENDLESS_BYTES
        with contextlib.suppress(OSError):
            status = entry.stat(follow_symlinks=False)
            used += max(status.st_blocks * folders.BLOCK_BYTES, folders.MIN_ENTRY_BYTES)
            note(status)
        if number % ENTRIES_PER_TURN == ENTRIES_PER_TURN - 1:
            await asyncio.sleep(0)
    return used


def set_read_only(namespaces: tuple[int, int], on: bool, *, is_root: bool) -> int:
    """Make a running sandbox's volume read-only, or writable again; return the errno.

    Only a process in the sandbox's mount namespace may remount, so a forked child enters it. The kernel refuses with
    EBUSY while the app has a file open for writing.
    """
    pid = os.fork()
    if pid == 0:
        code = 255
        try:
            _remount_inside(namespaces, on, is_root=is_root)
            code = 0
        except OSError as error:
            code = error.errno or code
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def _remount_inside(namespaces: tuple[int, int], on: bool, *, is_root: bool) -> None:
    mounts, users = namespaces
    if not is_root:
        sys_.setns(users, sys_.CLONE_NEWUSER)
    sys_.setns(mounts, sys_.CLONE_NEWNS)
    read_only = sys_.MOUNT_ATTR_RDONLY
    sys_.mount_setattr(sys_.AT_FDCWD, DATA, 0, read_only if on else 0, 0 if on else read_only)
