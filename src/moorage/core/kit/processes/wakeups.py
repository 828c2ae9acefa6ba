"""Wake-ups between processes of one machine: datagrams on a unix socket.

A datagram may be lost, so that the sender never waits. The receiver therefore also polls, but rarely.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Callable
from pathlib import Path

from moorage.core.kit.processes.process import bind_unix_socket

MAX_MESSAGE_BYTES = 64


class WakeupSender:
    """Sends to a socket that may not exist yet."""

    def __init__(self, path: Path) -> None:
        self._path = str(path)
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.setblocking(False)

    def send(self, message: bytes) -> None:
        with contextlib.suppress(OSError):  # No receiver, or its buffer is full: it polls.
            self._socket.sendto(message, self._path)


class WakeupReceiver:
    """Calls a function in the event loop with each message, until closed."""

    def __init__(self, path: Path, on_message: Callable[[bytes], None]) -> None:
        self._path = path
        self._on_message = on_message
        self._socket: socket.socket | None = None

    def open(self) -> None:
        self._socket = bind_unix_socket(self._path, socket.SOCK_DGRAM)
        self._socket.setblocking(False)
        asyncio.get_running_loop().add_reader(self._socket, self._receive)

    def close(self) -> None:
        if self._socket is not None:
            asyncio.get_running_loop().remove_reader(self._socket)
            self._socket.close()
            self._socket = None

    def _receive(self) -> None:
        assert self._socket is not None
        messages = set()
        with contextlib.suppress(BlockingIOError):
            while True:
                messages.add(self._socket.recv(MAX_MESSAGE_BYTES))
        for message in messages:
            self._on_message(message)
