"""When a monitor is due: on a grid of its own, which follows from its id and its interval alone.

So checks are spread over time however many monitors are made in one moment, and whoever takes a monitor over, after a
restart or from another process, finds the same moments without being told. All times are epoch milliseconds.
"""

from __future__ import annotations

_GOLDEN = 2_654_435_761  # 2^32 divided by the golden ratio: ids in a row come to lie far apart


def phase_ms(monitor_id: int, interval_s: int) -> int:
    """Return where in its interval a monitor is due."""
    return ((monitor_id * _GOLDEN) % 2**32 * interval_s * 1000) >> 32


def slot_at_or_before(t: int, monitor_id: int, interval_s: int) -> int:
    return t - (t - phase_ms(monitor_id, interval_s)) % (interval_s * 1000)


def slot_after(t: int, monitor_id: int, interval_s: int) -> int:
    """Return the first slot that is later than a moment."""
    return slot_at_or_before(t, monitor_id, interval_s) + interval_s * 1000


def following(slot: int, monitor_id: int, interval_s: int) -> int:
    """Return the slot that comes next after a check.

    A first check is due when its monitor is made, and one may have been due on the grid of another interval. What is
    on the grid within half an interval of such a check is left out, or two would come close together.
    """
    return slot_after(slot + interval_s * 500 - 1, monitor_id, interval_s)


def missed_between(last_slot: int, slot: int, monitor_id: int, interval_s: int) -> int:
    """Return how many slots there were between those of two checks that came one after the other."""
    return max(slot - following(last_slot, monitor_id, interval_s), 0) // (interval_s * 1000)
