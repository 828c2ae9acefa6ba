"""One cell as the invoker knows it: a process, its group, its sockets and where it stands."""

from __future__ import annotations

import base64
import contextlib
import fcntl
import os
import signal
import socket
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from moorage.runtime.workers.frames import HEAD, READY, SEALED
from moorage.runtime.workers.messages import close_all, receive

PIDS = 64
OUTPUT_BYTES = 256 * 1024  # of native output that is passed on when a cell dies
JOURNAL_BYTES = 11 * 2**20
MOST_EARLY = 4096  # bytes of a frame before a cell is ready


class CellState(StrEnum):
    EMPTY = "empty"  # asked of a zygote; whether it is made yet or not, no runtime is in it
    STARTING = "starting"  # its runtime is on its way; it has not said that it is ready
    WAITING = "waiting"  # in the pool, without code
    TAKEN = "taken"  # belongs to one function's version, for good
    ENDING = "ending"  # killed; not yet reaped


@dataclass(eq=False)
class Cell:
    number: int
    runtime: str  # none as long as it is empty
    uid: int
    socket: socket.socket  # the end that the gateway gets; ours until then
    outputs: tuple[int, ...]  # what the cell writes natively to standard output and error, and its journal of logs
    group: Any = None
    pid: int = 0
    state: CellState = CellState.EMPTY
    owner: Any = None  # the gateway that has it
    org: str = ""
    memory_mb: int = 0
    timeout_ms: int = 0
    is_frozen: bool = False
    is_idle_class: bool = False
    oom: bool = False
    asked: Any = None  # (gateway, request): the one it is made for; without it, it goes to whoever is next
    template: Any = None  # the template it was forked off
    zygote: Any = None  # the zygote it was asked of
    is_second_try: bool = False  # the first zygote that it was asked of died
    heard: bytes = b""
    network: list[int] = field(default_factory=list)  # for the supervisor of its connections
    outside: bool = True  # may connect to the internet

    def limit(self, asked: dict[str, Any]) -> None:
        """Take on the limits of the function it belongs to from now on."""
        self.memory_mb, self.timeout_ms, self.org = asked["memory_mb"], asked["timeout_ms"], asked["org"]
        self.group.limit(memory_mb=self.memory_mb, pids=PIDS, weight=weight_of(self.memory_mb))
        self.state = CellState.TAKEN

    def listen(self) -> bool:
        """Read what the cell says before it is ready. Return whether it is; raises OSError when it is gone."""
        data, descriptors = receive(self.socket)
        self.network += descriptors
        if not data:
            raise ConnectionResetError("the cell ended before it was ready")
        self.heard += data
        while len(self.heard) >= HEAD.size:
            length, kind = HEAD.unpack_from(self.heard)
            if length > MOST_EARLY:
                raise ConnectionResetError("the cell sent an invalid frame")
            if len(self.heard) < 4 + length:
                return False
            self.heard = self.heard[4 + length :]
            if kind == READY:
                return True
            if kind != SEALED:
                raise ConnectionResetError("the cell does not speak our language")
        return False

    def kill(self) -> None:
        """End every process of the cell. The first one takes its whole process namespace along."""
        self.state = CellState.ENDING
        if self.pid:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(self.pid, signal.SIGKILL)
        if self.template is not None and self.group is not None:
            # It is not the first process of its namespace, so what it started would outlive it.
            with contextlib.suppress(OSError):
                self.group.kill()
        if self.is_frozen and self.group is not None:
            with contextlib.suppress(OSError):
                self.group.thaw()
            self.is_frozen = False

    def output(self) -> dict[str, str]:
        """Return what the cell printed and nobody has read: the end of native output, and the journal of its logs."""
        out, err, journal = self.outputs
        return {
            "out": _tail(out, OUTPUT_BYTES).decode("utf-8", "replace"),
            "err": _tail(err, OUTPUT_BYTES).decode("utf-8", "replace"),
            "journal": base64.b64encode(_head(journal, JOURNAL_BYTES)).decode(),
        }

    def close(self) -> None:
        self.socket.close()
        close_all(self.outputs)
        close_all(self.network)
        self.outputs, self.network = (-1, -1, -1), []


def _tail(descriptor: int, most: int) -> bytes:
    try:
        return os.pread(descriptor, most, max(0, os.fstat(descriptor).st_size - most))
    except OSError:
        return b""


def _head(descriptor: int, most: int) -> bytes:
    try:
        return os.pread(descriptor, most, 0)
    except OSError:
        return b""


def weight_of(memory_mb: int) -> int:
    """Computing time follows memory, as users of functions expect."""
    return max(10, min(1000, memory_mb * 100 // 256))


def append_only(name: str) -> int:
    """Return a file in memory that can only be added to, whoever writes."""
    descriptor = os.memfd_create(name, os.MFD_CLOEXEC)
    fcntl.fcntl(descriptor, fcntl.F_SETFL, fcntl.fcntl(descriptor, fcntl.F_GETFL) | os.O_APPEND)
    return descriptor
