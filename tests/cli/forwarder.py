"""Forwards TCP connections to the platform, and cuts them when a test asks."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Iterator


class Forwarder:
    def __init__(self, port: int) -> None:
        self._target = port
        self._open: list[socket.socket] = []
        self._server = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._server.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def cut(self) -> int:
        """Reset all connections, and return their number; new ones are accepted."""
        doomed, self._open = self._open, []
        for each in doomed:
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
            each.close()
        return len(doomed) // 2

    def close(self) -> None:
        self._server.close()
        self.cut()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._server.accept()
                server = socket.create_connection(("127.0.0.1", self._target))
                self._open += [client, server]
                for source, sink in ((client, server), (server, client)):
                    threading.Thread(target=_copy, args=(source, sink), daemon=True).start()


def _copy(source: socket.socket, sink: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while chunk := source.recv(65536):
            sink.sendall(chunk)
    with contextlib.suppress(OSError):
        sink.shutdown(socket.SHUT_WR)


@contextlib.contextmanager
def forwarding(port: int) -> Iterator[Forwarder]:
    forwarder = Forwarder(port)
    try:
        yield forwarder
    finally:
        forwarder.close()
