"""One function sandbox in the invoker: process, cgroup, sockets and state."""

from __future__ import annotations

import base64
import contextlib
import fcntl
import os
import signal
import socket
from dataclasses import field
from enum import StrEnum
from typing import Any

from moorage.core.kit.records import dataclass
from moorage.runtime.workers.frames import HEAD, READY, SEALED
from moorage.runtime.workers.messages import close_all, receive

PIDS = 64
OUTPUT_BYTES = 256 * 1024  # of native output sent to the edge when a sandbox ends
JOURNAL_BYTES = 11 * 2**20
MAX_START_FRAME_BYTES = 4096  # of a frame before READY


class SandboxState(StrEnum):
    EMPTY = "empty"  # forked or being forked, without a runtime
    STARTING = "starting"  # the runtime starts; READY has not arrived
    WAITING = "waiting"  # in the pool, without code
    TAKEN = "taken"  # assigned to one function revision for good
    ENDING = "ending"  # killed; not yet reaped


@dataclass(eq=False)
class FunctionSandbox:
    number: int
    runtime: str  # "" while the sandbox is empty
    uid: int
    socket: socket.socket  # our end; handed to the edge with the sandbox
    outputs: tuple[int, ...]  # files of native standard output, native standard error and the log journal
    group: Any = None
    pid: int = 0
    state: SandboxState = SandboxState.EMPTY
    owner: Any = None  # EdgeConnection
    org: str = ""
    memory_mb: int = 0
    timeout_ms: int = 0
    is_frozen: bool = False
    is_idle_class: bool = False
    is_in_idle_session: bool = False  # of the zygote for organizations in the idle class
    oom: bool = False
    reserved_for: Any = None  # (edge, request); None: goes to the oldest waiting request of its runtime
    snapshot: Any = None  # the snapshot that this sandbox is a fork of
    zygote: Any = None
    is_second_try: bool = False  # replaces a sandbox that ended while it started
    received: bytes = b""
    network: list[int] = field(default_factory=list)  # descriptors for the network supervisor
    outside: bool = True  # may connect to the internet

    def limit(self, request: dict[str, Any]) -> None:
        """Apply the limits of the function that the sandbox is assigned to."""
        self.memory_mb, self.timeout_ms, self.org = request["memory_mb"], request["timeout_ms"], request["org"]
        self.group.limit(memory_mb=self.memory_mb, pids=PIDS, weight=weight_of(self.memory_mb))
        self.state = SandboxState.TAKEN

    def read_start_frames(self) -> bool:
        """Read frames; return whether READY arrived. Raises OSError at the end."""
        data, descriptors = receive(self.socket)
        self.network += descriptors
        if not data:
            raise ConnectionResetError("the sandbox ended before it was ready")
        self.received += data
        while len(self.received) >= HEAD.size:
            length, kind = HEAD.unpack_from(self.received)
            if length > MAX_START_FRAME_BYTES:
                raise ConnectionResetError("the sandbox sent an invalid frame")
            if len(self.received) < 4 + length:
                return False
            self.received = self.received[4 + length :]
            if kind == READY:
                return True
            if kind != SEALED:
                raise ConnectionResetError(f"the sandbox sent an unexpected frame of type {kind}")
        return False

    def kill(self) -> None:
        """Kill every process of the sandbox: the end of PID 1 ends its PID namespace."""
        self.state = SandboxState.ENDING
        if self.pid:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(self.pid, signal.SIGKILL)
        if self.snapshot is not None and self.group is not None:
            # A fork is not PID 1 of its namespace, so its child processes would survive it.
            with contextlib.suppress(OSError):
                self.group.kill()
        if self.is_frozen and self.group is not None:
            with contextlib.suppress(OSError):
                self.group.thaw()
            self.is_frozen = False

    def replace(self) -> None:
        """Let the edge end this sandbox after its current calls; further calls get another one."""
        if self.owner is not None:
            self.owner.channel.send({"replace": self.number})

    def output(self) -> dict[str, str]:
        """Return the unread output: the end of the native output, and the log journal."""
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
    """Return the CPU weight, proportional to memory as on other function platforms."""
    return max(10, min(1000, memory_mb * 100 // 256))


def append_only(name: str) -> int:
    """Return the descriptor of an append-only memory file."""
    descriptor = os.memfd_create(name, os.MFD_CLOEXEC)
    fcntl.fcntl(descriptor, fcntl.F_SETFL, fcntl.fcntl(descriptor, fcntl.F_GETFL) | os.O_APPEND)
    return descriptor


def describe_exit(status: int | None) -> str:
    if status is None:
        return "unknown exit status"
    code = os.waitstatus_to_exitcode(status)
    return f"signal {-code}" if code < 0 else f"exit code {code}"
