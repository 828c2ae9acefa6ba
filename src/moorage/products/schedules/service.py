"""Scheduled functions: create, update and delete them, and record their runs.

The row of a run is inserted when the run becomes due, before the run is sent. The transaction that counts the run
deletes the row. So a run with a row is not counted yet, and a run without one is.
"""

from __future__ import annotations

import secrets
from functools import lru_cache
from pathlib import Path
from typing import Any

import msgspec

from moorage.core.audit import service as audit
from moorage.core.audit.service import Actor, AuditTarget
from moorage.core.db.scope import across_organizations
from moorage.core.db.tx import Tx
from moorage.core.jobs import timetable
from moorage.core.kit.cron import Cron
from moorage.core.kit.ids import MAX_ID
from moorage.core.kit.records import dataclass
from moorage.errors import Conflict, NotFound
from moorage.products.functions import service as functions
from moorage.products.functions.records import spool
from moorage.products.functions.tables import Function
from moorage.products.schedules import tables
from moorage.products.schedules.tables import KIND, Run, Schedule
from moorage.settings import Settings

MAX_OF_ORGANIZATION = 1_000
MAX_ERROR_CHARS = 2_000
TAG_CHARS = 8
_encode = msgspec.json.Encoder().encode


class NameTaken(Conflict):
    def __init__(self, name: str) -> None:
        super().__init__(f"cannot create scheduled function {name!r}: the name is taken")


class NoSuchSchedule(NotFound):
    def __init__(self) -> None:
        super().__init__("There is no such scheduled function")


@dataclass(frozen=True, slots=True)
class Changes:
    """New values of an update; None keeps the current value."""

    cron: str | None = None
    timezone: str | None = None
    enabled: bool | None = None
    params: dict[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class New:
    name: str
    function: int | str
    cron: Cron
    enabled: bool
    params: dict[str, Any]


def all_of(tx: Tx, org_id: int) -> list[Schedule]:
    return tx.all(tables.ALL_OF, org_id=org_id)


def get(tx: Tx, org_id: int, schedule_id: int) -> Schedule:
    schedule = tx.find(tables.FIND, org_id=org_id, id=schedule_id)
    if schedule is None:
        raise NoSuchSchedule
    return schedule


def create(tx: Tx, org_id: int, actor: Actor, new: New) -> Schedule:
    """Create a schedule; raises NotFound if the function does not exist."""
    # The audit feed of an organization has one writer at a time: no other transaction can delete its functions or add
    # schedules now.
    audit.record(tx, org_id, actor, "schedule.created", AuditTarget("schedule", new.name))
    if tx.one(tables.COUNT_OF_ORG, org_id=org_id) >= MAX_OF_ORGANIZATION:
        raise Conflict(f"An organization has at most {MAX_OF_ORGANIZATION} scheduled functions")
    schedule_id = tx.find(
        tables.ADD,
        org_id=org_id,
        name=new.name,
        function_id=_function_id(tx, org_id, new.function),
        cron=new.cron.expression,
        timezone=new.cron.timezone,
        enabled=new.enabled,
        params=_encode(new.params).decode(),
        total_runs=0,
        created_at=tx.now,
        updated_at=tx.now,
    )
    if schedule_id is None:
        raise NameTaken(new.name)
    timetable.put(tx, org_id, KIND, str(schedule_id), new.cron, enabled=new.enabled)
    return get(tx, org_id, schedule_id)


def update(tx: Tx, org_id: int, actor: Actor, schedule_id: int, changes: Changes) -> Schedule:
    """Update a schedule; a new cron, timezone or `enabled` recomputes the next tick."""
    before = tx.find(tables.LOCK, org_id=org_id, id=schedule_id)
    if before is None:
        raise NoSuchSchedule
    cron = Cron.parse(changes.cron or before.cron, changes.timezone or before.timezone)
    enabled = before.enabled if changes.enabled is None else changes.enabled
    params = before.params if changes.params is None else _encode(changes.params).decode()
    tx.run(
        tables.UPDATE,
        org_id=org_id,
        id=schedule_id,
        new_cron=cron.expression,
        new_timezone=cron.timezone,
        new_enabled=enabled,
        new_params=params,
        now=tx.now,
    )
    if (cron.expression, cron.timezone, enabled) != (before.cron, before.timezone, before.enabled):
        timetable.put(tx, org_id, KIND, str(schedule_id), cron, enabled=enabled)
    audit.record(tx, org_id, actor, "schedule.updated", AuditTarget("schedule", before.name))
    return get(tx, org_id, schedule_id)


def delete(tx: Tx, org_id: int, actor: Actor, schedule_id: int) -> None:
    schedule = get(tx, org_id, schedule_id)
    _remove(tx, org_id, schedule_id)
    audit.record(tx, org_id, actor, "schedule.deleted", AuditTarget("schedule", schedule.name))


def remove_of_function(tx: Tx, org_id: int, function_id: int) -> None:
    """Remove the schedules of a function, in the transaction that deletes it."""
    for schedule_id in tx.all(tables.IDS_OF_FUNCTION, org_id=org_id, function_id=function_id):
        _remove(tx, org_id, schedule_id)


def remove_of_organization(tx: Tx, org_id: int) -> None:
    for schedule_id in tx.all(tables.IDS_OF_ORG, org_id=org_id):
        _remove(tx, org_id, schedule_id)


def begin_run(tx: Tx, org_id: int, schedule_id: int, activation_id: str, due_at: int) -> Run:
    """Insert the row of a due run; raises NotFound if the schedule is deleted."""
    function = tx.find(tables.TO_RUN, org_id=org_id, id=schedule_id)
    if function is None:
        raise NoSuchSchedule
    tx.run(tables.ADD_RUN, org_id=org_id, schedule_id=schedule_id, activation_id=activation_id, due_at=due_at)
    return Run(org_id, schedule_id, activation_id, due_at, None, *function)


def new_activation_id(settings: Settings) -> str:
    return machine_tag(settings) + secrets.token_hex(16 - TAG_CHARS // 2)


@across_organizations("an activation id names its run")
def find_run(tx: Tx, activation_id: str) -> Run | None:
    return tx.find(tables.FIND_RUN, activation_id=activation_id)


@across_organizations("the runner drives the runs of every organization")
def open_runs(tx: Tx, before: int, most: int) -> list[Run]:
    """Return the uncounted runs that were due before a time: of each organization in turn, oldest first."""
    return tx.all(tables.OPEN_RUNS, before=before, most=most)


@across_organizations("an activation id names its run")
def record_start(tx: Tx, activation_id: str, started_at: int) -> None:
    tx.run(tables.SET_STARTED, activation_id=activation_id, started=started_at)


@across_organizations("an activation id names its run")
def finish(tx: Tx, activation_id: str, started_at: int, error: str | None) -> bool:
    """Count a run once; return False if it is counted or its schedule is deleted."""
    schedule_id = tx.find(tables.TAKE_RUN, activation_id=activation_id)
    if schedule_id is None:
        return False
    shown = None if error is None else error.replace("\x00", "")[:MAX_ERROR_CHARS]
    status = "success" if error is None else "error"
    return tx.run(tables.COUNT_RUN, id=schedule_id, started=started_at, status=status, error=shown) == 1


@across_organizations("an activation id names its run")
def discard_run(tx: Tx, activation_id: str) -> None:
    """Delete the row of a run that never started, without counting it."""
    tx.find(tables.TAKE_RUN, activation_id=activation_id)


def machine_tag(settings: Settings) -> str:
    """Return the prefix of the activation ids of this machine's runs.

    Only the machine with the edge that got the run has the record of its start. So if several machines share a
    database, each drives the runs with the tag of its own spool.
    """
    return _tag_of(settings.folder("spool"))


@lru_cache(maxsize=8)
def _tag_of(folder: Path) -> str:
    return spool.ensure_id(folder)[:TAG_CHARS]


def _remove(tx: Tx, org_id: int, schedule_id: int) -> None:
    # The timetable entry goes first: a concurrent tick holds a lock on it, and its run row is then visible here.
    timetable.remove(tx, org_id, KIND, str(schedule_id))
    tx.run(tables.DELETE_RUNS_OF, org_id=org_id, id=schedule_id)
    tx.run(tables.DELETE, org_id=org_id, id=schedule_id)


def _function_id(tx: Tx, org_id: int, ref: int | str) -> int:
    function: Function | None = None
    if isinstance(ref, str):
        function = functions.find(tx, org_id, ref)
    elif ref <= MAX_ID:
        function = functions.find_by_id(tx, org_id, ref)
    if function is None:
        raise NotFound(f"There is no function {ref!r}")
    return function.id
