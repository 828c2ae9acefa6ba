"""The schedule of a prober: a heap of its monitors, ordered by due time.

Due times are wall clock times, so the schedule handles a clock that is set forward or back.
"""

from __future__ import annotations

import asyncio
from heapq import heapify, heappop, heappush

from moorage.core.kit.records import dataclass
from moorage.products.monitors.probing import grid
from moorage.products.monitors.probing.checks import CheckTarget
from moorage.products.monitors.probing.leases import HeldMonitor

SPREAD_MS = 5_000  # Missed checks are caught up over this time, so that they do not all start together.


@dataclass(slots=True, eq=False)
class Entry:
    """A monitor with its next or running check."""

    target: CheckTarget
    revision: int
    from_at: int
    last: int | None  # slot of the latest check that ended
    newest: int  # latest slot that any check used
    is_first: bool  # whether no check ended since `from_at`
    slot: int = 0  # slot of the next or running check
    due: int = 0  # start time of that check
    missed: int = 0  # slots without a check that no result has reported yet
    task: asyncio.Task[None] | None = None  # the running check

    @property
    def id(self) -> int:
        return self.target.monitor_id

    @property
    def interval_ms(self) -> int:
        return self.target.interval_s * 1000

    def plan(self, now: int) -> None:
        """Plan the next check after a start or after the clock was set.

        A missed check is caught up within seconds, unless the next slot comes as soon.
        """
        slot = self.from_at if self.is_first or self.last is None else self._following(self.last)
        if self.is_first and self._following(slot) > now:
            self.slot, self.due = slot, now
        elif slot > now:
            # Ignores the slot skipped after a first check, so that each monitor is checked within one interval.
            self._wait_for(min(slot, grid.slot_after(now, self.id, self.target.interval_s)), now)
        else:
            latest = grid.slot_at_or_before(now, self.id, self.target.interval_s)
            window = min(SPREAD_MS, self.interval_ms // 4)
            if latest + self.interval_ms <= now + 2 * window:
                self.slot = self.due = latest + self.interval_ms
            else:
                spread = grid.phase_ms(self.id, self.target.interval_s) * window // self.interval_ms
                self.slot, self.due = latest, now + spread

    def plan_next(self, now: int) -> None:
        """Plan the next check after one that ended now; skips slots that passed."""
        slot = self._following(self.slot)
        self._wait_for(slot if slot >= now else grid.slot_after(now - 1, self.id, self.target.interval_s), now)

    def begin(self, now: int) -> int:
        """Set the slot of the check that starts now. Return how many slots passed."""
        passed = 0
        if self._following(self.slot) <= now:
            latest = grid.slot_at_or_before(now, self.id, self.target.interval_s)
            passed = 1 + self._missed_between(self.slot, latest)
            self.slot = latest
        if self.slot <= self.newest:
            # The clock was set back: this slot has a heartbeat already.
            self.slot += 1
        return passed

    def end(self) -> int:
        """Mark the check as ended. Return how many slots before it had no check."""
        if not self.is_first and self.last is not None:
            missed = self._missed_between(self.last, self.slot)
        elif self._following(self.from_at) > self.slot:
            missed = 0
        else:
            missed = 1 + self._missed_between(self.from_at, self.slot)
        self.last, self.newest, self.is_first = self.slot, max(self.newest, self.slot), False
        self.missed += missed
        return missed

    def _wait_for(self, slot: int, now: int) -> None:
        # A slot more than one and a half intervals ahead means that the clock was set back.
        is_too_far = slot > now + self.interval_ms * 3 // 2
        self.slot = self.due = grid.slot_after(now, self.id, self.target.interval_s) if is_too_far else slot

    def _following(self, slot: int) -> int:
        return grid.following(slot, self.id, self.target.interval_s)

    def _missed_between(self, last: int, slot: int) -> int:
        return grid.missed_between(last, slot, self.id, self.target.interval_s)


class Schedule:
    def __init__(self) -> None:
        self.entries: dict[int, Entry] = {}
        # Due time and monitor id. Items that no longer match their entry are ignored.
        self._heap: list[tuple[int, int]] = []

    def revisions(self) -> dict[int, int]:
        return {entry.id: entry.revision for entry in self.entries.values()}

    def put(self, held: HeldMonitor, now: int) -> asyncio.Task[None] | None:
        """Add or change a monitor. Return its running check if that is obsolete."""
        entry = self.entries.get(held.target.monitor_id)
        if entry is None:
            is_first = held.last_slot is None or held.from_at > held.last_slot
            entry = Entry(held.target, held.revision, held.from_at, held.last_slot, held.last_slot or 0, is_first)
            self.entries[entry.id] = entry
            self._plan(entry, now)
            return None
        before, from_at = entry.target, entry.from_at
        entry.target, entry.revision, entry.from_at = held.target, held.revision, held.from_at
        entry.is_first = entry.is_first or from_at != held.from_at
        if from_at == held.from_at and before == held.target:
            return None
        task, entry.task = entry.task, None
        if from_at != held.from_at or before.interval_s != held.target.interval_s:
            self._plan(entry, now)
        elif task is not None:
            self.postpone(entry, now)
        return task

    def drop(self, monitor_id: int) -> asyncio.Task[None] | None:
        """Remove a monitor. Return its running check."""
        entry = self.entries.pop(monitor_id)
        task, entry.task = entry.task, None
        return task

    def postpone(self, entry: Entry, until: int) -> None:
        entry.due = until
        heappush(self._heap, (entry.due, entry.id))

    def plan_next(self, entry: Entry, now: int) -> None:
        """Plan the next check of a monitor after one ended."""
        entry.task = None
        entry.plan_next(now)
        heappush(self._heap, (entry.due, entry.id))

    def replan(self, now: int) -> None:
        """Plan all waiting checks again, after a long stall or after the clock was set."""
        waiting = [entry for entry in self.entries.values() if entry.task is None]
        for entry in waiting:
            # A check is postponed only once, so that checks start even on a machine that stalls repeatedly.
            if not entry.slot < entry.due <= now:
                entry.plan(now)
        self._heap = [(entry.due, entry.id) for entry in waiting]
        heapify(self._heap)

    def due(self, now: int) -> list[Entry]:
        """Remove the due checks from the heap and return their entries in order."""
        entries = []
        while self._heap and self._heap[0][0] <= now:
            due, monitor_id = heappop(self._heap)
            entry = self.entries.get(monitor_id)
            if entry is not None and entry.task is None and entry.due == due:
                entries.append(entry)
        return entries

    def next_due(self) -> int | None:
        """Return a time before which no check is due."""
        return self._heap[0][0] if self._heap else None

    def idle(self, most: int) -> list[int]:
        """Return monitors without a running check, the latest due first."""
        free = sorted((entry for entry in self.entries.values() if entry.task is None), key=lambda entry: -entry.due)
        return [entry.id for entry in free[:most]]

    def _plan(self, entry: Entry, now: int) -> None:
        entry.plan(now)
        heappush(self._heap, (entry.due, entry.id))
