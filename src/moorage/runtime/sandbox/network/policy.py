"""Which addresses sandboxed code may connect to: the general rule, this host's own addresses, the operator's lists."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network

from moorage.core.net.targets import TargetPolicy, block_refusal

_GENERAL_RULE = TargetPolicy()


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
        return _GENERAL_RULE.refusal(address, own=own)


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
