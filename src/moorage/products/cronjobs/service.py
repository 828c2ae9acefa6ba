"""Cronjobs: asked for, changed, paused, triggered, deleted; and their runs, each of which is a row before it begins."""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

from moorage.accounts.identity.organizations import service as orgs
from moorage.accounts.plans import service as plans
from moorage.accounts.plans.service import Standing
from moorage.core.audit import service as audit
from moorage.core.audit.service import THE_PLATFORM, Actor, Target
from moorage.core.db.tx import Tx, UniqueClash, move
from moorage.core.jobs import timetable
from moorage.core.kit.cron import Cron
from moorage.core.kit.ids import new_uuid
from moorage.core.vault import service as vault
from moorage.errors import Conflict, NotFound, bad_field
from moorage.products.cronjobs import building, tables
from moorage.products.cronjobs.states import CRONJOB, EXECUTION, CronjobStatus, ExecutionStatus
from moorage.products.cronjobs.tables import KIND, Build, Cronjob, Execution

SHOWN_ERROR = 2_000
# A change of one of these means another artifact.
BUILT_FROM = (
    "repository_name", "branch", "language", "base_dir", "build_cmd", "start_cmd", "dockerfile_path",
    "docker_build_context_dir",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class NewCronjob:
    """A cronjob as it is asked for."""

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
    auto_deploy: bool = False
    public_image: str | None = None
    env: str = "[]"


def find(tx: Tx, org_id: int, name: str) -> Cronjob | None:
    return tx.find(tables.FIND, org_id=org_id, name=name)


def get(tx: Tx, org_id: int, name: str) -> Cronjob:
    found = find(tx, org_id, name)
    if found is None:
        raise _no_cronjob()
    return found


def find_by_id(tx: Tx, org_id: int, cronjob_id: int) -> Cronjob | None:
    return tx.find(tables.FIND_BY_ID, org_id=org_id, id=cronjob_id)


def get_by_id(tx: Tx, org_id: int, cronjob_id: int) -> Cronjob:
    found = find_by_id(tx, org_id, cronjob_id)
    if found is None:
        raise _no_cronjob()
    return found


def lock(tx: Tx, org_id: int, name: str) -> Cronjob:
    """Return a cronjob for who is about to change it; raises Conflict for one that goes."""
    found = tx.find(tables.LOCK, org_id=org_id, name=name)
    if found is None:
        raise _no_cronjob()
    if found.status == CronjobStatus.DELETING:
        raise Conflict("The cronjob is being deleted")
    return found


def page(tx: Tx, org_id: int, *, skip: int, most: int) -> list[Cronjob]:
    """Return some cronjobs, newest first."""
    return tx.all(tables.PAGE, org_id=org_id, skip=skip, most=most)


def count(tx: Tx, org_id: int) -> int:
    return tx.one(tables.COUNT, org_id=org_id)


def target_of(found: Cronjob) -> Target:
    return Target("cronjob", found.name)


def next_run_at(tx: Tx, org_id: int, found: Cronjob) -> int | None:
    """Return when the next run begins by the clock; None for one that is paused."""
    entry = timetable.find(tx, org_id, KIND, str(found.id))
    return entry.next_run_at if entry is not None and found.is_active else None


# Changing them.


def create(
    tx: Tx, org_id: int, actor: Actor, standing: Standing, new: NewCronjob, hidden: Mapping[str, str]
) -> tuple[Cronjob, Build | None]:
    """Make a cronjob, and ask for its first build where it has to be built."""
    plans.check_room(tx, org_id, standing, "cronjobs")
    if find(tx, org_id, new.name) is not None:
        raise _taken(new.name)
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
                repository_key=new.repository_name.lower() if new.repository_name else None,
                build_id=None,
                last_run_at=None,
                created_at=tx.now,
                updated_at=tx.now,
            )
    except UniqueClash:
        raise _taken(new.name) from None
    made = get_by_id(tx, org_id, cronjob_id)
    for name, value in hidden.items():
        vault.put(tx, org_id, made.resource, name, value)
    timetable.put(tx, org_id, KIND, str(made.id), Cron.parse(new.cron_schedule))
    audit.record(tx, org_id, actor, "cronjob.created", target_of(made), source=new.image_source)
    if made.is_image:
        move(tx, CRONJOB, made, to=CronjobStatus.RUNNING)
        return get_by_id(tx, org_id, made.id), None
    build = building.start(tx, org_id, made)
    return get_by_id(tx, org_id, made.id), build


def update(
    tx: Tx,
    org_id: int,
    actor: Actor,
    name: str,
    changes: Mapping[str, Any],
    hidden: Sequence[tuple[str, str | None]] | None,
) -> tuple[Cronjob, Build | None]:
    """Change a cronjob. It is built anew where what it is built from changes."""
    before = lock(tx, org_id, name)
    _check_source(before, changes)
    if before.is_image:  # As when one is made, what is about repositories means nothing to it.
        changes = {column: value for column, value in changes.items() if column not in (*BUILT_FROM, "auto_deploy")}
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


def _check_source(found: Cronjob, changes: Mapping[str, Any]) -> None:
    if "public_image" in changes and not found.is_image:
        raise bad_field("publicImage", "is for cronjobs that run a public image; this one is built from a repository")


def pause(tx: Tx, org_id: int, actor: Actor, name: str) -> Cronjob:
    """Let nothing begin by the clock; a run that goes on goes on. Safe to repeat."""
    found = lock(tx, org_id, name)
    if found.is_active:
        _set_active(tx, org_id, found, False)
        if found.status in (CronjobStatus.RUNNING, CronjobStatus.FAILED):
            move(tx, CRONJOB, found, to=CronjobStatus.PAUSED)
        audit.record(tx, org_id, actor, "cronjob.paused", target_of(found))
    return get_by_id(tx, org_id, found.id)


def resume(tx: Tx, org_id: int, actor: Actor, name: str) -> Cronjob:
    """Let runs begin by the clock again, counted from now. Safe to repeat."""
    found = lock(tx, org_id, name)
    if not found.is_active:
        _set_active(tx, org_id, found, True)
        if found.status == CronjobStatus.PAUSED:
            is_good = found.is_image or building.is_last_good(tx, org_id, found)
            move(tx, CRONJOB, found, to=CronjobStatus.RUNNING if is_good else CronjobStatus.FAILED)
        audit.record(tx, org_id, actor, "cronjob.resumed", target_of(found))
    return get_by_id(tx, org_id, found.id)


def _set_active(tx: Tx, org_id: int, found: Cronjob, is_active: bool) -> None:
    tx.run(tables.SET["is_active"], org_id=org_id, id=found.id, new=is_active, now=tx.now)
    timetable.put(tx, org_id, KIND, str(found.id), Cron.parse(found.cron_schedule), enabled=is_active)


def delete(tx: Tx, org_id: int, actor: Actor, name: str) -> None:
    """Ask for a cronjob to be deleted; what runs of it is stopped first. Safe to repeat."""
    found = tx.find(tables.LOCK, org_id=org_id, name=name)
    if found is None:
        raise _no_cronjob()
    if found.status != CronjobStatus.DELETING:
        audit.record(tx, org_id, actor, "cronjob.deleted", target_of(found))
        begin_delete(tx, org_id, found)


def begin_delete(tx: Tx, org_id: int, found: Cronjob) -> None:
    timetable.remove(tx, org_id, KIND, str(found.id))
    move(tx, CRONJOB, found, to=CronjobStatus.DELETING)


def delete_all(tx: Tx, org_id: int) -> None:
    """Delete every cronjob of an organization that is gone itself."""
    for found in tx.all(tables.ALL_OF, org_id=org_id):
        if found.status != CronjobStatus.DELETING:
            begin_delete(tx, org_id, found)


# Runs.


def is_ready(found: Cronjob) -> bool:
    """Tell whether there is something to run."""
    return found.status != CronjobStatus.DELETING and (found.is_image or found.build_id is not None)


def trigger(tx: Tx, org_id: int, actor: Actor, name: str) -> Execution:
    """Ask for a run now, also of a cronjob that is paused. The next one by the clock stays where it is."""
    found = lock(tx, org_id, name)
    if not is_ready(found):
        raise Conflict(f"The cronjob is {found.status}: there is nothing built yet that could be run")
    audit.record(tx, org_id, actor, "cronjob.triggered", target_of(found))
    return add_execution(tx, org_id, found, None)


def on_tick(tx: Tx, org_id: int, cronjob_id: int, at: int) -> Execution | None:
    """Ask for the run of a tick, unless one of the same cronjob still goes on, or there is nothing to run yet."""
    found = tx.find(tables.LOCK_BY_ID, org_id=org_id, id=cronjob_id)
    if found is None or not found.is_active or not is_ready(found) or not _is_paid(tx, org_id):
        return None
    if tx.all(tables.OPEN_OF, org_id=org_id, cronjob_id=found.id):
        tx.run(tables.COUNT_SKIPPED, org_id=org_id, id=found.id)
        audit.record(tx, org_id, THE_PLATFORM, "cronjob.run_skipped", target_of(found), why="a run still goes on")
        return None
    try:
        with tx.savepoint():
            return add_execution(tx, org_id, found, at)
    except UniqueClash:
        return None  # Somebody has had this tick.


def _is_paid(tx: Tx, org_id: int) -> bool:
    """Tell whether the organization's plan still has cronjobs; those of one that has not wait until it does."""
    found = orgs.find(tx, org_id)
    return found is not None and plans.counts_as_paid(tx.env.settings, Standing(found.plan, found.card_verified))


def add_execution(tx: Tx, org_id: int, found: Cronjob, scheduled_for: int | None) -> Execution:
    execution_id = tx.one(
        tables.ADD_EXECUTION,
        uuid=new_uuid(),
        org_id=org_id,
        cronjob_id=found.id,
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
    )
    return get_execution(tx, org_id, execution_id)


def get_execution(tx: Tx, org_id: int, execution_id: int) -> Execution:
    found = tx.find(tables.FIND_EXECUTION, org_id=org_id, id=execution_id)
    if found is None:
        raise _no_execution()
    return found


def get_execution_by_uuid(tx: Tx, org_id: int, uuid: str) -> Execution:
    found = tx.find(tables.FIND_EXECUTION_BY_UUID, org_id=org_id, uuid=uuid)
    if found is None:
        raise _no_execution()
    return found


def executions(tx: Tx, org_id: int, found: Cronjob, *, skip: int, most: int) -> list[Execution]:
    """Return some runs of a cronjob, newest first."""
    return tx.all(tables.EXECUTIONS, org_id=org_id, cronjob_id=found.id, skip=skip, most=most)


def count_executions(tx: Tx, org_id: int, found: Cronjob) -> int:
    return tx.one(tables.COUNT_EXECUTIONS, org_id=org_id, cronjob_id=found.id)


def begin(tx: Tx, org_id: int, found: Execution, started_at: int) -> None:
    """Say that a run's program runs. Of two who say so one gets IllegalMove."""
    move(tx, EXECUTION, found, to=ExecutionStatus.RUNNING, started_at=started_at)
    tx.run(tables.SET_LAST_RUN, org_id=org_id, id=found.cronjob_id, at=started_at)


def finish(tx: Tx, org_id: int, found: Execution, *, exit_code: int | None, error: str | None, ended_at: int) -> None:
    """Say how a run ended, and count it, once."""
    is_good = error is None
    to = ExecutionStatus.SUCCEEDED if is_good else ExecutionStatus.FAILED
    shown = None if error is None else error[:SHOWN_ERROR]
    move(tx, EXECUTION, found, to=to, exit_code=exit_code, error_message=shown, completed_at=ended_at)
    tx.run(tables.COUNT_RUN, org_id=org_id, id=found.cronjob_id, succeeded=int(is_good), failed=int(not is_good))


def _no_cronjob() -> NotFound:
    return NotFound("There is no such cronjob")


def _no_execution() -> NotFound:
    return NotFound("There is no such run")


def _taken(name: str) -> Conflict:
    return Conflict(f"The organization has a cronjob named {name!r} already")
