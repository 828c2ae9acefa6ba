"""Host sockets that replace the listening sockets of a sandboxed app.

They are the only way into a sandbox. The shim keeps them when the app exits: connections wait until the next run
listens. All processes that listen on a port share one open file description, also its O_NONBLOCK flag: the last one to
listen sets it.
"""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Callable
from ipaddress import IPv4Address
from typing import Final

from moorage.runtime.sandbox.network.callers import Address
from moorage.runtime.sandbox.network.host_sockets import copy_options

HOST = "127.0.0.1"
# A program may request a short backlog, but connections have to wait there during a restart.
MIN_BACKLOG = 511
FIRST_EPHEMERAL_PORT = 32_768  # of a sandbox's own network namespace
MAX_OTHERS = 8
_SO_COOKIE = 57
_INTERNET = (socket.AF_INET, socket.AF_INET6)


class AppListener:
    """A host socket for a port inside of the sandbox. Calls `on_listen` at each `listen`."""

    def __init__(self, host: socket.socket, on_listen: Callable[[], None], inside_port: int = 0) -> None:
        self.port: Final[int] = host.getsockname()[1]
        self.inside_port: Final[int] = inside_port or self.port
        self.socket = host
        self._cookie = _cookie(host)
        self._on_listen = on_listen
        self._has_listened = False

    def replaces(self, own: socket.socket) -> bool:
        """Whether this listener replaces a socket: a TCP socket at the app's port."""
        return _is_tcp(own) and self.is_open and own.getsockname()[1] == self.inside_port

    def is_same(self, host: socket.socket) -> bool:
        """Whether a host socket is this listener, and not a connection accepted from it."""
        return _cookie(host) == self._cookie

    @property
    def is_open(self) -> bool:
        """False after the shim closed it: programs then listen on their own socket."""
        return self.socket.fileno() >= 0

    def prepare_for(self, own: socket.socket) -> None:
        """Adapt the host socket to the socket that it replaces: its family and options."""
        if own.family == socket.AF_INET6 != self.socket.family and not self._has_listened:
            with contextlib.suppress(OSError):  # The port is shared, or the host has no IPv6.
                self._change_to_ipv6()
        copy_options(self.socket, own)

    def _change_to_ipv6(self) -> None:
        """Replace the host socket by one of IPv6 at the same address: programs expect addresses of their own family.

        Two sockets cannot listen at one port, so this is possible before the first `listen` only.
        """
        host = socket.socket(socket.AF_INET6, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
        try:
            host.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            host.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
            host.bind((f"::ffff:{self.socket.getsockname()[0]}", self.port))
        except OSError:
            host.close()
            raise
        self.socket.close()
        self.socket, self._cookie = host, _cookie(host)

    def listen(self, backlog: int) -> int:
        self._has_listened = True
        self.socket.listen(max(backlog, MIN_BACKLOG) if backlog >= 0 else backlog)
        self._on_listen()
        return 0

    def address(self, requested: Address) -> Address:
        """Return the listener's host address, for a sandbox that connects to its own app."""
        return Address(requested.data, requested.family, IPv4Address(HOST), self.port)


class AppListeners:
    """Listener of an app's port, and listeners of the other ports of an app that ignores it.

    A socket can be replaced only while its `listen` call waits. So each fixed port gets a host socket at once, as long
    as the app does not listen on its own port; which one is used is decided later. Ports that the kernel chose are
    internal to the app.
    """

    def __init__(
        self, main: AppListener, bind: Callable[[], socket.socket] | None, on_other: Callable[[AppListener], None]
    ) -> None:
        self.main: Final = main
        self.others: Final[dict[int, AppListener]] = {}  # by port inside
        self._bind = bind  # None for a program that listens only on its own port
        self._on_other = on_other
        self.is_main_used = False

    def find_for(self, own: socket.socket) -> AppListener | None:
        """Return the listener that replaces a socket of the sandbox."""
        if self.main.replaces(own):
            return self.main
        if not (self.main.is_open and _is_tcp(own)):
            return None
        port = own.getsockname()[1]
        return self.others.get(port) or self._add(port)

    def _add(self, port: int) -> AppListener | None:
        is_fixed = 0 < port < FIRST_EPHEMERAL_PORT
        if self._bind is None or self.is_main_used or not is_fixed or len(self.others) >= MAX_OTHERS:
            return None
        listener = self.others[port] = AppListener(self._bind(), lambda: self._on_other(listener), port)
        return listener

    def find_same(self, host: socket.socket) -> AppListener | None:
        """Return the listener that a host socket is."""
        return next((each for each in (self.main, *self.others.values()) if each.is_same(host)), None)

    def find_at(self, port: int) -> AppListener | None:
        """Return the listener that the app reaches at a port of its own loopback."""
        if port == self.main.inside_port:
            return self.main
        # A program that reads the address of its replaced socket finds the host's port.
        return self.others.get(port) or next((each for each in self.others.values() if each.port == port), None)

    def close(self) -> None:
        for listener in (self.main, *self.others.values()):
            listener.socket.close()


def _is_tcp(own: socket.socket) -> bool:
    return own.family in _INTERNET and own.type == socket.SOCK_STREAM


def _cookie(sock: socket.socket) -> bytes:
    """Return the socket's cookie, a number that the kernel never reuses."""
    return sock.getsockopt(socket.SOL_SOCKET, _SO_COOKIE, 8)
