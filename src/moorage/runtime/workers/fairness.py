"""Who computes first: long-running computations and greedy organizations step back behind everybody else.

A quota would throttle in bursts, and hurt also when the machine is free. The idle class of the scheduler does neither:
who is in it gets every cycle that nobody else wants, and no other.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterable
from pathlib import Path

from moorage.runtime.workers.sandbox import Cell

COMPUTES = 0.3  # of one core: a watched call that uses more than this is a computation, not a wait
WANTS = 0.6  # of the time: so is one that would use a processor, if the others let it
SAVED_S = 1.0  # computing time an organization can save up
OWED_S = -2.0  # and owe
GREED = 1.5  # times the fair share an organization may use before it gets into debt
FORGET_S = 10.0


class Watched:
    def __init__(self, cell: Cell, now: float) -> None:
        self.cell = cell
        self.at = now
        self.cpu_us = used(cell)
        self.wanted_us = wanted(cell)

    def computes(self, now: float) -> bool:
        """Tell whether it has computed since the last look, or stood in line for a processor most of the time."""
        elapsed_us = (now - self.at) * 1e6
        cpu_us, wanted_us = used(self.cell), wanted(self.cell)
        does = cpu_us - self.cpu_us > COMPUTES * elapsed_us or wanted_us - self.wanted_us > WANTS * elapsed_us
        self.at, self.cpu_us, self.wanted_us = now, cpu_us, wanted_us
        return does


class Organization:
    """A token bucket of computing time."""

    def __init__(self, now: float) -> None:
        self.saved_s = SAVED_S
        self.seen = now
        self.cells: dict[Cell, int] = {}
        self.is_behind = False

    def settle(self, earned_s: float, spent_s: float) -> None:
        self.saved_s = max(OWED_S, min(SAVED_S, self.saved_s + earned_s - spent_s))


class Fairness:
    def __init__(self) -> None:
        self.cores = len(os.sched_getaffinity(0))
        self._watched: dict[Cell, Watched] = {}
        self._organizations: dict[str, Organization] = {}
        self._settled_at = time.monotonic()

    def watch(self, cell: Cell) -> None:
        if cell not in self._watched:
            self._watched[cell] = Watched(cell, time.monotonic())

    def unwatch(self, cell: Cell) -> None:
        if self._watched.pop(cell, None) is not None and not self._is_behind(cell.org):
            step_back(cell, False)

    def count(self, cells: Iterable[Cell]) -> None:
        """Note which cells worked; `look` settles what they used."""
        now = time.monotonic()
        for cell in cells:
            organization = self._organizations.setdefault(cell.org, Organization(now))
            organization.seen = now
            organization.cells.setdefault(cell, used(cell))

    def forget(self, cell: Cell) -> None:
        self._watched.pop(cell, None)
        if organization := self._organizations.get(cell.org):
            organization.cells.pop(cell, None)

    def look(self) -> None:
        """Judge what was used since the last look."""
        now = time.monotonic()
        for watched in self._watched.values():
            if now - watched.at > 0.05 and watched.computes(now):
                step_back(watched.cell, True)
        self._settle(now)

    def _settle(self, now: float) -> None:
        elapsed, self._settled_at = now - self._settled_at, now
        gone = [org for org, each in self._organizations.items() if now - each.seen > FORGET_S]
        for org in gone:
            self._catch_up(self._organizations.pop(org), False)
        fair = self.cores / max(1, len(self._organizations)) * GREED
        for organization in self._organizations.values():
            spent = 0.0
            for cell, before in organization.cells.items():
                cpu_us = used(cell)
                spent += (cpu_us - before) / 1e6
                organization.cells[cell] = cpu_us
            organization.settle(fair * elapsed, spent)
            # One organization alone cannot take anything from another.
            if organization.saved_s < 0 and len(self._organizations) > 1:
                self._catch_up(organization, True)
            elif organization.saved_s > SAVED_S / 5:
                self._catch_up(organization, False)

    def _catch_up(self, organization: Organization, is_behind: bool) -> None:
        if organization.is_behind == is_behind:
            return
        organization.is_behind = is_behind
        for cell in organization.cells:
            if is_behind or cell not in self._watched:
                step_back(cell, is_behind)

    def _is_behind(self, org: str) -> bool:
        organization = self._organizations.get(org)
        return organization is not None and organization.is_behind


def used(cell: Cell) -> int:
    try:
        return int(cell.group.cpu_us())
    except OSError:
        return 0


def wanted(cell: Cell) -> int:
    """Return how long the cell's first process has run or been ready to, in microseconds."""
    try:
        ran, waited, _ = Path(f"/proc/{cell.pid}/schedstat").read_text().split()
    except (OSError, ValueError):
        return 0
    return (int(ran) + int(waited)) // 1000


def step_back(cell: Cell, on: bool) -> None:
    if cell.is_idle_class != on:
        cell.is_idle_class = on
        with contextlib.suppress(OSError):
            cell.group.idle(on)
