"""Memory that clients of the function gateway can occupy with requests that are not complete.

Anyone can open connections and send parts of requests, so these bytes are bounded, in all and for each address:

- *Loose* bytes came without being asked for: headers, small bodies, the first piece of a large one, requests that were
  sent ahead. Past its share an address is refused; past the total the address with most loses one of its requests, so
  that a small request always finds room.
- *Reserved* bytes are those of a large body. Its connection is not read before there is room for all of it, so a body
  that has begun can always be finished. Addresses take turns. While others wait, a body that comes too slowly is given
  up, and its address comes after those that did not stall.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from moorage.runtime.edge.calls.shares import Shares
from moorage.runtime.edge.connections.heap import trim

LARGE_BYTES = 64 * 1024  # a body that needs a reservation
MB = 2**20
_PIECE_BYTES = 64 * 1024  # Smaller pieces of a body are put together: each alone has 40 bytes of its own.
_KEYS_AT_ONCE = 64  # addresses that are looked at when room becomes free
_MOST_STRUCK = 10_000


@dataclass(frozen=True, slots=True)
class Bounds:
    """Bounds of the memory, and of the patience while others wait for it."""

    loose: int = 24 * MB
    loose_least: int = 1 * MB
    loose_spare: int = 8 * MB
    reserved: int = 56 * MB
    reserved_least: int = 6 * MB  # one body of the largest size
    reserved_spare: int = 12 * MB
    waiting: int = 256  # bodies of one address that wait for a reservation
    least_rate: float = 32 * 1024.0  # bytes a second that a body has to bring while others wait,
    grace_s: float = 3.0  # measured over this time,
    crowded_grace_s: float = 1.0  # or over this where many addresses wait
    crowd: int = 8
    struck_s: float = 30.0  # for which an address comes last


class Client(Protocol):
    """A connection, as the budget uses it."""

    def go_on(self) -> None:
        """Read on: there is room for the whole body."""

    def give_up(self) -> None:
        """Answer 429 and drop what was read. Releases the hold."""


class Hold:
    """The bytes of one connection that are counted."""

    __slots__ = ("client", "is_waiting", "key", "looked_at", "loose", "received", "reserved", "seen", "wanted")

    def __init__(self, client: Client, key: str) -> None:
        self.client = client
        self.key = key
        self.loose = 0
        self.reserved = 0
        self.wanted = 0
        self.is_waiting = False
        self.received = 0  # bytes of the body
        self.seen = 0  # bytes of it that had come at `looked_at`
        self.looked_at = 0.0


def add_piece(pieces: list[bytes | bytearray], piece: bytes) -> None:
    """Add a piece to those of a body, together with the last one where both are small."""
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
        self._loose = Shares(bounds.loose, bounds.loose_least, bounds.loose_spare)
        self._reserved = Shares(bounds.reserved, bounds.reserved_least, bounds.reserved_spare)
        self._holds: dict[str, dict[Hold, None]] = {}  # those with loose bytes
        self._granted: dict[Hold, None] = {}
        self._waiting: dict[str, dict[Hold, None]] = {}
        self._struck: dict[str, float] = {}
        self._peak = 0

    @property
    def total(self) -> int:
        """Bytes that are counted at the moment; reservations count whole."""
        return self._loose.total + self._reserved.total

    def keys(self) -> set[str]:
        """Return the addresses that something is counted for."""
        return {*self._holds, *self._waiting, *(hold.key for hold in self._granted)}

    def keep(self, hold: Hold, loose: int) -> bool:
        """Count the loose bytes of a connection anew; return False where it has to be refused."""
        more = loose - hold.loose
        if more > 0:
            while not self._loose.fits(hold.key, more):
                if self._loose.used(hold.key) + more > self._bounds.loose_least or not self._evict(hold.key):
                    return False
        if more:
            self._set_loose(hold, loose)
        return True

    def has_place(self, hold: Hold) -> bool:
        """Tell whether another body of the same address may wait for a reservation."""
        return len(self._waiting.get(hold.key, ())) < self._bounds.waiting

    def reserve(self, hold: Hold, size: int) -> bool:
        """Reserve room for a body, now or later: then `go_on` is called."""
        hold.wanted = size
        if hold.key not in self._waiting and hold.key not in self._struck and self._reserved.fits(hold.key, size):
            self._grant(hold)
            return True
        self._waiting.setdefault(hold.key, {})[hold] = None
        hold.is_waiting = True
        return False

    def release(self, hold: Hold) -> None:
        """Forget all that a connection had; safe to repeat."""
        if hold.loose:
            self._set_loose(hold, 0)
        if hold.is_waiting:
            self._stop_waiting(hold)
        if hold.reserved:
            self._granted.pop(hold, None)
            self._reserved.remove(hold.key, hold.reserved)
            hold.reserved = 0
            self._grant_waiting()

    def look(self) -> None:
        """Give up bodies that come too slowly while others wait, and let those begin; call it every second or so."""
        now = self._now()
        self._struck = {key: until for key, until in self._struck.items() if until > now}
        if self._waiting:
            for hold in [each for each in self._granted if self._is_slow(each, now)]:
                if len(self._struck) < _MOST_STRUCK:
                    self._struck[hold.key] = now + self._bounds.struck_s
                hold.client.give_up()
            self._grant_waiting()
        self._give_back()

    def _is_slow(self, hold: Hold, now: float) -> bool:
        bounds = self._bounds
        for_s, more = now - hold.looked_at, hold.received - hold.seen
        if for_s < (bounds.grace_s if len(self._waiting) <= bounds.crowd else bounds.crowded_grace_s):
            return False
        hold.looked_at, hold.seen = now, hold.received
        return more < for_s * bounds.least_rate

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
        """Refuse the largest request of the address that has most; return False where that is the newcomer itself."""
        greediest = self._loose.greediest()
        if greediest == newcomer:
            return False
        victim = max(self._holds[greediest], key=lambda hold: hold.loose)
        victim.client.give_up()
        return victim.loose == 0

    def _grant(self, hold: Hold) -> None:
        hold.reserved, hold.wanted = hold.wanted, 0
        hold.received, hold.seen, hold.looked_at = 0, 0, self._now()
        self._granted[hold] = None
        self._reserved.add(hold.key, hold.reserved)
        self._peak = max(self._peak, self.total)

    def _grant_waiting(self) -> None:
        """Give what is free to those that wait, one address after the other; those that stalled come last."""
        has_granted = True
        while has_granted:
            keys = [key for key, _ in zip(self._waiting, range(_KEYS_AT_ONCE), strict=False)]
            fresh = [key for key in keys if key not in self._struck]
            granted = [self._grant_first(key) for key in fresh or keys]
            has_granted = any(granted)

    def _grant_first(self, key: str) -> bool:
        waiting = self._waiting.pop(key, None)
        if waiting is None:
            return False
        self._waiting[key] = waiting  # The others come first the next time.
        hold = next(iter(waiting))
        if not self._reserved.fits(key, hold.wanted):
            return False
        self._stop_waiting(hold)
        self._grant(hold)
        hold.client.go_on()
        return True

    def _stop_waiting(self, hold: Hold) -> None:
        hold.is_waiting = False
        waiting = self._waiting[hold.key]
        del waiting[hold]
        if not waiting:
            del self._waiting[hold.key]

    def _give_back(self) -> None:
        """Return memory to the kernel after a peak: the allocator keeps it otherwise."""
        total = self.total
        if self._peak - total > 8 * MB:
            self._peak = total
            trim()
