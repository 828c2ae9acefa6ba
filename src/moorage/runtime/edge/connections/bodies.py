"""Memory budget of incomplete requests, in total and per client address.

- *Loose* bytes: headers, small bodies, the first part of a large body, pipelined requests. Above its share an address
  is refused; above the total the address with most bytes loses one request, so that a small request always fits.
- *Reserved* bytes: large bodies. Reading a large body starts once memory for all of it is reserved, so it can always be
  finished. Addresses take turns. While others wait, a body that arrives too slowly is rejected, and its address is
  served after those that did not stall.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from moorage.core.kit.records import dataclass
from moorage.runtime.edge.calls.shares import Shares
from moorage.runtime.edge.connections.heap import trim

LARGE_BYTES = 64 * 1024  # A larger body needs a reservation.
MB = 2**20
_PIECE_BYTES = 64 * 1024  # Smaller parts of a body are joined: each object has an overhead of 40 bytes.
_MAX_GRANT_KEYS = 64  # addresses per round when memory becomes free
_MAX_STALLED = 10_000


@dataclass(frozen=True, slots=True)
class Bounds:
    """Limits of the memory budget, and the minimum rate of bodies while others wait."""

    loose: int = 24 * MB
    loose_guaranteed: int = 1 * MB
    loose_extra: int = 8 * MB
    reserved: int = 56 * MB
    reserved_guaranteed: int = 6 * MB  # one body of the largest size
    reserved_extra: int = 12 * MB
    waiting: int = 256  # bodies of one address that wait for a reservation
    min_rate: float = 32 * 1024.0  # bytes per second of a body while others wait
    grace_s: float = 3.0  # period over which the rate is measured
    crowded_grace_s: float = 1.0  # the same while more than `crowd` addresses wait
    crowd: int = 8
    stalled_s: float = 30.0  # for which an address is served last


class Client(Protocol):
    """A connection's interface for the budget."""

    def body_granted(self) -> None:
        """Continue reading: memory for the whole body is reserved."""

    def reject(self) -> None:
        """Answer 429 and drop the request. Releases the hold."""


class Hold:
    """Counted memory of one connection."""

    __slots__ = ("client", "is_waiting", "key", "loose", "rate_at", "rate_bytes", "received", "reserved", "wanted")

    def __init__(self, client: Client, key: str) -> None:
        self.client = client
        self.key = key
        self.loose = 0
        self.reserved = 0
        self.wanted = 0
        self.is_waiting = False
        self.received = 0  # bytes of the body
        self.rate_bytes = 0  # `received` at `rate_at`
        self.rate_at = 0.0


def add_piece(pieces: list[bytes | bytearray], piece: bytes) -> None:
    """Append a part of a body; small parts are joined."""
    if pieces and len(piece) < _PIECE_BYTES:
        last = pieces[-1]
        if isinstance(last, bytearray) and len(last) < _PIECE_BYTES:
            last += piece
        else:
            pieces.append(bytearray(piece))
    else:
        pieces.append(piece)


class BodyBudget:
    def __init__(self, now: Callable[[], float], bounds: Bounds | None = None) -> None:
        self._now = now
        self._bounds = bounds = bounds or Bounds()
        self._loose = Shares(bounds.loose, bounds.loose_guaranteed, bounds.loose_extra)
        self._reserved = Shares(bounds.reserved, bounds.reserved_guaranteed, bounds.reserved_extra)
        self._holds: dict[str, dict[Hold, None]] = {}  # holds with loose bytes
        self._granted: dict[Hold, None] = {}
        self._waiting: dict[str, dict[Hold, None]] = {}
        self._stalled: dict[str, float] = {}
        self._peak = 0

    @property
    def total(self) -> int:
        """Counted bytes, with whole reservations."""
        return self._loose.total + self._reserved.total

    def keys(self) -> set[str]:
        """Return the addresses with counted or waiting requests."""
        return {*self._holds, *self._waiting, *(hold.key for hold in self._granted)}

    def count_loose(self, hold: Hold, loose: int) -> bool:
        """Set the loose bytes of a connection; return False if it must be refused."""
        more = loose - hold.loose
        if more > 0:
            while not self._loose.fits(hold.key, more):
                if self._loose.used(hold.key) + more > self._bounds.loose_guaranteed or not self._evict(hold.key):
                    return False
        if more:
            self._set_loose(hold, loose)
        return True

    def may_wait(self, hold: Hold) -> bool:
        """Whether another body of the address may wait for a reservation."""
        return len(self._waiting.get(hold.key, ())) < self._bounds.waiting

    def reserve(self, hold: Hold, size: int) -> bool:
        """Reserve memory for a body; on False the hold waits for `body_granted`."""
        hold.wanted = size
        if hold.key not in self._waiting and hold.key not in self._stalled and self._reserved.fits(hold.key, size):
            self._grant(hold)
            return True
        self._waiting.setdefault(hold.key, {})[hold] = None
        hold.is_waiting = True
        return False

    def release(self, hold: Hold) -> None:
        """Release all memory of a connection; safe to repeat."""
        if hold.loose:
            self._set_loose(hold, 0)
        if hold.is_waiting:
            self._stop_waiting(hold)
        if hold.reserved:
            self._granted.pop(hold, None)
            self._reserved.remove(hold.key, hold.reserved)
            hold.reserved = 0
            self._grant_waiting()

    def check(self) -> None:
        """Reject slow bodies while others wait; called every second."""
        now = self._now()
        self._stalled = {key: until for key, until in self._stalled.items() if until > now}
        if self._waiting:
            for hold in [each for each in self._granted if self._is_slow(each, now)]:
                if len(self._stalled) < _MAX_STALLED:
                    self._stalled[hold.key] = now + self._bounds.stalled_s
                hold.client.reject()
            self._grant_waiting()
        self._trim_after_peak()

    def _is_slow(self, hold: Hold, now: float) -> bool:
        bounds = self._bounds
        for_s, more = now - hold.rate_at, hold.received - hold.rate_bytes
        if for_s < (bounds.grace_s if len(self._waiting) <= bounds.crowd else bounds.crowded_grace_s):
            return False
        hold.rate_at, hold.rate_bytes = now, hold.received
        return more < for_s * bounds.min_rate

    def _set_loose(self, hold: Hold, loose: int) -> None:
        more, hold.loose = loose - hold.loose, loose
        own = self._holds.setdefault(hold.key, {})
        if more > 0:
            self._loose.add(hold.key, more)
        else:
            self._loose.remove(hold.key, -more)
        if loose:
            own[hold] = None
        else:
            own.pop(hold, None)
        if not own:
            del self._holds[hold.key]
        self._peak = max(self._peak, self.total)

    def _evict(self, newcomer: str) -> bool:
        """Reject the largest request of the largest address; False for the newcomer's."""
        largest = self._loose.largest()
        if largest == newcomer:
            return False
        hold = max(self._holds[largest], key=lambda hold: hold.loose)
        hold.client.reject()
        return hold.loose == 0

    def _grant(self, hold: Hold) -> None:
        hold.reserved, hold.wanted = hold.wanted, 0
        hold.received, hold.rate_bytes, hold.rate_at = 0, 0, self._now()
        self._granted[hold] = None
        self._reserved.add(hold.key, hold.reserved)
        self._peak = max(self._peak, self.total)

    def _grant_waiting(self) -> None:
        """Grant memory to waiting bodies, round robin over addresses; stalled last."""
        has_granted = True
        while has_granted:
            keys = [key for key, _ in zip(self._waiting, range(_MAX_GRANT_KEYS), strict=False)]
            fresh = [key for key in keys if key not in self._stalled]
            granted = [self._grant_first(key) for key in fresh or keys]
            has_granted = any(granted)

    def _grant_first(self, key: str) -> bool:
        waiting = self._waiting.pop(key, None)
        if waiting is None:
            return False
        self._waiting[key] = waiting  # Now the last in the order.
        hold = next(iter(waiting))
        if not self._reserved.fits(key, hold.wanted):
            return False
        self._stop_waiting(hold)
        self._grant(hold)
        hold.client.body_granted()
        return True

    def _stop_waiting(self, hold: Hold) -> None:
        hold.is_waiting = False
        waiting = self._waiting[hold.key]
        del waiting[hold]
        if not waiting:
            del self._waiting[hold.key]

    def _trim_after_peak(self) -> None:
        """Return memory to the kernel after a peak."""
        total = self.total
        if self._peak - total > 8 * MB:
            self._peak = total
            trim()
