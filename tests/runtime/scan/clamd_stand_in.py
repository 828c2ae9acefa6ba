"""A server with clamd's protocol on a real socket, for tests, with a single signature."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field


@dataclass
class StandIn:
    """Configured answers, and the received data."""

    listener: socket.socket
    signature: bytes = b"\xff\xfe never sent"
    answer: bytes | None = None  # sent instead of a verdict
    most: int = 2**30  # bytes after which it answers that a stream is too long
    streams: list[bytes] = field(default_factory=list)

    @property
    def address(self) -> str:
        name = self.listener.getsockname()
        return name if isinstance(name, str) else f"{name[0]}:{name[1]}"

    def serve(self) -> None:
        while True:
            try:
                connection, _ = self.listener.accept()
            except OSError:
                return
            with connection, connection.makefile("rb") as stream:
                connection.sendall(self.reply(stream))

    def reply(self, stream: object) -> bytes:
        read = stream.read  # type: ignore[attr-defined]
        if read(10) != b"zINSTREAM\0":
            return b"UNKNOWN COMMAND\0"
        content = b""
        while size := int.from_bytes(read(4)):
            content += read(size)
            if len(content) > self.most:
                return b"INSTREAM size limit exceeded. ERROR\0"
        self.streams.append(content)
        if self.answer is not None:
            return self.answer
        return b"stream: Test.Signature-1 FOUND\0" if self.signature in content else b"stream: OK\0"


@contextmanager
def running(path: str | None = None) -> Iterator[StandIn]:
    """Run a server at a socket path, or on a free loopback port."""
    listener = socket.socket(socket.AF_UNIX if path else socket.AF_INET, socket.SOCK_STREAM)
    listener.bind(path or ("127.0.0.1", 0))
    listener.listen()
    stand_in = StandIn(listener)
    thread = threading.Thread(target=stand_in.serve)
    thread.start()
    try:
        yield stand_in
    finally:
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()
        thread.join()
