"""Host socket that replaces the listening socket of a sandboxed app.

It is the only way into a sandbox. The shim keeps it when the app exits: connections wait until the next run listens.
All listening processes share one open file description, also its O_NONBLOCK flag: the last one to listen sets it.
"""

from __future__ import annotations

import socket
from collections.abc import Callable
from ipaddress import IPv4Address
from typing import Final

from moorage.runtime.sandbox.network.callers import Address
from moorage.runtime.sandbox.network.host_sockets import copy_options

HOST = "127.0.0.1"
# A program may request a short backlog, but connections have to wait there during a restart.
MIN_BACKLOG = 511
_SO_COOKIE = 57
_INTERNET = (socket.AF_INET, socket.AF_INET6)


class AppListener:
    """A host socket bound to the app's port. Calls `on_listen` at each `listen`."""

    def __init__(self, host: socket.socket, on_listen: Callable[[], None]) -> None:
        self.port: Final[int] = host.getsockname()[1]
        self.socket: Final = host
        self._cookie = _cookie(host)
        self._on_listen = on_listen

    def replaces(self, own: socket.socket) -> bool:
        """Whether this listener replaces a socket: a TCP socket at the app's port."""
        is_tcp = own.family in _INTERNET and own.type == socket.SOCK_STREAM
        return is_tcp and self.is_open and own.getsockname()[1] == self.port

    def is_same(self, host: socket.socket) -> bool:
        """Whether a host socket is this listener, and not a connection accepted from it."""
        return _cookie(host) == self._cookie

    @property
    def is_open(self) -> bool:
        """False after the shim closed it: programs then listen on their own socket."""
        return self.socket.fileno() >= 0

    def copy_options_from(self, own: socket.socket) -> None:
        copy_options(self.socket, own)

    def listen(self, backlog: int) -> int:
        self.socket.listen(max(backlog, MIN_BACKLOG) if backlog >= 0 else backlog)
        self._on_listen()
        return 0

    def address(self, requested: Address) -> Address:
        """Return the listener's host address, for a sandbox that connects to its own app."""
        return Address(requested.data, requested.family, IPv4Address(HOST), self.port)


def _cookie(sock: socket.socket) -> bytes:
    """Return the socket's cookie, a number that the kernel never reuses."""
    return sock.getsockopt(socket.SOL_SOCKET, _SO_COOKIE, 8)
