"""Which addresses sandboxed code may connect to: the general rule, this host's own addresses, the operator's lists."""

from __future__ import annotations

import socket
import struct
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import lru_cache
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network

from moorage.kit.targets import TargetPolicy, block_refusal

_RTM_GETROUTE = 26
_NLM_F_REQUEST_DUMP = 0x301
_NLMSG_ERROR = 2
_NLMSG_DONE = 3
_RTA_DST = 1
_HOST_ROUTES = {2, 3, 4}  # RTN_LOCAL, RTN_BROADCAST, RTN_ANYCAST: the kernel delivers these to itself.


@dataclass(frozen=True, slots=True)
class NetworkPolicy:
    """Where sandboxed code may connect to, besides itself. Public addresses that are not this host's are open."""

    allow: tuple[str, ...] = ()  # Networks in CIDR form that are open although the general rule closes them.
    block: tuple[str, ...] = ()  # Networks in CIDR form that stay closed whatever else is allowed.
    outside: bool = True  # False leaves a sandbox nothing but its own loopback, and no names.
    doors: tuple[str, ...] = ()  # "address:port" of this very host, open whatever else is said here.

    def __post_init__(self) -> None:
        _endpoints(self.doors)
        _networks(self.allow)
        _networks(self.block)

    def is_door(self, ip: IPv4Address | IPv6Address | None, port: int) -> bool:
        """Tell whether just this address and port of the host is open: then it is not the sandbox's own loopback."""
        return bool(self.doors) and (ip, port) in _endpoints(self.doors)

    def refusal(self, address: str, own: tuple[str, ...]) -> str | None:
        """Say why a connection to this address is refused; `own` are the networks that this host answers itself."""
        if not self.outside:
            return "it has no network"
        if blocked := block_refusal(address, self.block):
            return blocked
        ip = ip_address(address)
        face = getattr(ip, "ipv4_mapped", None) or ip
        if any(face in network for network in _networks(self.allow)):
            return None
        return TargetPolicy(extra_blocked=own).refusal(address)


@lru_cache(maxsize=64)
def _networks(cidrs: tuple[str, ...]) -> tuple[IPv4Network | IPv6Network, ...]:
    return tuple(ip_network(cidr, strict=False) for cidr in cidrs)


@lru_cache(maxsize=64)
def _endpoints(texts: tuple[str, ...]) -> frozenset[tuple[IPv4Address | IPv6Address, int]]:
    return frozenset(map(_endpoint, texts))


def _endpoint(text: str) -> tuple[IPv4Address | IPv6Address, int]:
    address, _, port = text.rpartition(":")
    if not port.isdecimal() or not 0 < int(port) < 65536:
        raise ValueError(f"{text!r} is not an address and a port")
    return ip_address(address.strip("[]")), int(port)


def read_own_networks() -> tuple[str, ...]:
    """List the networks, mostly single addresses, whose packets the kernel delivers to this host itself."""
    families = (socket.AF_INET, socket.AF_INET6)
    return tuple(sorted({network for family in families for network in _local_routes(family)}))


@dataclass(slots=True)
class OwnNetworks:
    """This host's own networks, read again once they are a second old: an interface may come up at any time."""

    read: Callable[[], tuple[str, ...]] = read_own_networks
    lifetime_s: float = 1.0
    _known: tuple[str, ...] = ()
    _read_at: float = field(default=float("-inf"))

    def get(self) -> tuple[str, ...]:
        if time.monotonic() - self._read_at > self.lifetime_s:
            self._known = self.read()
            self._read_at = time.monotonic()
        return self._known


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
