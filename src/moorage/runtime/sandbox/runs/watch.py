"""Output and limits of a run.

A thread checks several times a second the limits that the kernel does not enforce: time, disk, and memory without
cgroups.
"""

from __future__ import annotations

import itertools
import os
import selectors
import signal
import struct
import sys
import threading
import time
from collections.abc import Callable, Mapping
from typing import NoReturn, Protocol

from moorage.core.kit import folders
from moorage.runtime.sandbox.cgroups import groups as cgroups
from moorage.runtime.sandbox.runs.job import NO_ROOM, OUT_OF_MEMORY, TIMED_OUT, TOO_MUCH_DISK, TOO_MUCH_OUTPUT, Job
from moorage.runtime.sandbox.usage import process_tree, quotas
from moorage.runtime.sandbox.usage.open_files import UnnamedFiles

MB = 2**20
TICK_S = 0.1
SLOW_TICKS = 3  # Memory and disk are checked every third tick: they take longer to measure.
DISK_CHECK_INTERVAL_S = 10.0  # if the disk's free space gives no reason for an earlier check
CHUNK = 65536
RESULT, STDOUT, STDERR = 0, 1, 2
HEAD = struct.Struct("<BI")  # stream, length


class OutputWriter(Protocol):
    """Writes the program's output and its result to standard output."""

    def write(self, stream: int, data: bytes) -> None: ...


class PlainWriter:
    """Writes both streams without frames, and no result, for use on a terminal."""

    def write(self, stream: int, data: bytes) -> None:
        if stream != RESULT:
            write_all(data)


class FramedWriter:
    """Writes each piece after its stream and length; the last frame is the result."""

    def write(self, stream: int, data: bytes) -> None:
        write_all(HEAD.pack(stream, len(data)) + data)


def terminate() -> NoReturn:
    """Exit with cleanup, which a second SIGTERM does not interrupt."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    sys.exit(128 + signal.SIGTERM)


def write_all(data: bytes) -> None:
    left = memoryview(data)
    while left:
        left = left[os.write(1, left) :]


class DiskUsage:
    """Disk usage of a run. Walking is slow, so only after the free space has shrunk."""

    def __init__(self, job: Job, group: cgroups.Group) -> None:
        self._folders = job.measured_folders()
        self._group = group
        self._unnamed = UnnamedFiles(job.open_folders(), is_boxed=job.is_boxed)
        self._max_bytes = job.disk_mb * MB
        self._reserve = job.reserve_mb * MB
        self._used = self._measured_at = 0.0
        self._free = 0

    def excess(self) -> int | None:
        """Return the exit code of a run that exceeds a disk limit, or None."""
        if not self._folders or not (self._max_bytes or self._reserve):
            return None
        free = [_free(folder) for folder in self._folders]
        if min(free) < self._reserve:
            return NO_ROOM
        may_have_used = self._used + self._free - sum(free)
        is_due = time.monotonic() - self._measured_at > DISK_CHECK_INTERVAL_S
        if self._max_bytes and (may_have_used > self._max_bytes or is_due):
            self._used = self._used_bytes()
            self._free = sum(free)
            self._measured_at = time.monotonic()
            return TOO_MUCH_DISK if self._used > self._max_bytes else None
        return None

    def _used_bytes(self) -> int:
        """Return the size of the folders, including deleted files that are still open."""
        quota_bytes = [quotas.find_used_bytes(folder) for folder in self._folders]
        if all(each is not None for each in quota_bytes):
            return sum(each or 0 for each in quota_bytes)
        unnamed = self._unnamed.used_bytes(self._group.processes())
        return unnamed + sum(folders.used_bytes(folder, self._unnamed.note) for folder in self._folders)


def _free(folder: str) -> int:
    status = os.statvfs(folder)
    return status.f_bavail * status.f_frsize


class LimitWatch:
    """Kills the program at the first exceeded limit, whose code is `verdict`."""

    def __init__(self, job: Job, child: int, group: cgroups.Group, *, polls_memory: bool) -> None:
        self.verdict: int | None = None
        self._child = child
        self._group = group
        self._max_memory_bytes = job.memory_mb * MB if polls_memory else 0
        self._deadline = time.monotonic() + job.timeout_s
        self._disk = DiskUsage(job, group)
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._poll, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Stop the checks. After this the child may be reaped, and its PID reused."""
        self._done.set()
        self._thread.join()

    def kill(self, verdict: int) -> None:
        if self.verdict is None and not self._done.is_set():
            self.verdict = verdict
            os.kill(self._child, signal.SIGKILL)

    def _poll(self) -> None:
        for tick in itertools.count():
            if self._done.wait(TICK_S):
                return
            verdict = TIMED_OUT if time.monotonic() > self._deadline else None
            if verdict is None and tick % SLOW_TICKS == 0:
                verdict = self._excess()
            if verdict is not None:
                self.kill(verdict)
                return

    def _excess(self) -> int | None:
        most = self._max_memory_bytes
        if most and process_tree.use_more_than(self._group.processes(), most):
            return OUT_OF_MEMORY
        return self._disk.excess()


class OutputRelay:
    """Copies output (pipe -> stream) until all pipes are closed or the caller exits.

    `on_exit` is called when the program itself has exited: its child processes may still have the pipes open.
    """

    def __init__(self, job: Job, watch: LimitWatch, pipes: Mapping[int, int], out: OutputWriter) -> None:
        self._left = job.output_bytes
        self._watch = watch
        self._pipes = pipes
        self._out = out

    def run(self, lifeline: int | None, child: int, on_exit: Callable[[], None]) -> None:
        process = os.pidfd_open(child)
        still_open = set(self._pipes)
        try:
            with selectors.DefaultSelector() as ready:
                for descriptor in (*self._pipes, process, *(() if lifeline is None else (lifeline,))):
                    ready.register(descriptor, selectors.EVENT_READ)
                while still_open:
                    for key, _ in ready.select():
                        if key.fd == lifeline:
                            terminate()
                        if key.fd == process:
                            ready.unregister(process)
                            on_exit()
                        elif not self._copy(key.fd):
                            ready.unregister(key.fd)
                            still_open.discard(key.fd)
        finally:
            os.close(process)

    def _copy(self, pipe: int) -> bool:
        """Copy one chunk, up to the output limit; return whether the pipe is open."""
        data = os.read(pipe, CHUNK)
        self._left -= len(data)
        if self._left < 0:
            self._watch.kill(TOO_MUCH_OUTPUT)
            return False
        if data:
            self._out.write(self._pipes[pipe], data)
        return bool(data)
