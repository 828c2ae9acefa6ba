"""Ticks of schedules, records of their runs, and cleanup after deletions."""

from __future__ import annotations

from collections.abc import Iterable

from moorage.accounts.identity.organizations.service import OrganizationDeleted
from moorage.core.db.tx import Tx
from moorage.core.jobs.timetable import Tick
from moorage.core.worker.run import Handlers
from moorage.products.schedules import service
from moorage.products.schedules.runner import ScheduleRunner
from moorage.products.schedules.tables import KIND
from moorage.runtime.edge.spool import Record


def register(handlers: Handlers, runner: ScheduleRunner) -> None:
    """Register the tick and the deletion of organizations."""

    def on_tick(tx: Tx, tick: Tick) -> None:
        activation_id = service.new_activation_id(tx.env.settings)
        try:
            run = service.begin_run(tx, tick.org_id, int(tick.ref), activation_id, tick.at)
        except service.NoSuchSchedule:
            return
        # Saves time only: the reconciler finds a run that is not submitted here.
        tx.after_commit(lambda: runner.submit(run))

    handlers.ticks[KIND] = on_tick
    handlers.listen(OrganizationDeleted, remove_organization)


def remove_organization(tx: Tx, event: OrganizationDeleted) -> None:
    service.remove_of_organization(tx, event.org_id)


def on_scheduled(tx: Tx, starts: Iterable[Record], ends: Iterable[Record]) -> None:
    """Apply the records of scheduled runs, in the transaction that marks them as read."""
    for start in starts:
        service.record_start(tx, start.activation, start.started_ms)
    # Ordered by schedule id, so that two machines that record at the same time cannot deadlock.
    for end in sorted(ends, key=lambda record: (record.schedule_id, record.started_ms)):
        error = None if end.ok else end.error or "the function failed"
        service.finish(tx, end.activation, end.started_ms, error)
