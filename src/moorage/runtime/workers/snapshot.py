"""Templates: a function's code loaded once, then forked for each further instance.

Importing large libraries takes longer than everything else together. A template is a cell that has done so and waits;
its forks share its sandbox and its memory, and have groups, limits and sockets of their own. It lives as long as any of
them, because it is the first process of their world.
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
from moorage.runtime.workers.sandbox import Cell

UNUSED_S = 600.0
MOST_LOADED = 32 * 2**20  # bytes of the one frame that a template sends; it has the log of loading
_HEAD_SIZE = HEAD.size + LOADED_HEAD.size

LOAD_SEND_S = 2.0
GRACE_S = 5.0  # beyond the function's own timeout

Key = tuple[int, int]  # function, revision
OnEnd = Callable[["Template", str], None]  # why, or nothing where it is no fault of the function


class Template:
    """A cell whose process runs users' code, so nothing that it sends is believed, kept or waited for.

    It sends one frame, of which only the first bytes are looked at. `on_end` hears why it has to go: it broke the
    protocol, or could not be loaded, or not in time.
    """

    def __init__(
        self, key: Key, cell: Cell, load: dict[str, Any], on_ready: Callable[[Template], None], on_end: OnEnd
    ) -> None:
        self.key = key
        self.cell = cell
        self.is_ready = False
        self.is_doomed = False
        self.forks: set[Cell] = set()
        self._on_ready = on_ready
        self._on_end = on_end
        self._head = b""
        self._left = 0  # bytes of the frame that are still to come, and are dropped
        self._loop = asyncio.get_running_loop()
        self.used_at = self._loop.time()
        body = json.dumps({**load, "template": True}).encode()
        cell.socket.settimeout(LOAD_SEND_S)  # It runs our code alone until it has read this.
        cell.socket.sendall(HEAD.pack(len(body) + 1, LOAD) + body)
        cell.socket.setblocking(False)
        self._loop.add_reader(cell.socket, self._readable)
        self._deadline = self._loop.call_later(cell.timeout_ms / 1000 + GRACE_S, on_end, self, "it does not get loaded")

    def fork(self, cell: Cell, theirs: socket.socket) -> None:
        """Let the template fork an instance that speaks through this socket; it says READY like any other cell.

        Raises OSError, also where the template has not taken the requests before this one.
        """
        self.used_at = self._loop.time()
        self.forks.add(cell)
        cell.socket.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)
        with theirs:
            socket.send_fds(self.cell.socket, [HEAD.pack(1, FORK)], [theirs.fileno(), *cell.outputs])

    def close(self) -> None:
        self._deadline.cancel()
        with contextlib.suppress(OSError, ValueError):
            self._loop.remove_reader(self.cell.socket)

    def _readable(self) -> None:
        try:
            data, descriptors = receive(self.cell.socket)
        except (BlockingIOError, InterruptedError):
            return
        except OSError:
            data, descriptors = b"", []
        close_all(descriptors)
        if not data:
            self._on_end(self, "its socket has ended")
        elif descriptors or self.is_ready:
            self._on_end(self, "it sent what it was not asked for")
        else:
            self._take(data)

    def _take(self, data: bytes) -> None:
        if len(self._head) < _HEAD_SIZE:
            missing = _HEAD_SIZE - len(self._head)
            self._head += data[:missing]
            data = data[missing:]
            if len(self._head) < _HEAD_SIZE:
                return
            length, kind = HEAD.unpack_from(self._head)
            if kind != LOADED or not LOADED_HEAD.size < length <= MOST_LOADED:
                self._on_end(self, "it sent an invalid frame")
                return
            self._left = 4 + length - _HEAD_SIZE
        self._left -= len(data)
        if self._left < 0:
            self._on_end(self, "it sent what it was not asked for")
        elif self._left == 0 and not LOADED_HEAD.unpack_from(self._head, HEAD.size)[0]:
            # It has threads or connections that forks cannot share; its instances are loaded one by one.
            self._on_end(self, "")
        elif self._left == 0:
            self._deadline.cancel()
            self.is_ready = True
            self._on_ready(self)


def sender_of(sock: socket.socket) -> tuple[bytes, int]:
    """Read some bytes, and which process of this machine sent them."""
    space = socket.CMSG_SPACE(struct.calcsize("3i"))
    data, ancillary, _, _ = sock.recvmsg(4096, space)
    for level, kind, content in ancillary:
        if level == socket.SOL_SOCKET and kind == socket.SCM_CREDENTIALS:
            return data, int(struct.unpack("3i", content[:12])[0])
    return data, 0


def watch_end(pid: int, on_end: Callable[[], None]) -> None:
    """Call back when a process ends that is not our child."""
    loop = asyncio.get_running_loop()
    handle = os.pidfd_open(pid)

    def ended() -> None:
        loop.remove_reader(handle)
        os.close(handle)
        on_end()

    loop.add_reader(handle, ended)
