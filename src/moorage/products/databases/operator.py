"""Operator commands on databases of all organizations."""

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
            "id": database.id,
            "organization": str(database.org_id),
            "name": database.name,
            "software": database.software,
            "status": "deleted" if database.deleted_at else database.status,
            "reason": database.status_reason,
            "port": database.port,
            "diskBytes": database.disk_bytes,
            "deletedAt": to_wire_or_none(database.deleted_at),
        }
        for database in tx.all(tables.EVERY)
    ]


@across_organizations("the operator names a database by its number")
def stop(tx: Tx, database_id: int) -> str:
    database = _get(tx, database_id)
    if database.status != DatabaseStatus.RUNNING:
        raise Conflict(f"The database is {database.status}; only one that is running can be stopped")
    move(tx, DATABASE, database, to=DatabaseStatus.STOPPED, status_reason=BY_OPERATOR)
    return database.name


@across_organizations("the operator names a database by its number")
def start(tx: Tx, database_id: int) -> str:
    """Start a stopped or failed database."""
    database = _get(tx, database_id)
    if database.status not in (DatabaseStatus.STOPPED, DatabaseStatus.FAILED) or database.running_since is None:
        raise Conflict(f"The database is {database.status}; only one that has run and is down can be started")
    move(tx, DATABASE, database, to=DatabaseStatus.RUNNING, status_reason=None)
    return database.name


@across_organizations("the operator names a database by its number")
def undelete(tx: Tx, database_id: int) -> str:
    database = _find(tx, database_id)
    return trash.undelete(tx, database.org_id, database.id).name


@across_organizations("the operator names a database by its number")
def _get(tx: Tx, database_id: int) -> Database:
    database = _find(tx, database_id)
    if database.deleted_at is not None:
        raise Conflict("The database is in the trash")
    return database


@across_organizations("the operator names a database by its number")
def _find(tx: Tx, database_id: int) -> Database:
    database = next((each for each in tx.all(tables.EVERY) if each.id == database_id), None)
    if database is None:
        raise service.no_database()
    return database
