"""A TCP relay on loopback: a slow or broken network between two processes."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections.abc import Iterator

from tests.ports import free_port

CHUNK = 2**16


class Relay:
    """Passes connections on to a port, each chunk after a delay; `cut` ends all connections."""

    def __init__(self, target: int) -> None:
        self.target = target
        self.port = free_port()
        self.delay_s = 0.0
        self.is_open = True
        self.count = 0  # connections so far
        self._sockets: set[socket.socket] = set()
        self._server = socket.create_server(("127.0.0.1", self.port))
        threading.Thread(target=self._accept, daemon=True).start()

    def cut(self) -> int:
        """End all connections, and return their number; new ones are accepted."""
        doomed = list(self._sockets)
        for sock in doomed:
            with contextlib.suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)
        return len(doomed) // 2

    def close(self) -> None:
        self._server.close()
        self.cut()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._server.accept()
                threading.Thread(target=self._pass_on, args=(client,), daemon=True).start()

    def _pass_on(self, client: socket.socket) -> None:
        self.count += 1
        with client, contextlib.suppress(OSError):
            if not self.is_open:
                return
            with socket.create_connection(("127.0.0.1", self.target)) as server:
                self._sockets |= {client, server}
                back = threading.Thread(target=self._pump, args=(server, client), daemon=True)
                back.start()
                self._pump(client, server)
                back.join()
                self._sockets -= {client, server}

    def _pump(self, source: socket.socket, target: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while chunk := source.recv(CHUNK):
                time.sleep(self.delay_s)
                target.sendall(chunk)
        for sock in (source, target):
            with contextlib.suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)


@contextlib.contextmanager
def relaying(target: int) -> Iterator[Relay]:
    relay = Relay(target)
    try:
        yield relay
    finally:
        relay.close()
