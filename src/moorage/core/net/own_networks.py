"""IP addresses of this host, read from the kernel's routing tables.

Sandboxes and the client for users' URLs block these addresses: a service on a public address of this machine, such as
a database or a management port behind a firewall, is reachable from the machine itself.
"""

from __future__ import annotations

import socket
import struct
import time
from collections.abc import Callable, Iterator
from dataclasses import field

from moorage.core.kit.records import dataclass

_RTM_GETROUTE = 26
_NLM_F_REQUEST_DUMP = 0x301
_NLMSG_ERROR = 2
_NLMSG_DONE = 3
_RTA_DST = 1
_HOST_ROUTES = {2, 3, 4}  # RTN_LOCAL, RTN_BROADCAST, RTN_ANYCAST: packets to these are delivered locally.


def read_own_networks() -> tuple[str, ...]:
    """List the networks that the kernel delivers to this host itself."""
    families = (socket.AF_INET, socket.AF_INET6)
    return tuple(sorted({network for family in families for network in _local_routes(family)}))


@dataclass(slots=True)
class OwnNetworks:
    """Cache of this host's networks for a second: interfaces may come up."""

    read: Callable[[], tuple[str, ...]] = read_own_networks
    lifetime_s: float = 1.0
    _networks: tuple[str, ...] = ()
    _read_at: float = field(default=float("-inf"))

    def get(self) -> tuple[str, ...]:
        if time.monotonic() - self._read_at > self.lifetime_s:
            self._networks = self.read()
            self._read_at = time.monotonic()
        return self._networks


def _local_routes(family: int) -> Iterator[str]:
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 0) as kernel:
        body = struct.pack("=BBBBBBBBI", family, 0, 0, 0, 0, 0, 0, 0, 0)
        kernel.send(struct.pack("=IHHII", 16 + len(body), _RTM_GETROUTE, _NLM_F_REQUEST_DUMP, 1, 0) + body)
        while True:
            for kind, payload in _messages(kernel.recv(1 << 18)):
                if kind == _NLMSG_DONE:
                    return
                if kind == _NLMSG_ERROR:
                    raise OSError(-struct.unpack_from("=i", payload)[0], "cannot list this host's addresses")
                yield from _destination(family, payload)


def _messages(data: bytes) -> Iterator[tuple[int, bytes]]:
    while len(data) >= 16:
        length, kind = struct.unpack_from("=IH", data)
        yield kind, data[16:length]
        data = data[(length + 3) & ~3 :]


def _destination(family: int, payload: bytes) -> Iterator[str]:
    prefix, route_type = payload[1], payload[7]
    if route_type not in _HOST_ROUTES:
        return
    attributes = payload[12:]
    while len(attributes) >= 4:
        length, kind = struct.unpack_from("=HH", attributes)
        if kind == _RTA_DST:
            yield f"{socket.inet_ntop(family, attributes[4:length])}/{prefix}"
        attributes = attributes[max((length + 3) & ~3, 4) :]
