"""Maintenance tasks: jobs of the platform itself, started by a cron expression."""

from __future__ import annotations

import msgspec

from moorage.core import jobs
from moorage.core.db.scope import PLATFORM_ORG_ID, across_organizations
from moorage.core.db.tx import Tx
from moorage.core.jobs import Lane, timetable
from moorage.core.jobs.timetable import Tick
from moorage.core.kit.cron import Cron
from moorage.core.kit.records import dataclass
from moorage.core.machines import service as machines


@dataclass(frozen=True, slots=True)
class MaintenanceTask:
    name: str  # the kind of its timetable entry, and the key of its jobs: one runs at a time
    cron: Cron
    job: msgspec.Struct
    lane: Lane
    is_of_each_machine: bool = False  # It works on files, so each machine runs its own job.

    @across_organizations("the platform's own timetable")
    def ensure(self, tx: Tx) -> None:
        """Create or correct the timetable entry."""
        timetable.ensure(tx, PLATFORM_ORG_ID, self.name, "", self.cron)

    @across_organizations("the platform's own timetable")
    def start(self, tx: Tx, tick: Tick) -> None:
        ids = list(machines.by_id(tx)) if self.is_of_each_machine else []
        if len(ids) < 2:
            jobs.add(tx, self.job, key=self.name, dedupe_key=self.name, lane=self.lane)
            return
        for machine_id in ids:
            key = f"{self.name}:{machine_id}"
            jobs.add(tx, self.job, key=key, dedupe_key=key, lane=self.lane, machine_id=machine_id)
