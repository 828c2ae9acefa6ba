"""Clients of the public listener: the address that counts for a client, and its open connections."""

from __future__ import annotations

import ipaddress
from typing import Protocol

EACH = 2000  # connections of one address
ALL = 16_384
UNKNOWN = "unknown"
_LOOKED_AT = 64  # connections of the address with most, when one of them has to go


class Closable(Protocol):
    @property
    def is_answering(self) -> bool: ...

    def abort(self) -> None: ...


def key_of(address: str) -> str:
    """Return the key under which an address is counted: itself, or its /64 where it is an IPv6 address.

    A subscriber of IPv6 has a /64 at least, so any longer prefix could be changed at will.
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


def named_by_gateway(client: bytes | None) -> str:
    """Return the key of the address that the public gateway names."""
    return key_of(client.decode("latin-1")) if client else UNKNOWN


def named_by_proxy(headers: list[tuple[bytes, bytes]]) -> str:
    """Return the key of the address that a trusted proxy names: the last, which is the only one it has seen itself."""
    forwarded = next((value for name, value in reversed(headers) if name == b"x-forwarded-for"), b"")
    return key_of(forwarded.decode("latin-1").rpartition(",")[2].strip()[:64])


class Clients:
    """Open connections by address. Past the total, the address with most of them loses one."""

    def __init__(self, each: int = EACH, most: int = ALL) -> None:
        self._each = each
        self._most = most
        self._open: dict[str, dict[Closable, None]] = {}
        self._count = 0

    def enter(self, key: str, connection: Closable) -> bool:
        """Count a connection; return False, without counting it, where its address has too many."""
        own = self._open.get(key)
        if own is None:
            own = self._open[key] = {}
        elif len(own) >= self._each:
            return False
        if self._count >= self._most and not self._make_room(key):
            if not own:
                del self._open[key]
            return False
        own[connection] = None
        self._count += 1
        return True

    def leave(self, key: str, connection: Closable) -> None:
        own = self._open.get(key)
        if own is not None and connection in own:
            del own[connection]
            self._count -= 1
            if not own:
                del self._open[key]

    def _make_room(self, newcomer: str) -> bool:
        greediest = max(self._open, key=lambda key: len(self._open[key]))
        own = self._open[greediest]
        if greediest == newcomer or len(own) <= len(self._open[newcomer]) + 1:
            return False
        for connection, _ in zip(own, range(_LOOKED_AT), strict=False):
            if not connection.is_answering:
                self.leave(greediest, connection)
                connection.abort()
                return True
        return False
