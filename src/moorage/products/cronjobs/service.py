"""Creates, changes, pauses, triggers and deletes cronjobs, and records their runs."""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence
from dataclasses import fields
from typing import Any

from moorage.accounts.identity.organizations import service as orgs
from moorage.accounts.plans import service as plans
from moorage.accounts.plans.service import Standing
from moorage.core.audit import service as audit
from moorage.core.audit.service import THE_PLATFORM, Actor, AuditTarget
from moorage.core.db.tx import Tx, UniqueClash, move
from moorage.core.jobs import timetable
from moorage.core.kit.cron import Cron
from moorage.core.kit.ids import new_uuid
from moorage.core.kit.records import dataclass
from moorage.core.machines import placement
from moorage.core.vault import service as vault
from moorage.errors import Conflict, NotFound, bad_field
from moorage.products.cronjobs import building, tables
from moorage.products.cronjobs.states import CRONJOB, EXECUTION, CronjobStatus, ExecutionStatus
from moorage.products.cronjobs.tables import KIND, Build, Cronjob, Execution
from moorage.products.repositories.names import key_of

MAX_ERROR_CHARS = 2_000
MB_OF_GB = 1024
# A change of one of these columns starts a build, unless the cronjob runs a public image.
BUILT_FROM = (
    "repository_name", "branch", "language", "base_dir", "build_cmd", "start_cmd", "dockerfile_path",
    "docker_build_context_dir", "docker_build_args", "docker_build_target",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class NewCronjob:
    """Columns of a new cronjob that the request sets."""

    name: str
    image_source: str
    cron_schedule: str
    region: str = "us"
    instance_type: str = "micro"
    repository_name: str | None = None
    branch: str | None = None
    is_public: bool = True
    language: str | None = None
    base_dir: str | None = None
    build_cmd: str | None = None
    start_cmd: str | None = None
    command: str = ""
    dockerfile_path: str | None = None
    docker_build_context_dir: str | None = None
    docker_build_args: str | None = None
    docker_build_target: str | None = None
    auto_deploy: bool = False
    public_image: str | None = None
    env: str = "[]"


def find(tx: Tx, org_id: int, name: str) -> Cronjob | None:
    return tx.find(tables.FIND, org_id=org_id, name=name)


def get(tx: Tx, org_id: int, name: str) -> Cronjob:
    cronjob = find(tx, org_id, name)
    if cronjob is None:
        raise _no_cronjob()
    return cronjob


def find_by_id(tx: Tx, org_id: int, cronjob_id: int) -> Cronjob | None:
    return tx.find(tables.FIND_BY_ID, org_id=org_id, id=cronjob_id)


def get_by_id(tx: Tx, org_id: int, cronjob_id: int) -> Cronjob:
    cronjob = find_by_id(tx, org_id, cronjob_id)
    if cronjob is None:
        raise _no_cronjob()
    return cronjob


def lock(tx: Tx, org_id: int, name: str) -> Cronjob:
    """Return a cronjob with its row locked; raises Conflict while it is being deleted."""
    cronjob = tx.find(tables.LOCK, org_id=org_id, name=name)
    if cronjob is None:
        raise _no_cronjob()
    if cronjob.status == CronjobStatus.DELETING:
        raise Conflict("The cronjob is being deleted")
    return cronjob


def page(tx: Tx, org_id: int, *, skip: int, most: int) -> list[Cronjob]:
    """Return one page of cronjobs, newest first."""
    return tx.all(tables.PAGE, org_id=org_id, skip=skip, most=most)


def count(tx: Tx, org_id: int) -> int:
    return tx.one(tables.COUNT, org_id=org_id)


def target_of(cronjob: Cronjob) -> AuditTarget:
    return AuditTarget("cronjob", cronjob.name)


def next_run_at(tx: Tx, org_id: int, cronjob: Cronjob) -> int | None:
    """Return the time of the next scheduled run; None for a paused cronjob."""
    entry = timetable.find(tx, org_id, KIND, str(cronjob.id))
    return entry.next_run_at if entry is not None and cronjob.is_active else None


def create(
    tx: Tx, org_id: int, actor: Actor, standing: Standing, new: NewCronjob, hidden: Mapping[str, str]
) -> tuple[Cronjob, Build | None]:
    """Create a cronjob, and request its first build unless it runs an image."""
    plans.check_room(tx, org_id, standing, "cronjobs")
    if find(tx, org_id, new.name) is not None:
        raise _name_taken(new.name)
    values: dict[str, Any] = {each.name: getattr(new, each.name) for each in fields(new)}
    values |= dict.fromkeys(("total_runs", "successful_runs", "failed_runs", "skipped_runs"), 0)
    try:
        with tx.savepoint():
            cronjob_id = tx.one(
                tables.ADD,
                **values,
                org_id=org_id,
                status=CronjobStatus.PENDING,
                is_active=True,
                repository_key=key_of(new.repository_name) if new.repository_name else None,
                build_id=None,
                last_run_at=None,
                created_at=tx.now,
                updated_at=tx.now,
            )
    except UniqueClash:
        raise _name_taken(new.name) from None
    cronjob = get_by_id(tx, org_id, cronjob_id)
    for name, value in hidden.items():
        vault.put(tx, org_id, cronjob.resource, name, value)
    timetable.put(tx, org_id, KIND, str(cronjob.id), Cron.parse(new.cron_schedule))
    audit.record(tx, org_id, actor, "cronjob.created", target_of(cronjob), source=new.image_source)
    if cronjob.is_image:
        move(tx, CRONJOB, cronjob, to=CronjobStatus.RUNNING)
        return get_by_id(tx, org_id, cronjob.id), None
    build = building.start(tx, org_id, cronjob)
    return get_by_id(tx, org_id, cronjob.id), build


def update(
    tx: Tx,
    org_id: int,
    actor: Actor,
    name: str,
    changes: Mapping[str, Any],
    hidden: Sequence[tuple[str, str | None]] | None,
) -> tuple[Cronjob, Build | None]:
    """Change a cronjob, and request a build where its source or build settings change."""
    before = lock(tx, org_id, name)
    _check_source(before, changes)
    if hidden is not None:
        vault.replace_all(tx, org_id, before.resource, hidden)
    changed = {column: value for column, value in changes.items() if getattr(before, column) != value}
    for column, value in changed.items():
        tx.run(tables.SET[column], org_id=org_id, id=before.id, new=value, now=tx.now)
    after = get_by_id(tx, org_id, before.id)
    if "cron_schedule" in changed:
        cron = Cron.parse(after.cron_schedule)
        timetable.put(tx, org_id, KIND, str(after.id), cron, enabled=after.is_active)
    audit.record(tx, org_id, actor, "cronjob.updated", target_of(after), changed=sorted(changed))
    if after.is_image or not any(column in changed for column in BUILT_FROM):
        return after, None
    build = building.start(tx, org_id, after)
    return get_by_id(tx, org_id, after.id), build


def _check_source(cronjob: Cronjob, changes: Mapping[str, Any]) -> None:
    if "public_image" in changes and not cronjob.is_image:
        raise bad_field("publicImage", "is for cronjobs that run a public image; this one is built from a repository")


def pause(tx: Tx, org_id: int, actor: Actor, name: str) -> Cronjob:
    """Stop scheduled runs; a running run continues. Safe to repeat."""
    cronjob = lock(tx, org_id, name)
    if cronjob.is_active:
        _set_active(tx, org_id, cronjob, False)
        if cronjob.status in (CronjobStatus.RUNNING, CronjobStatus.FAILED):
            move(tx, CRONJOB, cronjob, to=CronjobStatus.PAUSED)
        audit.record(tx, org_id, actor, "cronjob.paused", target_of(cronjob))
    return get_by_id(tx, org_id, cronjob.id)


def resume(tx: Tx, org_id: int, actor: Actor, name: str) -> Cronjob:
    """Start scheduled runs again, from now on. Safe to repeat."""
    cronjob = lock(tx, org_id, name)
    if not cronjob.is_active:
        _set_active(tx, org_id, cronjob, True)
        if cronjob.status == CronjobStatus.PAUSED:
            is_good = cronjob.is_image or building.is_newest_good(tx, org_id, cronjob)
            move(tx, CRONJOB, cronjob, to=CronjobStatus.RUNNING if is_good else CronjobStatus.FAILED)
        audit.record(tx, org_id, actor, "cronjob.resumed", target_of(cronjob))
    return get_by_id(tx, org_id, cronjob.id)


def _set_active(tx: Tx, org_id: int, cronjob: Cronjob, is_active: bool) -> None:
    tx.run(tables.SET["is_active"], org_id=org_id, id=cronjob.id, new=is_active, now=tx.now)
    timetable.put(tx, org_id, KIND, str(cronjob.id), Cron.parse(cronjob.cron_schedule), enabled=is_active)


def delete(tx: Tx, org_id: int, actor: Actor, name: str) -> None:
    """Mark a cronjob for deletion; the runner stops its runs first. Safe to repeat."""
    cronjob = tx.find(tables.LOCK, org_id=org_id, name=name)
    if cronjob is None:
        raise _no_cronjob()
    if cronjob.status != CronjobStatus.DELETING:
        audit.record(tx, org_id, actor, "cronjob.deleted", target_of(cronjob))
        begin_delete(tx, org_id, cronjob)


def begin_delete(tx: Tx, org_id: int, cronjob: Cronjob) -> None:
    timetable.remove(tx, org_id, KIND, str(cronjob.id))
    move(tx, CRONJOB, cronjob, to=CronjobStatus.DELETING)


def delete_all(tx: Tx, org_id: int) -> None:
    for cronjob in tx.all(tables.ALL_OF, org_id=org_id):
        if cronjob.status != CronjobStatus.DELETING:
            begin_delete(tx, org_id, cronjob)


def is_ready(cronjob: Cronjob) -> bool:
    """Return whether the cronjob has an image or a build to run."""
    return cronjob.status != CronjobStatus.DELETING and (cronjob.is_image or cronjob.build_id is not None)


def trigger(tx: Tx, org_id: int, actor: Actor, name: str) -> Execution:
    """Queue a run now, also of a paused cronjob. The schedule does not change."""
    cronjob = lock(tx, org_id, name)
    if not is_ready(cronjob):
        raise Conflict(f"The cronjob is {cronjob.status}: there is nothing built yet that could be run")
    audit.record(tx, org_id, actor, "cronjob.triggered", target_of(cronjob))
    return add_execution(tx, org_id, cronjob, None)


def on_tick(tx: Tx, org_id: int, cronjob_id: int, at: int) -> Execution | None:
    """Queue the run of a tick, unless a run is open or the cronjob cannot run."""
    cronjob = tx.find(tables.LOCK_BY_ID, org_id=org_id, id=cronjob_id)
    if cronjob is None or not cronjob.is_active or not is_ready(cronjob) or not _is_paid(tx, org_id):
        return None
    if tx.all(tables.OPEN_OF, org_id=org_id, cronjob_id=cronjob.id):
        tx.run(tables.COUNT_SKIPPED, org_id=org_id, id=cronjob.id)
        audit.record(tx, org_id, THE_PLATFORM, "cronjob.run_skipped", target_of(cronjob), why="a run still goes on")
        return None
    try:
        with tx.savepoint():
            return add_execution(tx, org_id, cronjob, at)
    except UniqueClash:
        return None  # The run of this tick exists already.


def _is_paid(tx: Tx, org_id: int) -> bool:
    org = orgs.find(tx, org_id)
    return org is not None and plans.counts_as_paid(tx.env.settings, Standing(org.plan, org.card_verified))


def add_execution(tx: Tx, org_id: int, cronjob: Cronjob, scheduled_for: int | None) -> Execution:
    execution_id = tx.one(
        tables.ADD_EXECUTION,
        uuid=new_uuid(),
        org_id=org_id,
        cronjob_id=cronjob.id,
        status=ExecutionStatus.QUEUED,
        scheduled_for=scheduled_for,
        token=secrets.token_hex(24),
        build_id=None,
        image_digest=None,
        exit_code=None,
        error_message=None,
        started_at=None,
        completed_at=None,
        created_at=tx.now,
        updated_at=tx.now,
        machine_id=placement.choose(tx, memory_of(cronjob)),
    )
    return get_execution(tx, org_id, execution_id)


def memory_of(cronjob: Cronjob) -> int:
    return int(cronjob.tier.memory * MB_OF_GB)


def get_execution(tx: Tx, org_id: int, execution_id: int) -> Execution:
    execution = tx.find(tables.FIND_EXECUTION, org_id=org_id, id=execution_id)
    if execution is None:
        raise _no_execution()
    return execution


def get_execution_by_uuid(tx: Tx, org_id: int, uuid: str) -> Execution:
    execution = tx.find(tables.FIND_EXECUTION_BY_UUID, org_id=org_id, uuid=uuid)
    if execution is None:
        raise _no_execution()
    return execution


def executions(tx: Tx, org_id: int, cronjob: Cronjob, *, skip: int, most: int) -> list[Execution]:
    """Return one page of a cronjob's runs, newest first."""
    return tx.all(tables.EXECUTIONS, org_id=org_id, cronjob_id=cronjob.id, skip=skip, most=most)


def count_executions(tx: Tx, org_id: int, cronjob: Cronjob) -> int:
    return tx.one(tables.COUNT_EXECUTIONS, org_id=org_id, cronjob_id=cronjob.id)


def begin(tx: Tx, org_id: int, execution: Execution, started_at: int) -> None:
    """Move a run to running. Of two concurrent callers, one gets IllegalMove."""
    move(tx, EXECUTION, execution, to=ExecutionStatus.RUNNING, started_at=started_at)
    tx.run(tables.SET_LAST_RUN, org_id=org_id, id=execution.cronjob_id, at=started_at)


def finish(tx: Tx, org_id: int, run: Execution, *, exit_code: int | None, error: str | None, ended_at: int) -> None:
    """Record the end of a run and count it once."""
    is_good = error is None
    to = ExecutionStatus.SUCCEEDED if is_good else ExecutionStatus.FAILED
    shown = None if error is None else error[:MAX_ERROR_CHARS]
    move(tx, EXECUTION, run, to=to, exit_code=exit_code, error_message=shown, completed_at=ended_at)
    if get_execution(tx, org_id, run.id).started_at is None:  # It failed before its start, and counts nevertheless.
        tx.run(tables.SET_LAST_RUN, org_id=org_id, id=run.cronjob_id, at=ended_at)
    tx.run(tables.COUNT_RUN, org_id=org_id, id=run.cronjob_id, succeeded=int(is_good), failed=int(not is_good))


def _no_cronjob() -> NotFound:
    return NotFound("There is no such cronjob")


def _no_execution() -> NotFound:
    return NotFound("There is no such run")


def _name_taken(name: str) -> Conflict:
    return Conflict(f"The organization has a cronjob named {name!r} already")
