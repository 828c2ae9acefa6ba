"""The port of the host at which an app is found: chosen once, and held for as long as its shim lives."""

from __future__ import annotations

import errno
import random
import re
import socket
import struct
import time
from pathlib import Path

from moorage.runtime.engines.ports import CannotStart
from moorage.runtime.sandbox.network.listeners import HOST

PORTS = range(20_000, 30_000)  # below those that the kernel gives to clients
ESTABLISHED, LISTEN = 1, 10  # as the kernel numbers the states of a connection
LEFT = (1, 4, 5, 6, 8, 9, 11)  # a connection, open or on its way to its end
TAKEN_S = 3.0  # What was killed has let go of everything after this.
PAUSE_S = 0.02

_NETLINK_SOCK_DIAG = 4
_SOCK_DIAG_BY_FAMILY = 20
_REQUEST_DUMP = 0x301
_DONE, _ERROR = 3, 2
_HEAD = struct.Struct("=IHHII")
_QUESTION = struct.Struct("=BBBxI")  # family, protocol, extensions, states
_REST = 44  # addresses, interface and cookie of the socket that is asked for, which are any


def bind(address: str = HOST, port: int = 0) -> socket.socket:
    """Return a socket that holds a port which nobody else uses: this one, or any.

    It is bound without the wish to share; only then is it said, because the connections that come in inherit it, and
    without it nobody could listen here again while one of them is open.
    """
    if port:
        return _bind_this(address, port)
    start = random.randrange(len(PORTS))  # noqa: S311 - nothing depends on whether it can be guessed
    for number in range(len(PORTS)):
        try:
            return _bound(address, PORTS[(start + number) % len(PORTS)])
        except OSError as error:
            if error.errno not in (errno.EADDRINUSE, errno.EACCES):
                raise
    raise CannotStart(f"it cannot be started: all ports from {PORTS[0]} to {PORTS[-1]} are in use")


def _bind_this(address: str, port: int) -> socket.socket:
    """Bind a port that was ours before, perhaps until just now: whoever held it may still be ending."""
    deadline = time.monotonic() + TAKEN_S
    while True:
        # Connections that are over keep a port for a minute from all who do not share it. They were ours: so do we.
        is_left = any(count(port, state) for state in LEFT)
        try:
            return _bound(address, port, shares=is_left)
        except OSError as error:
            if error.errno != errno.EADDRINUSE:
                raise CannotStart(f"it cannot be started: port {port} at {address}: {error.strerror}") from None
        if time.monotonic() > deadline:
            raise CannotStart(f"it cannot be started: port {port} is in use by another program")
        time.sleep(PAUSE_S)


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
    """Return a second socket at the port of a held one, on a wider address; the held one keeps its own.

    The kernel prefers the listener with the more specific address. The held socket was bound without sharing, so no
    other program has the port there.
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


def count(port: int, state: int) -> int:
    """Return how many sockets of this machine at a port of IPv4 are in a state."""
    try:
        return _ask_kernel(port, state)
    except OSError:
        pattern = rf"^ *\d+: \w+:{port:04X} \w+:\w+ {state:02X} "
        return len(re.findall(pattern, Path("/proc/net/tcp").read_text(), re.MULTILINE))


def _ask_kernel(port: int, state: int) -> int:
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, _NETLINK_SOCK_DIAG) as kernel:
        body = _QUESTION.pack(socket.AF_INET, socket.IPPROTO_TCP, 0, 1 << state) + struct.pack(">H", port) + bytes(2)
        body += bytes(_REST)
        head = _HEAD.pack(_HEAD.size + len(body), _SOCK_DIAG_BY_FAMILY, _REQUEST_DUMP, 1, 0)
        kernel.settimeout(1.0)
        kernel.send(head + body)
        found = 0
        while True:
            for kind in _kinds(kernel.recv(1 << 16)):
                if kind == _DONE:
                    return found
                if kind == _ERROR:
                    raise OSError(errno.EOPNOTSUPP, "the kernel does not tell about sockets")
                found += 1


def _kinds(data: bytes) -> list[int]:
    kinds = []
    while len(data) >= _HEAD.size:
        length, kind, *_ = _HEAD.unpack_from(data)
        kinds.append(kind)
        data = data[(length + 3) & ~3 :]
    return kinds
