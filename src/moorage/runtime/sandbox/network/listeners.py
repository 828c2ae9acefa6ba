"""The one way into a sandbox: a socket of the host that takes the place of the sandbox's own when it listens.

The door belongs to whoever keeps the sandbox and stays when the program ends. Connections then wait at it until the
next one listens. All who listen at it share one open file, and with it whether calls wait: the last one decides.
"""

from __future__ import annotations

import socket
from collections.abc import Callable
from ipaddress import IPv4Address
from typing import Final

from moorage.runtime.sandbox.network.callers import Address
from moorage.runtime.sandbox.network.host_sockets import keep_options

HOST = "127.0.0.1"
# A program may ask for room for only a few; but whoever comes while it starts again has to wait somewhere.
LEAST_BACKLOG = 511
_SO_COOKIE = 57
_INTERNET = (socket.AF_INET, socket.AF_INET6)


class Door:
    """A bound socket of the host and the port at which a sandbox finds it. `on_open` is called at each `listen`."""

    def __init__(self, host: socket.socket, on_open: Callable[[], None]) -> None:
        self.port: Final[int] = host.getsockname()[1]
        self.socket: Final = host
        self._cookie = _cookie(host)
        self._on_open = on_open

    def is_for(self, own: socket.socket) -> bool:
        """Tell whether a sandbox's own socket stands where the door is to be."""
        is_tcp = own.family in _INTERNET and own.type == socket.SOCK_STREAM
        return is_tcp and self.is_whole and own.getsockname()[1] == self.port

    def is_itself(self, host: socket.socket) -> bool:
        """Tell whether a socket of the host is the door, and not one of the connections that came through it."""
        return _cookie(host) == self._cookie

    @property
    def is_whole(self) -> bool:
        """Tell whether its keeper has not closed it: then a program that listens stays by itself."""
        return self.socket.fileno() >= 0

    def resemble(self, own: socket.socket) -> None:
        keep_options(self.socket, own)

    def open(self, backlog: int) -> int:
        self.socket.listen(max(backlog, LEAST_BACKLOG) if backlog >= 0 else backlog)
        self._on_open()
        return 0

    def address(self, called: Address) -> Address:
        """Return where the door is, for a sandbox that has called itself."""
        return Address(called.data, called.family, IPv4Address(HOST), self.port)


def _cookie(sock: socket.socket) -> bytes:
    """Return a number that the kernel never gives to another socket."""
    return sock.getsockopt(socket.SOL_SOCKET, _SO_COOKIE, 8)
