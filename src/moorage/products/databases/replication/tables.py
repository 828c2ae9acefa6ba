"""Queries of replicated databases, and the changes of their servers' roles.

`in_sync` of a replica is set only while commits wait for it, and cleared before they stop waiting. A `fenced` primary
never runs again; its replica becomes the primary.
"""

from __future__ import annotations

from secrets import token_hex

from sqlalchemy import select

from moorage.core.audit import service as audit
from moorage.core.audit.service import THE_PLATFORM
from moorage.core.db.query import Query, columns
from moorage.core.db.scope import across_organizations
from moorage.core.db.tx import Tx
from moorage.core.kit.records import dataclass
from moorage.products.databases import service, tables
from moorage.products.databases.servers import add_server, forget_server, servers_of, set_server
from moorage.products.databases.states import DatabaseStatus
from moorage.products.databases.tables import Database, Server

PRIMARY, REPLICA, FENCED = "primary", "replica", "fenced"
FOLDER = "sr"  # prefix of folders that were created for replicas

_d = tables.database.c
_RUNNING_PAIRS = Query(
    select(*columns(tables.database))
    .where((_d.architecture == "replicaset") & (_d.status == DatabaseStatus.RUNNING) & _d.deleted_at.is_(None))
    .order_by(_d.id),
    Database,
)


@dataclass(frozen=True, slots=True)
class Pair:
    """A replicated database and its servers."""

    database: Database
    primary: Server | None
    replica: Server | None
    fenced: Server | None

    @property
    def is_running(self) -> bool:
        return self.database.status == DatabaseStatus.RUNNING and self.database.deleted_at is None


@across_organizations("one machine runs everybody's databases")
def running_pairs(tx: Tx) -> list[Database]:
    return [each for each in tx.all(_RUNNING_PAIRS) if each.machine_id == tx.env.machine.id]


def read_pair(tx: Tx, org_id: int, database_id: int) -> Pair | None:
    """Return the current rows of a database and its servers; None if it is deleted."""
    database = service.find_by_id(tx, org_id, database_id)
    if database is None:
        return None
    by_role = {server.role: server for server in servers_of(tx, org_id, database_id)}
    return Pair(database, by_role.get(PRIMARY), by_role.get(REPLICA), by_role.get(FENCED))


def ensure_replica(tx: Tx, org_id: int, database: Database) -> Server:
    """Add the row of a replica unless it exists. Its folder name is unique."""
    pair = read_pair(tx, org_id, database.id)
    if pair is not None and pair.replica is not None:
        return pair.replica
    return add_server(tx, org_id, database.id, REPLICA, f"{FOLDER}{token_hex(5)}", service.free_port(tx))


def set_in_sync(tx: Tx, org_id: int, server: Server, *, in_sync: bool) -> None:
    set_server(tx, org_id, server, "in_sync", in_sync)


def fence(tx: Tx, org_id: int, pair: Pair) -> bool:
    """Fence a primary; False if its replica is not in sync or the rows have changed."""
    now = read_pair(tx, org_id, pair.database.id)
    if now is None or not now.is_running or now.primary is None or pair.primary is None:
        return False
    if now.primary.id != pair.primary.id or now.replica is None or not now.replica.in_sync:
        return False
    set_server(tx, org_id, now.primary, "role", FENCED)
    return True


def promote_replica(tx: Tx, org_id: int, pair: Pair) -> None:
    """Make the row of a promoted replica the primary, at the port of the database."""
    assert pair.replica is not None
    assert pair.fenced is not None
    changes = {"role": PRIMARY, "port": pair.database.port, "in_sync": False, "reason": None}
    for name, value in changes.items():
        set_server(tx, org_id, pair.replica, name, value)
    forget_server(tx, org_id, pair.fenced)
    database = pair.database
    if database.status_reason in (pair.fenced.reason, pair.replica.reason):
        service.set_column(tx, org_id, database, "status_reason", None)
    audit.record(tx, org_id, THE_PLATFORM, "database.promoted", service.target_of(database))


def set_reason(tx: Tx, org_id: int, server: Server, why: str | None) -> None:
    """Store why a server does not run, for the (next) primary also in the status."""
    if server.reason == why:
        return
    set_server(tx, org_id, server, "reason", why)
    pair = read_pair(tx, org_id, server.database_id)
    if pair is None or not pair.is_running or (pair.primary is not None and pair.primary.id != server.id):
        return
    if why is not None or pair.database.status_reason == server.reason:
        service.set_column(tx, org_id, pair.database, "status_reason", why)


def count_restart(tx: Tx, org_id: int, server: Server) -> None:
    set_server(tx, org_id, server, "restarts", max(server.seen_restarts, server.restarts) + 1)
