"""Computes when a monitor is due, on a time grid given by its id and interval.

The grid spreads checks over time even if many monitors are created at once. A prober that takes over a monitor, after a
restart or from another process, computes the same slots. All times are epoch milliseconds.
"""

from __future__ import annotations

_GOLDEN = 2_654_435_761  # 2^32 divided by the golden ratio: spreads consecutive ids far apart


def phase_ms(monitor_id: int, interval_s: int) -> int:
    """Return the offset of a monitor's slots within its interval."""
    return ((monitor_id * _GOLDEN) % 2**32 * interval_s * 1000) >> 32


def slot_at_or_before(t: int, monitor_id: int, interval_s: int) -> int:
    return t - (t - phase_ms(monitor_id, interval_s)) % (interval_s * 1000)


def slot_after(t: int, monitor_id: int, interval_s: int) -> int:
    return slot_at_or_before(t, monitor_id, interval_s) + interval_s * 1000


def following(slot: int, monitor_id: int, interval_s: int) -> int:
    """Return the next slot after the one of a check.

    The slot of a check may be off the grid: a first check is due when its monitor is created, and the interval may have
    changed. Grid slots within half an interval after it are skipped, so that two checks are not close together.
    """
    return slot_after(slot + interval_s * 500 - 1, monitor_id, interval_s)


def missed_between(last_slot: int, slot: int, monitor_id: int, interval_s: int) -> int:
    """Return the number of slots between two consecutive checks."""
    return max(slot - following(last_slot, monitor_id, interval_s), 0) // (interval_s * 1000)
