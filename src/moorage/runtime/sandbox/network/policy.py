"""Egress policy of sandboxes."""

from __future__ import annotations

from functools import lru_cache
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network

from moorage.core.kit.records import dataclass
from moorage.core.net.targets import TargetPolicy, block_refusal

_GENERAL_RULE = TargetPolicy()


@dataclass(frozen=True, slots=True)
class NetworkPolicy:
    """Allowed addresses. Public addresses other than this host's are allowed."""

    allow: tuple[str, ...] = ()  # CIDR networks that are allowed although the general rule refuses them
    block: tuple[str, ...] = ()  # CIDR networks that are always refused, except for egress rules
    outside: bool = True  # False allows only the sandbox's own loopback, without DNS.
    egress: tuple[str, ...] = ()  # egress rules: "address:port" of this host, always allowed

    def __post_init__(self) -> None:
        _endpoints(self.egress)
        _networks(self.allow)
        _networks(self.block)

    def has_egress_rule(self, ip: IPv4Address | IPv6Address | None, port: int) -> bool:
        """Whether an egress rule allows this endpoint of the host, also on loopback."""
        return bool(self.egress) and (ip, port) in _endpoints(self.egress)

    def refusal(self, address: str, own: tuple[str, ...]) -> str | None:
        """Return the reason to refuse an address, or None; `own` are this host's networks."""
        if not self.outside:
            return "it has no network"
        if blocked := block_refusal(address, self.block):
            return blocked
        ip = ip_address(address)
        target = getattr(ip, "ipv4_mapped", None) or ip
        if any(target in network for network in _networks(self.allow)):
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
