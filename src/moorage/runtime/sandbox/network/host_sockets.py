"""Host sockets for outgoing connections of sandboxes.

Each is bound to a port by number. The kernel keeps such a port with its socket after the connection has ended, so the
sandbox cannot bind the socket again and block a port that a service of the host needs.
"""

from __future__ import annotations

import errno
import random
import socket
from ipaddress import IPv6Address
from pathlib import Path

from moorage.runtime.sandbox.network.callers import Address

_SYSCTL = Path("/proc/sys/net/ipv4")
_DEFAULT_RANGE = (32768, 60999)
_MAX_ATTEMPTS = 32
_ANY: dict[int, str] = {socket.AF_INET: "0.0.0.0", socket.AF_INET6: "::"}  # noqa: S104 - a client's port, no server's

# (level, option, bytes) of options that a program sets before it connects and expects to hold afterwards
_COPIED_OPTIONS = (
    (socket.IPPROTO_TCP, socket.TCP_NODELAY, 4),
    (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 4),
    (socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 4),
    (socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, 4),
    (socket.IPPROTO_TCP, socket.TCP_KEEPCNT, 4),
    (socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, 4),
    (socket.SOL_SOCKET, socket.SO_LINGER, 8),
    (socket.SOL_SOCKET, socket.SO_RCVTIMEO, 16),
    (socket.SOL_SOCKET, socket.SO_SNDTIMEO, 16),
)


class HostPorts:
    """Client ports for sandboxes: the upper half of the ephemeral range."""

    def __init__(self) -> None:
        low, high = _client_range()
        self.ports = range((low + high) // 2, high + 1)  # The lower half is left to the host.
        self.reserved = _reserved_ports()


class SandboxPorts:
    """Client ports for one sandbox: a random half of those for sandboxes.

    The supervisor does not see that a sandbox closes a socket, so it cannot count them. With its own half, no sandbox
    uses up the ports of other sandboxes towards an address.
    """

    def __init__(self, host: HostPorts) -> None:
        self._host = host
        self._own = random.getrandbits(len(host.ports))  # one bit per port

    def start_connecting(self, like: socket.socket, address: Address) -> tuple[socket.socket, int]:
        """Start connecting a new socket with the options of `like`; return its errno too.

        Connections to different targets share a port. If a port is in use for this target, the next one is tried.
        """
        for _ in range(_MAX_ATTEMPTS):
            port = self._choose()
            host = socket.socket(like.family, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
            try:
                code = _bind(host, port) or _connect(host, like, address)
            except OSError:
                host.close()
                raise
            if code not in (errno.EADDRINUSE, errno.EADDRNOTAVAIL):
                break
            host.close()
        return host, code

    def _choose(self) -> int:
        for _ in range(len(self._host.ports)):
            port = random.choice(self._host.ports)  # noqa: S311 - ports are no secret
            if self.has(port):
                break
        return port

    def has(self, port: int) -> bool:
        """Whether the sandbox may use a port of the range."""
        return port not in self._host.reserved and bool(self._own >> (port - self._host.ports.start) & 1)


def _bind(host: socket.socket, port: int) -> int:
    host.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        host.bind((_ANY[host.family], port))
    except OSError as error:
        return error.errno or errno.EIO
    return 0


def copy_options(host: socket.socket, like: socket.socket) -> None:
    for level, option, size in _COPIED_OPTIONS:
        value = like.getsockopt(level, option, size)
        if value != host.getsockopt(level, option, size):
            host.setsockopt(level, option, value)


def _connect(host: socket.socket, like: socket.socket, address: Address) -> int:
    if host.family == socket.AF_INET6 and isinstance(address.ip, IPv6Address):
        v6_only = like.getsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY)
        host.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, v6_only)
    copy_options(host, like)
    return host.connect_ex(address.for_socket(host.family))


def _client_range() -> tuple[int, int]:
    try:
        low, high = map(int, (_SYSCTL / "ip_local_port_range").read_text().split())
    except (OSError, ValueError):
        return _DEFAULT_RANGE
    return low, high


def _reserved_ports() -> set[int]:
    """Read the ports that the operator reserves, such as `8080,9148-9150`."""
    try:
        text = (_SYSCTL / "ip_local_reserved_ports").read_text().strip()
    except OSError:
        return set()
    ranges = [part.partition("-") for part in text.split(",") if part]
    return {port for first, _, last in ranges for port in range(int(first), int(last or first) + 1)}
