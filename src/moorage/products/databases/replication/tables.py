"""What is asked about databases with two servers, and how the two change their roles.

The rows say what is true at every moment. `in_sync` of a replica is set only while commits wait for it, and is taken
back before they stop to. A primary that is `fenced` never runs again: from then on the replica is the database.
"""

from __future__ import annotations

from dataclasses import dataclass
from secrets import token_hex

from sqlalchemy import select

from moorage.core.audit import service as audit
from moorage.core.audit.service import THE_PLATFORM
from moorage.core.db.query import Query, columns
from moorage.core.db.scope import across_organizations
from moorage.core.db.tx import Tx
from moorage.products.databases import service, tables
from moorage.products.databases.servers import add_server, forget_server, servers_of, set_server
from moorage.products.databases.states import DatabaseStatus
from moorage.products.databases.tables import Database, Server

PRIMARY, REPLICA, FENCED = "primary", "replica", "fenced"
FOLDER = "sr"  # how the names of folders begin that were made as replicas

_d = tables.database.c
_RUNNING_PAIRS = Query(
    select(*columns(tables.database))
    .where((_d.architecture == "replicaset") & (_d.status == DatabaseStatus.RUNNING) & _d.deleted_at.is_(None))
    .order_by(_d.id),
    Database,
)


@dataclass(frozen=True, slots=True)
class Pair:
    """The servers of a database."""

    found: Database
    primary: Server | None
    replica: Server | None
    fenced: Server | None

    @property
    def is_running(self) -> bool:
        return self.found.status == DatabaseStatus.RUNNING and self.found.deleted_at is None


@across_organizations("one machine runs everybody's databases")
def running_pairs(tx: Tx) -> list[Database]:
    return tx.all(_RUNNING_PAIRS)


def read_pair(tx: Tx, org_id: int, database_id: int) -> Pair | None:
    """Return a database as it is now with its servers; None where there is none any more."""
    found = service.find_by_id(tx, org_id, database_id)
    if found is None:
        return None
    by_role = {server.role: server for server in servers_of(tx, org_id, database_id)}
    return Pair(found, by_role.get(PRIMARY), by_role.get(REPLICA), by_role.get(FENCED))


def ensure_replica(tx: Tx, org_id: int, found: Database) -> Server:
    """Say that a database is to have a replica. Its folder has a name that no other ever had."""
    pair = read_pair(tx, org_id, found.id)
    if pair is not None and pair.replica is not None:
        return pair.replica
    return add_server(tx, org_id, found.id, REPLICA, f"{FOLDER}{token_hex(5)}", service.free_port(tx))


def set_in_sync(tx: Tx, org_id: int, server: Server, *, is_so: bool) -> None:
    set_server(tx, org_id, server, "in_sync", is_so)


def fence(tx: Tx, org_id: int, pair: Pair) -> bool:
    """Decide that a primary never runs again; False where its replica may lack something, or things have changed."""
    now = read_pair(tx, org_id, pair.found.id)
    if now is None or not now.is_running or now.primary is None or pair.primary is None:
        return False
    if now.primary.id != pair.primary.id or now.replica is None or not now.replica.in_sync:
        return False
    set_server(tx, org_id, now.primary, "role", FENCED)
    return True


def take_over(tx: Tx, org_id: int, pair: Pair) -> None:
    """Make a replica that was promoted the primary, at the address of the database."""
    assert pair.replica is not None
    assert pair.fenced is not None
    changes = {"role": PRIMARY, "port": pair.found.port, "in_sync": False, "reason": None}
    for name, value in changes.items():
        set_server(tx, org_id, pair.replica, name, value)
    forget_server(tx, org_id, pair.fenced)
    found = pair.found
    if found.status_reason in (pair.fenced.reason, pair.replica.reason):
        service.set_column(tx, org_id, found, "status_reason", None)
    audit.record(tx, org_id, THE_PLATFORM, "database.promoted", service.target_of(found))


def note_reason(tx: Tx, org_id: int, server: Server, why: str | None) -> None:
    """Say what keeps a server from running; None for nothing. Without it the database does not run either, if it is
    the primary, or is to become it."""
    if server.reason == why:
        return
    set_server(tx, org_id, server, "reason", why)
    pair = read_pair(tx, org_id, server.database_id)
    if pair is None or not pair.is_running or (pair.primary is not None and pair.primary.id != server.id):
        return
    if why is not None or pair.found.status_reason == server.reason:
        service.set_column(tx, org_id, pair.found, "status_reason", why)


def count_restart(tx: Tx, org_id: int, server: Server) -> None:
    set_server(tx, org_id, server, "restarts", max(server.seen_restarts, server.restarts) + 1)
