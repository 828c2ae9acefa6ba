"""Host port of an app: chosen once, and bound by the shim for its whole life."""

from __future__ import annotations

import contextlib
import errno
import os
import random
import socket
import struct
import time
from collections.abc import Iterable, Iterator
from pathlib import Path

from moorage.core.net import tcp_sockets
from moorage.runtime.engines.ports import CannotStart
from moorage.runtime.sandbox.network.listeners import HOST

PORTS = range(20_000, 30_000)  # below the kernel's ephemeral ports
CONNECTED_STATES = (1, 4, 5, 6, 8, 9, 11)  # established, or closing (FIN_WAIT, TIME_WAIT, CLOSE_WAIT, ...)
PORT_RELEASE_S = 3.0  # A killed process has released its sockets after this.
RETRY_INTERVAL_S = 0.02

# In the order of /proc/net/tcp and tcp6: any, 127.0.0.1, any, 127.0.0.1 as IPv6
_ADDRESSES = (bytes(4), bytes([127, 0, 0, 1]), bytes(16), bytes(10) + b"\xff\xff" + bytes([127, 0, 0, 1]))
_REACHED_AT_LOOPBACK = {"".join(f"{word:08X}" for (word,) in struct.iter_unpack("=I", each)) for each in _ADDRESSES}


def bind(address: str = HOST, port: int = 0) -> socket.socket:
    """Return a socket bound to `port`, or to any free port, without sharing it.

    SO_REUSEADDR is off during `bind`, so a used port fails. It is on afterwards: accepted connections inherit it, and
    without it a new `listen` would fail while one of them is open.
    """
    if port:
        return _bind_own(address, port)
    start = random.randrange(len(PORTS))  # noqa: S311 - ports are no secret
    for number in range(len(PORTS)):
        try:
            return _bound(address, PORTS[(start + number) % len(PORTS)])
        except OSError as error:
            if error.errno not in (errno.EADDRINUSE, errno.EACCES):
                raise
    raise CannotStart(f"it cannot be started: all ports from {PORTS[0]} to {PORTS[-1]} are in use")


def _bind_own(address: str, port: int) -> socket.socket:
    """Bind a server's previous port; wait for its previous process to exit."""
    deadline = time.monotonic() + PORT_RELEASE_S
    while True:
        # Closed connections block a port for a minute unless SO_REUSEADDR is set. They belong to this server's
        # previous process, so setting it is safe.
        has_connections = any(tcp_sockets.count(port, state) for state in CONNECTED_STATES)
        try:
            return _bound(address, port, shares=has_connections)
        except OSError as error:
            if error.errno != errno.EADDRINUSE:
                raise CannotStart(f"it cannot be started: port {port} at {address}: {error.strerror}") from None
        if time.monotonic() > deadline:
            raise CannotStart(f"it cannot be started: port {port} is in use by another program")
        time.sleep(RETRY_INTERVAL_S)


def _bound(address: str, port: int, *, shares: bool = False) -> socket.socket:
    sock = socket.socket(socket.AF_INET, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, shares)
        sock.bind((address, port))
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    except OSError:
        sock.close()
        raise
    return sock


def share(held: socket.socket, address: str) -> socket.socket:
    """Return a second socket at the port of `held`, on a wider address.

    The kernel prefers the listener with the more specific address, so `held` keeps its own connections. `held` was
    bound without sharing, so no other program has the port.
    """
    port = held.getsockname()[1]
    sock = socket.socket(socket.AF_INET, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
    try:
        held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.bind((address, port))
    except OSError as error:
        sock.close()
        raise CannotStart(f"it cannot be started: port {port} at {address}: {error.strerror}") from None
    return sock


def listening(pids: Iterable[int]) -> set[int]:
    """Return the TCP ports on which these processes listen, and which 127.0.0.1 reaches."""
    inodes = {inode for pid in pids for inode in _socket_inodes(pid)}
    ports = set()
    for table in ("tcp", "tcp6"):
        with contextlib.suppress(OSError):
            for line in Path("/proc/net", table).read_text().splitlines()[1:]:
                _, local, _, state, *_, inode = line.split()[:10]
                address, _, port = local.partition(":")
                if int(state, 16) == tcp_sockets.LISTEN and inode in inodes and address in _REACHED_AT_LOOPBACK:
                    ports.add(int(port, 16))
    return ports


def _socket_inodes(pid: int) -> Iterator[str]:
    with contextlib.suppress(OSError):
        for fd in os.scandir(f"/proc/{pid}/fd"):
            with contextlib.suppress(OSError):
                target = os.readlink(fd.path)
                if target.startswith("socket:["):
                    yield target[8:-1]
