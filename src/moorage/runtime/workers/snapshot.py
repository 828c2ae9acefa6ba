"""Snapshots: loaded workers that are forked for each further instance.

Importing large libraries takes longer than the rest of a start. Forks share the sandbox and the memory pages of their
snapshot, and have their own cgroups, limits and sockets. The snapshot outlives all its forks: it is PID 1 of their PID
namespace.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import socket
import struct
from collections.abc import Callable
from typing import Any

from moorage.runtime.workers.frames import FORK, HEAD, LOAD, LOADED, LOADED_HEAD
from moorage.runtime.workers.messages import close_all, receive
from moorage.runtime.workers.sandbox import FunctionSandbox

MAX_IDLE_S = 600.0
MAX_LOADED_BYTES = 32 * 2**20  # of the LOADED frame, which contains the logs of loading
_HEAD_SIZE = HEAD.size + LOADED_HEAD.size

LOAD_SEND_TIMEOUT_S = 2.0
LOAD_GRACE_S = 5.0  # beyond the function's own timeout

Key = tuple[int, int]  # function, revision
OnReady = Callable[["Snapshot"], None]
OnEnd = Callable[["Snapshot", str], None]  # snapshot, reason; "" where the function is not at fault


class Snapshot:
    """The invoker's end of a snapshot, which runs users' code and is not trusted.

    The invoker reads only the head of its one frame, drops the rest and never blocks on it. `on_end` receives the
    reason when the snapshot broke the protocol, could not be loaded or timed out.
    """

    def __init__(
        self, key: Key, sandbox: FunctionSandbox, load: dict[str, Any], on_ready: OnReady, on_end: OnEnd
    ) -> None:
        self.key = key
        self.sandbox = sandbox
        self.is_ready = False
        self.is_retired = False
        self.forks: set[FunctionSandbox] = set()
        self._on_ready = on_ready
        self._on_end = on_end
        self._head = b""
        self._left = 0  # bytes of the frame that have not arrived; they are dropped
        self._loop = asyncio.get_running_loop()
        self.used_at = self._loop.time()
        body = json.dumps({**load, "template": True}).encode()
        sandbox.socket.settimeout(LOAD_SEND_TIMEOUT_S)  # Blocks: the worker runs no user code before LOAD.
        sandbox.socket.sendall(HEAD.pack(len(body) + 1, LOAD) + body)
        sandbox.socket.setblocking(False)
        self._loop.add_reader(sandbox.socket, self._readable)
        timeout_s = sandbox.timeout_ms / 1000 + LOAD_GRACE_S
        self._deadline = self._loop.call_later(timeout_s, on_end, self, f"it was not loaded within {timeout_s:g} s")

    def fork(self, sandbox: FunctionSandbox, theirs: socket.socket) -> None:
        """Fork an instance that uses this socket and sends READY on it.

        Raises OSError, also when the snapshot has not read earlier requests and its socket buffer is full.
        """
        self.used_at = self._loop.time()
        self.forks.add(sandbox)
        sandbox.socket.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)
        with theirs:
            socket.send_fds(self.sandbox.socket, [HEAD.pack(1, FORK)], [theirs.fileno(), *sandbox.outputs])

    def close(self) -> None:
        self._deadline.cancel()
        with contextlib.suppress(OSError, ValueError):
            self._loop.remove_reader(self.sandbox.socket)

    def _readable(self) -> None:
        try:
            data, descriptors = receive(self.sandbox.socket)
        except (BlockingIOError, InterruptedError):
            return
        except OSError:
            data, descriptors = b"", []
        close_all(descriptors)
        if not data:
            self._on_end(self, "it closed its socket")
        elif descriptors or self.is_ready:
            self._on_end(self, "it sent unexpected data")
        else:
            self._read_loaded(data)

    def _read_loaded(self, data: bytes) -> None:
        if len(self._head) < _HEAD_SIZE:
            missing = _HEAD_SIZE - len(self._head)
            self._head += data[:missing]
            data = data[missing:]
            if len(self._head) < _HEAD_SIZE:
                return
            length, kind = HEAD.unpack_from(self._head)
            if kind != LOADED or not LOADED_HEAD.size < length <= MAX_LOADED_BYTES:
                self._on_end(self, "it sent an invalid frame")
                return
            self._left = 4 + length - _HEAD_SIZE
        self._left -= len(data)
        if self._left < 0:
            self._on_end(self, "it sent unexpected data")
        elif self._left == 0 and not LOADED_HEAD.unpack_from(self._head, HEAD.size)[0]:
            # The function has threads or connections, which forks cannot share: each instance loads its code itself.
            self._on_end(self, "")
        elif self._left == 0:
            self._deadline.cancel()
            self.is_ready = True
            self._on_ready(self)


def read_with_sender(sock: socket.socket) -> tuple[bytes, int]:
    """Return available bytes and the sender's PID on the host, 0 if unknown."""
    space = socket.CMSG_SPACE(struct.calcsize("3i"))
    data, ancillary, _, _ = sock.recvmsg(4096, space)
    for level, kind, content in ancillary:
        if level == socket.SOL_SOCKET and kind == socket.SCM_CREDENTIALS:
            return data, int(struct.unpack("3i", content[:12])[0])
    return data, 0


def watch_exit(pid: int, on_end: Callable[[], None]) -> None:
    """Call `on_end` when a process that is not our child exits."""
    loop = asyncio.get_running_loop()
    handle = os.pidfd_open(pid)

    def ended() -> None:
        loop.remove_reader(handle)
        os.close(handle)
        on_end()

    loop.add_reader(handle, ended)
