"""What the operator does to databases of any organization, by their numbers."""

from __future__ import annotations

from typing import Any

from moorage.core.db.scope import across_organizations
from moorage.core.db.tx import Tx, move
from moorage.core.kit.clock import to_wire_or_none
from moorage.errors import Conflict
from moorage.products.databases import service, tables, trash
from moorage.products.databases.states import DATABASE, DatabaseStatus
from moorage.products.databases.tables import Database

BY_OPERATOR = "the operator has stopped it"


@across_organizations("the operator looks after everybody's databases")
def list_all(tx: Tx) -> list[dict[str, Any]]:
    return [
        {
            "id": found.id,
            "organization": str(found.org_id),
            "name": found.name,
            "software": found.software,
            "status": "deleted" if found.deleted_at else found.status,
            "reason": found.status_reason,
            "port": found.port,
            "diskBytes": found.disk_bytes,
            "deletedAt": to_wire_or_none(found.deleted_at),
        }
        for found in tx.all(tables.EVERY)
    ]


@across_organizations("the operator names a database by its number")
def stop(tx: Tx, database_id: int) -> str:
    found = _get(tx, database_id)
    if found.status != DatabaseStatus.RUNNING:
        raise Conflict(f"The database is {found.status}; only one that is running can be stopped")
    move(tx, DATABASE, found, to=DatabaseStatus.STOPPED, status_reason=BY_OPERATOR)
    return found.name


@across_organizations("the operator names a database by its number")
def start(tx: Tx, database_id: int) -> str:
    """Let a database run again: one that was stopped, or that failed and has been seen to."""
    found = _get(tx, database_id)
    if found.status not in (DatabaseStatus.STOPPED, DatabaseStatus.FAILED) or found.running_since is None:
        raise Conflict(f"The database is {found.status}; only one that has run and is down can be started")
    move(tx, DATABASE, found, to=DatabaseStatus.RUNNING, status_reason=None)
    return found.name


@across_organizations("the operator names a database by its number")
def undelete(tx: Tx, database_id: int) -> str:
    found = _find(tx, database_id)
    return trash.undelete(tx, found.org_id, found.id).name


@across_organizations("the operator names a database by its number")
def _get(tx: Tx, database_id: int) -> Database:
    found = _find(tx, database_id)
    if found.deleted_at is not None:
        raise Conflict("The database is in the trash")
    return found


@across_organizations("the operator names a database by its number")
def _find(tx: Tx, database_id: int) -> Database:
    found = next((each for each in tx.all(tables.EVERY) if each.id == database_id), None)
    if found is None:
        raise service.no_database()
    return found
