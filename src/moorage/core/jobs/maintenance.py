"""Maintenance tasks: jobs of the platform itself, started by a cron expression."""

from __future__ import annotations

from dataclasses import dataclass

import msgspec

from moorage.core import jobs
from moorage.core.db.scope import PLATFORM_ORG_ID, across_organizations
from moorage.core.db.tx import Tx
from moorage.core.jobs import Lane, timetable
from moorage.core.jobs.timetable import Tick
from moorage.core.kit.cron import Cron


@dataclass(frozen=True, slots=True)
class MaintenanceTask:
    name: str  # the kind of its timetable entry, and the key of its jobs: one runs at a time
    cron: Cron
    job: msgspec.Struct
    lane: Lane

    @across_organizations("the platform's own timetable")
    def ensure(self, tx: Tx) -> None:
        """Create or correct the timetable entry."""
        timetable.ensure(tx, PLATFORM_ORG_ID, self.name, "", self.cron)

    @across_organizations("the platform's own timetable")
    def start(self, tx: Tx, tick: Tick) -> None:
        jobs.add(tx, self.job, key=self.name, dedupe_key=self.name, lane=self.lane)
