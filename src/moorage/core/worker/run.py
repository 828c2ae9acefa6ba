"""Job handlers: registration, and the lease check around their writes."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import field
from typing import Any, TypeVar

import msgspec

from moorage.core.db.scope import across_organizations
from moorage.core.db.store import Database, Unit
from moorage.core.db.tx import Tx
from moorage.core.jobs import Lane, kind_of, tables
from moorage.core.jobs.maintenance import MaintenanceTask
from moorage.core.jobs.states import JobStatus
from moorage.core.jobs.tables import JobRow
from moorage.core.jobs.timetable import TickHandler
from moorage.core.kit.cron import Cron
from moorage.core.kit.records import dataclass
from moorage.errors import LostLease

T = TypeVar("T")
P = TypeVar("P", bound=msgspec.Struct)

SyncHandler = Callable[[Tx, Any], None]


@dataclass(frozen=True, slots=True)
class Run:
    """One attempt of a job; `write` raises LostLease without the lease."""

    db: Database
    job: JobRow
    lease: str

    @property
    def attempt(self) -> int:
        return self.job.attempts

    async def write(self, unit: Unit[T]) -> T:
        def fenced(tx: Tx) -> T:
            hold(tx, self.job.id, self.lease)
            tx.trace_id = self.job.trace_id
            return unit(tx)

        return await self.db.write(fenced)

    @across_organizations("a job's payload names its organization")
    def end(self, tx: Tx) -> None:
        """End the job in the transaction of its effect: exactly once, or LostLease."""
        outcome = {"to": JobStatus.DONE, "run_at": 0, "error": None, "now": tx.now}
        if tx.run(tables.FINISH, id=self.job.id, lease=self.lease, **outcome) == 0:
            raise LostLease(f"job {self.job.id} is no longer ours")

    async def delete_in_batches(self, most: int, delete: Unit[int]) -> None:
        """Delete in transactions of `most` rows, so that other writes run between."""
        while await self.write(delete) == most:
            continue

    async def read(self, unit: Unit[T]) -> T:
        return await self.db.read(unit)


def hold(tx: Tx, job_id: int, lease: str) -> None:
    """Check the lease and lock its row in the transaction; raises LostLease."""
    if tx.run(tables.HOLD, id=job_id, lease=lease, now=tx.now) == 0:
        raise LostLease(f"job {job_id} is no longer ours")


@dataclass(frozen=True, slots=True)
class Handler:
    payload: type[msgspec.Struct]
    run: Callable[..., Any] | None
    on_failure: SyncHandler | None
    is_async: bool
    uncounted_ms: int = 0  # period after a job was added in which runs of dying workers are not attempts


@dataclass
class Handlers:
    """Handlers of jobs and ticks, and maintenance tasks, from all products."""

    by_kind: dict[str, Handler] = field(default_factory=dict)
    listeners: dict[str, list[SyncHandler]] = field(default_factory=dict)
    ticks: dict[str, TickHandler] = field(default_factory=dict)  # by the kind of the timetable entry
    maintenance: dict[str, MaintenanceTask] = field(default_factory=dict)

    def add(
        self,
        payload: type[P],
        run: Callable[..., Any],
        *,
        on_failure: SyncHandler | None = None,
        uncounted_ms: int = 0,
    ) -> None:
        """Register the handler of a kind.

        A sync handler runs in the transaction that ends the job, so its effect happens exactly once. An async handler
        may run again from the start after a crash. `on_failure` runs in the transaction that fails the job. A run that
        ends with the death of its worker counts as an attempt, unless the job is younger than `uncounted_ms`.
        """
        kind = kind_of(payload)
        if kind in self.by_kind:
            raise ValueError(f"{kind} has a handler already")
        self.by_kind[kind] = Handler(payload, run, on_failure, inspect.iscoroutinefunction(run), uncounted_ms)

    def maintain(
        self,
        name: str,
        cron: str,
        job: msgspec.Struct,
        run: Callable[..., Any],
        *,
        lane: Lane = Lane.CHORES,
        on_each_machine: bool = False,
    ) -> None:
        """Run a job of the platform whenever a cron expression is due; with `on_each_machine`, one on each."""
        task = MaintenanceTask(name, Cron.parse(cron), job, lane, on_each_machine)
        self.add(type(job), run)
        self.maintenance[name] = task
        self.ticks[name] = task.start

    async def ensure_maintenance(self, db: Database, _now: int) -> None:
        """Create the timetable entries of all maintenance tasks; for the reconciler."""

        @across_organizations("the platform's own timetable")
        def ensure(tx: Tx) -> None:
            for task in self.maintenance.values():
                task.ensure(tx)

        await db.write(ensure)

    def listen(self, payload: type[P], *listeners: SyncHandler) -> None:
        """Register listeners of an event; all run in the same transaction."""
        kind = kind_of(payload)
        registered = self.listeners.setdefault(kind, [])
        registered.extend(listeners)
        if kind not in self.by_kind:

            def call_all(tx: Tx, event: msgspec.Struct) -> None:
                for listener in registered:
                    listener(tx, event)

            self.by_kind[kind] = Handler(payload, call_all, None, False)
