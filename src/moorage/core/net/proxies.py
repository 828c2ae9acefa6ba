"""Trusted reverse proxies, whose `X-Forwarded-For` names the client."""

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
    """Return the peer's address, or the forwarded one of a trusted proxy."""
    if forwarded and is_within(peer, trusted):
        return forwarded.rpartition(",")[2].strip()[:64]
    return peer
