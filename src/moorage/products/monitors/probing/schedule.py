"""What is to be checked next: a heap of the monitors that a process has, by the moment at which each is due.

It knows nothing of leases and stores. Its times are those of the wall clock, which somebody may set.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from heapq import heapify, heappop, heappush

from moorage.products.monitors.probing import grid
from moorage.products.monitors.probing.checks import Target
from moorage.products.monitors.probing.leases import Held

SPREAD_MS = 5_000  # Over this time checks are made up for that were missed, or all would begin at once.


@dataclass(slots=True, eq=False)
class Entry:
    """A monitor, and the check of it that is due next or runs."""

    target: Target
    revision: int
    from_at: int
    last: int | None  # the slot of the latest check that came to an end
    newest: int  # the latest slot that was ever used
    is_first: bool  # whether no check came to an end since `from_at`
    slot: int = 0  # what the next check is for, or the one that runs
    due: int = 0  # when that is to begin
    missed: int = 0  # slots without a check of which nobody was told yet
    task: asyncio.Task[None] | None = None  # the check that runs

    @property
    def id(self) -> int:
        return self.target.monitor_id

    @property
    def interval_ms(self) -> int:
        return self.target.interval_s * 1000

    def plan(self, now: int) -> None:
        """Find the next check, however long ago the last one was: after a start, and after the clock was set.

        A check that should have been and can still be made is due within seconds, unless the next is anyway.
        """
        slot = self.from_at if self.is_first or self.last is None else self._following(self.last)
        if self.is_first and self._following(slot) > now:
            self.slot, self.due = slot, now
        elif slot > now:
            # Whatever was left out after a first check: within an interval of a start everything is checked.
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
        """Find the next check after one that ended now. Slots that came while it ran are left out."""
        slot = self._following(self.slot)
        self._wait_for(slot if slot >= now else grid.slot_after(now - 1, self.id, self.target.interval_s), now)

    def begin(self, now: int) -> int:
        """Settle which slot the check is for that begins now. Return how many passed by while it waited to begin."""
        passed = 0
        if self._following(self.slot) <= now:
            latest = grid.slot_at_or_before(now, self.id, self.target.interval_s)
            passed = 1 + self._missed_between(self.slot, latest)
            self.slot = latest
        if self.slot <= self.newest:
            # The clock was set back: this moment has been before, and has its heartbeat.
            self.slot += 1
        return passed

    def end(self) -> int:
        """Note that the check came to an end. Return how many slots there were without one since the last."""
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
        # No slot is further off than one interval and a half: if this one is, the clock was set back.
        is_lost = slot > now + self.interval_ms * 3 // 2
        self.slot = self.due = grid.slot_after(now, self.id, self.target.interval_s) if is_lost else slot

    def _following(self, slot: int) -> int:
        return grid.following(slot, self.id, self.target.interval_s)

    def _missed_between(self, last: int, slot: int) -> int:
        return grid.missed_between(last, slot, self.id, self.target.interval_s)


class Schedule:
    def __init__(self) -> None:
        self.entries: dict[int, Entry] = {}
        # What is due when. An item that no longer says what its entry says is of no account.
        self._heap: list[tuple[int, int]] = []

    def revisions(self) -> dict[int, int]:
        return {entry.id: entry.revision for entry in self.entries.values()}

    def put(self, held: Held, now: int) -> asyncio.Task[None] | None:
        """Add a monitor, or change it. Return a check that runs and no longer has anything to say."""
        entry = self.entries.get(held.target.monitor_id)
        if entry is None:
            is_first = held.last_slot is None or held.from_at > held.last_slot
            entry = Entry(held.target, held.revision, held.from_at, held.last_slot, held.last_slot or 0, is_first)
            self.entries[entry.id] = entry
            self._plan(entry, now)
            return None
        before, begun = entry.target, entry.from_at
        entry.target, entry.revision, entry.from_at = held.target, held.revision, held.from_at
        entry.is_first = entry.is_first or begun != held.from_at
        if begun == held.from_at and before == held.target:
            return None
        task, entry.task = entry.task, None
        if begun != held.from_at or before.interval_s != held.target.interval_s:
            self._plan(entry, now)
        elif task is not None:
            self.postpone(entry, now)
        return task

    def drop(self, monitor_id: int) -> asyncio.Task[None] | None:
        """Forget a monitor. Return the check that runs."""
        entry = self.entries.pop(monitor_id)
        task, entry.task = entry.task, None
        return task

    def postpone(self, entry: Entry, until: int) -> None:
        """Begin the check that an entry waits for at another moment."""
        entry.due = until
        heappush(self._heap, (entry.due, entry.id))

    def go_on(self, entry: Entry, now: int) -> None:
        """Find the next check of a monitor; the one that ran is over."""
        entry.task = None
        entry.plan_next(now)
        heappush(self._heap, (entry.due, entry.id))

    def plan_anew(self, now: int) -> None:
        """Look at everything again: nobody has for a while, or the clock was set."""
        waiting = [entry for entry in self.entries.values() if entry.task is None]
        for entry in waiting:
            # What was put off once is not put off again, or on a machine that keeps standing still nothing would begin.
            if not entry.slot < entry.due <= now:
                entry.plan(now)
        self._heap = [(entry.due, entry.id) for entry in waiting]
        heapify(self._heap)

    def due(self, now: int) -> list[Entry]:
        """Return what is due, in order, and forget when it was."""
        found = []
        while self._heap and self._heap[0][0] <= now:
            due, monitor_id = heappop(self._heap)
            entry = self.entries.get(monitor_id)
            if entry is not None and entry.task is None and entry.due == due:
                found.append(entry)
        return found

    def next_due(self) -> int | None:
        """Return when to look again; nothing is due earlier."""
        return self._heap[0][0] if self._heap else None

    def idle(self, most: int) -> list[int]:
        """Return some monitors of which no check runs, those first that are due last."""
        free = sorted((entry for entry in self.entries.values() if entry.task is None), key=lambda entry: -entry.due)
        return [entry.id for entry in free[:most]]

    def _plan(self, entry: Entry, now: int) -> None:
        entry.plan(now)
        heappush(self._heap, (entry.due, entry.id))
