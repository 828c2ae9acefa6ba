"""Counts the open connections of the public listener per client address."""

from __future__ import annotations

import ipaddress
from typing import Protocol

MAX_PER_ADDRESS = 2000  # connections of one address
MAX_CONNECTIONS = 16_384
UNKNOWN = "unknown"
_MAX_CANDIDATES = 64  # connections that are considered for eviction


class Closable(Protocol):
    @property
    def is_answering(self) -> bool: ...

    def abort(self) -> None: ...


def key_of(address: str) -> str:
    """Return the key of an address: itself, or the /64 of an IPv6 address.

    An IPv6 subscriber has at least a /64 and can use any address in it.
    """
    if ":" not in address:
        return address or UNKNOWN
    try:
        parsed = ipaddress.IPv6Address(address.partition("%")[0])
    except ValueError:
        return UNKNOWN
    if parsed.ipv4_mapped is not None:
        return str(parsed.ipv4_mapped)
    return f"{parsed.exploded[:19]}::/64"


def key_from_gateway(client: bytes | None) -> str:
    """Return the key of the client address from the gateway's header."""
    return key_of(client.decode("latin-1")) if client else UNKNOWN


def key_from_proxy(headers: list[tuple[bytes, bytes]]) -> str:
    """Return the key of the last X-Forwarded-For address, added by the proxy."""
    forwarded = next((value for name, value in reversed(headers) if name == b"x-forwarded-for"), b"")
    return key_of(forwarded.decode("latin-1").rpartition(",")[2].strip()[:64])


class Clients:
    """Open connections by address; above the total the largest address loses one."""

    def __init__(self, per_address: int = MAX_PER_ADDRESS, total: int = MAX_CONNECTIONS) -> None:
        self._per_address = per_address
        self._total = total
        self._open: dict[str, dict[Closable, None]] = {}
        self._count = 0

    def add(self, key: str, connection: Closable) -> bool:
        """Count a connection; return False, uncounted, if its address has too many."""
        own = self._open.get(key)
        if own is None:
            own = self._open[key] = {}
        elif len(own) >= self._per_address:
            return False
        if self._count >= self._total and not self._make_room(key):
            if not own:
                del self._open[key]
            return False
        own[connection] = None
        self._count += 1
        return True

    def remove(self, key: str, connection: Closable) -> None:
        own = self._open.get(key)
        if own is not None and connection in own:
            del own[connection]
            self._count -= 1
            if not own:
                del self._open[key]

    def _make_room(self, newcomer: str) -> bool:
        largest = max(self._open, key=lambda key: len(self._open[key]))
        own = self._open[largest]
        if largest == newcomer or len(own) <= len(self._open[newcomer]) + 1:
            return False
        for connection, _ in zip(own, range(_MAX_CANDIDATES), strict=False):
            if not connection.is_answering:
                self.remove(largest, connection)
                connection.abort()
                return True
        return False
