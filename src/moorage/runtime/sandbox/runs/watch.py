"""Watching over a run: its output is passed on as it comes, and it is ended when it goes over a limit.

What the kernel does not bound for us (time, output, disk, and memory where there are no control groups) a thread looks
at several times a second.
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
from moorage.runtime.sandbox.usage import quotas
from moorage.runtime.sandbox.usage.open_files import UnnamedFiles

MB = 2**20
TICK_S = 0.1
SLOW_TICKS = 3  # Memory and disk take longer to look at than the clock.
LOOK_S = 10.0  # between two looks at a disk whose free space gives no reason for one
CHUNK = 65536
RESULT, STDOUT, STDERR = 0, 1, 2
HEAD = struct.Struct("<BI")  # stream, length


class Out(Protocol):
    """Where the runner puts what the program prints, and what came of it."""

    def write(self, stream: int, data: bytes) -> None: ...


class PlainOut:
    """Both streams as they come, for whoever runs this by hand."""

    def write(self, stream: int, data: bytes) -> None:
        if stream != RESULT:
            write_all(data)


class FramedOut:
    """Each piece with its stream and length in front; the last one is the result."""

    def write(self, stream: int, data: bytes) -> None:
        write_all(HEAD.pack(stream, len(data)) + data)


def leave() -> NoReturn:
    """End this process, clearing up on the way. Whoever asks for it a second time does not stop that."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    sys.exit(128 + signal.SIGTERM)


def write_all(data: bytes) -> None:
    left = memoryview(data)
    while left:
        left = left[os.write(1, left) :]


class Disk:
    """What a run has on disk. Walking is slow, so free space tells when to look: nothing can be written without it."""

    def __init__(self, job: Job, group: cgroups.Group) -> None:
        self._folders = list(job.open_folders().values())
        self._group = group
        self._unnamed = UnnamedFiles(job.open_folders(), is_boxed=job.is_boxed)
        self._most = job.disk_mb * MB
        self._reserve = job.reserve_mb * MB
        self._used = self._looked_at = 0.0
        self._free = 0

    def excess(self) -> int | None:
        """Return what a run that has used too much ends with."""
        if not self._folders or not (self._most or self._reserve):
            return None
        free = [_free(folder) for folder in self._folders]
        if min(free) < self._reserve:
            return NO_ROOM
        may_have_used = self._used + self._free - sum(free)
        if self._most and (may_have_used > self._most or time.monotonic() - self._looked_at > LOOK_S):
            self._used = self._used_bytes()
            self._free = sum(free)
            self._looked_at = time.monotonic()
            return TOO_MUCH_DISK if self._used > self._most else None
        return None

    def _used_bytes(self) -> int:
        """Return what is in the folders, and what was deleted there and is still held open."""
        counted = [quotas.find_used_bytes(folder) for folder in self._folders]
        if all(each is not None for each in counted):
            return sum(each or 0 for each in counted)
        unnamed = self._unnamed.used_bytes(self._group.processes())
        return unnamed + sum(folders.used_bytes(folder, self._unnamed.note) for folder in self._folders)


def _free(folder: str) -> int:
    found = os.statvfs(folder)
    return found.f_bavail * found.f_frsize


class Watch:
    """Ends the program when it has to, once, and remembers why."""

    def __init__(self, job: Job, child: int, group: cgroups.Group, *, counts_memory: bool) -> None:
        self.verdict: int | None = None
        self._child = child
        self._group = group
        self._most_bytes = job.memory_mb * MB if counts_memory else 0
        self._deadline = time.monotonic() + job.timeout_s
        self._disk = Disk(job, group)
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._look, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Look no more. The child's number may be given to another process from then on."""
        self._done.set()
        self._thread.join()

    def end(self, verdict: int) -> None:
        if self.verdict is None and not self._done.is_set():
            self.verdict = verdict
            os.kill(self._child, signal.SIGKILL)

    def _look(self) -> None:
        for tick in itertools.count():
            if self._done.wait(TICK_S):
                return
            verdict = TIMED_OUT if time.monotonic() > self._deadline else None
            if verdict is None and tick % SLOW_TICKS == 0:
                verdict = self._excess()
            if verdict is not None:
                self.end(verdict)
                return

    def _excess(self) -> int | None:
        if self._most_bytes and self._group.memory_bytes() > self._most_bytes:
            return OUT_OF_MEMORY
        return self._disk.excess()


class Relay:
    """Copies output (pipe -> stream) until the program has closed it all; a caller that goes away ends this process.

    `on_exit` is called when the program itself has ended: what it started may still hold the pipes.
    """

    def __init__(self, job: Job, watch: Watch, pipes: Mapping[int, int], out: Out) -> None:
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
                            leave()
                        if key.fd == process:
                            ready.unregister(process)
                            on_exit()
                        elif not self._copy(key.fd):
                            ready.unregister(key.fd)
                            still_open.discard(key.fd)
        finally:
            os.close(process)

    def _copy(self, pipe: int) -> bool:
        """Pass on what is there; return whether more may come. Nothing is passed on of a program that was ended."""
        data = os.read(pipe, CHUNK)
        self._left -= len(data)
        if self._left < 0:
            self._watch.end(TOO_MUCH_OUTPUT)
            return False
        if data:
            self._out.write(self._pipes[pipe], data)
        return bool(data)
