"""Which peers are reverse proxies that may say on whose behalf they call."""

from __future__ import annotations

import contextlib
import ipaddress

Networks = tuple[ipaddress.IPv4Network | ipaddress.IPv6Network, ...]


def networks(texts: tuple[str, ...]) -> Networks:
    return tuple(ipaddress.ip_network(text, strict=False) for text in texts)


def is_within(address: str, among: Networks) -> bool:
    with contextlib.suppress(ValueError):
        parsed = ipaddress.ip_address(address)
        return any(parsed in network for network in among)
    return False


def client_of(peer: str, forwarded: str | None, trusted: Networks) -> str:
    """Return the address a request comes from: the peer's, or the one that a trusted proxy says it calls for."""
    if forwarded and is_within(peer, trusted):
        return forwarded.rpartition(",")[2].strip()[:64]
    return peer
