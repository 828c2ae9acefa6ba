"""Messages between edge and invoker: JSON with descriptors, on a unix socket."""

from __future__ import annotations

import array
import asyncio
import contextlib
import json
import os
import socket
from collections import deque
from collections.abc import Callable
from typing import Any

Message = dict[str, Any]
RECEIVE_BYTES = 65536
MAX_DESCRIPTORS = 16
MAX_MESSAGE_BYTES = 64 * 2**20  # The message about the end of a sandbox carries its logs, at most 11 MB.


class Channel:
    """One end of a connection. Messages arrive in order, each with its descriptors."""

    def __init__(
        self, sock: socket.socket, on_message: Callable[[Message, list[int]], None], on_close: Callable[[], None]
    ) -> None:
        sock.setblocking(False)
        self._sock = sock
        self._on_message = on_message
        self._on_close = on_close
        self._loop = asyncio.get_running_loop()
        self._in = bytearray()  # `bytes` would be copied whole for each chunk of a long message.
        self._descriptors: deque[int] = deque()
        self._out: deque[tuple[memoryview, tuple[int, ...]]] = deque()
        self._is_open = True
        self._loop.add_reader(sock, self._readable)

    def send(self, message: Message, *descriptors: int) -> None:
        """Queue a message; closes the descriptors after sending, so pass duplicates."""
        if not self._is_open:
            close_all(descriptors)
            return
        body = json.dumps(message).encode()
        head = len(body).to_bytes(4, "little") + len(descriptors).to_bytes(1, "little")
        self._out.append((memoryview(head + body), descriptors))
        if len(self._out) == 1:
            self._writable()

    def close(self) -> None:
        if not self._is_open:
            return
        self._is_open = False
        self._loop.remove_reader(self._sock)
        self._loop.remove_writer(self._sock)
        for _, descriptors in self._out:
            close_all(descriptors)
        close_all(self._descriptors)
        self._sock.close()
        self._on_close()

    def _writable(self) -> None:
        try:
            while self._out:
                data, descriptors = self._out[0]
                ancillary = (
                    [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", descriptors))] if descriptors else []
                )
                sent = self._sock.sendmsg([data], ancillary)
                close_all(descriptors)
                if sent == len(data):
                    self._out.popleft()
                else:
                    self._out[0] = (data[sent:], ())
        except (BlockingIOError, InterruptedError):
            self._loop.add_writer(self._sock, self._writable)
            return
        except OSError:
            self.close()
            return
        self._loop.remove_writer(self._sock)

    def _readable(self) -> None:
        try:
            data, descriptors = receive(self._sock)
        except (BlockingIOError, InterruptedError):
            return
        except OSError:
            self.close()
            return
        self._descriptors.extend(descriptors)
        if not data:
            self.close()
            return
        self._in += data
        while len(self._in) >= 5 and self._is_open:
            length, count = int.from_bytes(self._in[:4], "little"), self._in[4]
            if length > MAX_MESSAGE_BYTES:
                self.close()
                return
            if len(self._in) < 5 + length or len(self._descriptors) < count:
                return
            message = json.loads(self._in[5 : 5 + length])
            del self._in[: 5 + length]
            self._on_message(message, [self._descriptors.popleft() for _ in range(count)])


def receive(sock: socket.socket) -> tuple[bytes, list[int]]:
    """Read available bytes and the descriptors sent with them."""
    descriptors = array.array("i")
    space = socket.CMSG_SPACE(MAX_DESCRIPTORS * descriptors.itemsize)
    data, ancillary, _, _ = sock.recvmsg(RECEIVE_BYTES, space, socket.MSG_CMSG_CLOEXEC)
    for level, kind, content in ancillary:
        if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
            descriptors.frombytes(content[: len(content) - len(content) % descriptors.itemsize])
    return data, list(descriptors)


def close_all(descriptors: Any) -> None:
    for descriptor in descriptors:
        with contextlib.suppress(OSError):
            os.close(descriptor)
