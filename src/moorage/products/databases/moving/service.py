"""Finds databases whose data is in a folder of a machine, and begins their moves."""

from __future__ import annotations

import msgspec

from moorage.core.db.scope import across_organizations
from moorage.core.db.tx import Tx, move
from moorage.products.databases import service, tables
from moorage.products.databases.states import DATABASE, DatabaseStatus
from moorage.products.databases.tables import Database
from moorage.runtime.engines.ports import Agents

NO_REPLICA_SET = (
    "a replica set cannot run in a cluster, and its data stays in the folder of its machine: there, copy it to a "
    "standalone database, and move that one"
)
BEGUN = "its data is moved to the cluster: waiting"
NOT_CREATED = (DatabaseStatus.PENDING, DatabaseStatus.QUEUED, DatabaseStatus.DEPLOYING)


class MoveDatabase(msgspec.Struct, frozen=True, tag="databases.move"):
    """Copy the data of a database from a folder of this machine to a volume of the cluster."""

    org_id: int
    database_id: int


@across_organizations("a machine runs databases of all organizations")
def begin_all(tx: Tx, agents: Agents) -> int:
    """Begin the move of each running database of this machine; return their number."""
    found = 0
    for database in tx.all(tables.OF_MACHINE, machine_id=tx.env.machine.id):
        if database.host is None and database.deleted_at is None:
            found += _begin(tx, database.org_id, database, agents)
    return found


def _begin(tx: Tx, org_id: int, database: Database, agents: Agents) -> bool:
    if database.status in NOT_CREATED:  # It has no data, and its server is created in the cluster.
        service.set_column(tx, org_id, database, "host", agents.host_name(org_id, database.workload))
        return False
    if database.status != DatabaseStatus.RUNNING:
        return False
    if database.is_replicated:
        move(tx, DATABASE, database, to=DatabaseStatus.FAILED, status_reason=NO_REPLICA_SET)
        return False
    service.set_column(tx, org_id, database, "visibility", "private")  # A cluster has no public databases.
    move(tx, DATABASE, database, to=DatabaseStatus.UPDATING, status_reason=BEGUN)
    service.add_job(tx, org_id, database, MoveDatabase(org_id, database.id))
    return True
