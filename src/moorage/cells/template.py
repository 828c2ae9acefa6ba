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

from moorage.cells.cell import Cell
from moorage.cells.frames import FORK, HEAD, LOAD, LOADED, LOADED_HEAD
from moorage.cells.messages import close_all, receive

UNUSED_S = 600.0

Key = tuple[int, int]  # function, revision


class Template:
    def __init__(self, key: Key, cell: Cell, load: dict[str, Any], on_ready: Callable[[Template, bool], None]) -> None:
        self.key = key
        self.cell = cell
        self.is_ready = False
        self.is_doomed = False
        self.forks: set[Cell] = set()
        self._on_ready = on_ready
        self._heard = b""
        self._loop = asyncio.get_running_loop()
        self.used_at = self._loop.time()
        body = json.dumps({**load, "template": True}).encode()
        self._send(HEAD.pack(len(body) + 1, LOAD) + body, [])
        cell.socket.setblocking(False)
        self._loop.add_reader(cell.socket, self._readable)

    def fork(self, cell: Cell, theirs: socket.socket) -> None:
        """Let the template fork an instance that speaks through this socket; it says READY like any other cell."""
        self.used_at = self._loop.time()
        self.forks.add(cell)
        cell.socket.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)
        self._send(HEAD.pack(1, FORK), [theirs.fileno(), *cell.outputs])
        theirs.close()

    def close(self) -> None:
        with contextlib.suppress(OSError, ValueError):
            self._loop.remove_reader(self.cell.socket)

    def _send(self, frame: bytes, descriptors: list[int]) -> None:
        self.cell.socket.setblocking(True)
        try:
            socket.send_fds(self.cell.socket, [frame], descriptors) if descriptors else self.cell.socket.sendall(frame)
        finally:
            self.cell.socket.setblocking(False)

    def _readable(self) -> None:
        try:
            data, descriptors = receive(self.cell.socket)
        except (BlockingIOError, InterruptedError):
            return
        except OSError:
            data, descriptors = b"", []
        close_all(descriptors)
        if not data:
            self.close()
            return
        self._heard += data
        length, kind = HEAD.unpack_from(self._heard.ljust(HEAD.size, b"\0"))
        if len(self._heard) < 4 + length:
            return
        ok = kind == LOADED and bool(LOADED_HEAD.unpack_from(self._heard, HEAD.size)[0])
        self._heard = b""
        if not self.is_ready:
            self.is_ready = ok
            self._on_ready(self, ok)


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
