"""Databases: made, found, changed and deleted, and what is needed to connect to them."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

from moorage.accounts.identity.caller import Caller
from moorage.accounts.identity.roles import Role
from moorage.core.db.store import Database as Store
from moorage.core.db.tx import Tx
from moorage.core.http.paging import Page, PageQuery
from moorage.core.http.request import Request
from moorage.core.http.route import Router
from moorage.products.databases import service, urls
from moorage.products.databases.schemas import (
    ChangeTierInput,
    CreateDatabaseInput,
    DatabaseConnectionStrings,
    DatabaseCredentials,
    DatabaseDetail,
    DatabaseListItem,
    Deleted,
    Done,
)
from moorage.products.databases.tables import Database
from moorage.runtime.database_servers import tls
from moorage.runtime.database_servers.software.catalog import Shelf


@dataclass(frozen=True)
class Parts:
    db: Store
    shelf: Shelf


def make_router(parts: Parts) -> Router:
    router = Router("Databases")
    _add_reads(router, parts)
    _add_writes(router, parts)
    _add_tiers(router)
    return router


def detail(tx: Tx, org_id: int, found: Database) -> DatabaseDetail:
    return DatabaseDetail.of(found, tx.env.settings)


def _add_reads(router: Router, parts: Parts) -> None:
    @router.get("/databases")
    def list_databases(tx: Tx, caller: Caller, query: PageQuery) -> Page[DatabaseListItem]:
        """List the organization's databases, newest first."""
        found = service.page(tx, caller.org_id, skip=query.offset, most=query.page_size)
        return Page([DatabaseListItem.of(each) for each in found], service.count(tx, caller.org_id))

    @router.get("/databases/{name}", point=True)
    def read_database(tx: Tx, caller: Caller, name: str) -> DatabaseDetail:
        """Return a database. Passwords are never part of it.

        `version` is what was asked for, `engineVersion` what runs, and `engineNote` says how they differ.
        """
        return detail(tx, caller.org_id, service.get(tx, caller.org_id, name))

    @router.get("/databases/{name}/connection-strings")
    def read_connection_strings(tx: Tx, caller: Caller, name: str) -> DatabaseConnectionStrings:
        """Return the addresses of a database with stars for the password.

        A public database offers TLS; `caCertificate` is what its certificate can be checked with.
        """
        found = service.get(tx, caller.org_id, name)
        address = urls.urls_of(tx.env.settings, found)
        authority = tls.read_ca(tx.env.settings.folder("keys")) if address.public else None
        return DatabaseConnectionStrings(address.public, address.private, authority)

    @router.get("/databases/{name}/password", floor=Role.ADMIN, secret=True)
    async def read_password(caller: Caller, request: Request, name: str) -> DatabaseCredentials:
        """Show the password of a database. Who asked is recorded in the activity feed."""
        reveal = partial(service.reveal, org_id=caller.org_id, actor=caller.as_actor, name=name)
        found, password = await parts.db.write(reveal)
        address = urls.urls_of(parts.db.env.settings, found, password)
        return DatabaseCredentials(password, address.public, address.private)


def _add_writes(router: Router, parts: Parts) -> None:
    @router.post("/databases", floor=Role.MEMBER)
    def create_database(tx: Tx, caller: Caller, body: CreateDatabaseInput) -> DatabaseDetail:
        """Make a database. It can be connected to once its status is `running`, usually within a second.

        With `projectId` the project's app gets the address as the secret `DATABASE_URL`, and may connect to it.
        """
        assert caller.standing is not None
        made = service.create(tx, caller.org_id, caller.as_actor, caller.standing, parts.shelf, body.new())
        return detail(tx, caller.org_id, made)

    @router.post("/databases/{name}/rotate-password", floor=Role.ADMIN)
    def rotate_password(tx: Tx, caller: Caller, name: str) -> Done:
        """Give a database a new password, and a linked project its new address.

        The database is `updating` until the new password counts. Connections that are open stay open.
        """
        service.rotate_password(tx, caller.org_id, caller.as_actor, name)
        return Done(True)

    @router.delete("/databases/{name}", floor=Role.MEMBER)
    def delete_database(tx: Tx, caller: Caller, name: str) -> Deleted:
        """Delete a database. Its data and backups wait in the operator's trash for some days."""
        service.delete(tx, caller.org_id, caller.as_actor, name)
        return Deleted(True)


def _add_tiers(router: Router) -> None:
    @router.post("/databases/{name}/change-tier", floor=Role.ADMIN)
    def change_tier(tx: Tx, caller: Caller, name: str, body: ChangeTierInput) -> DatabaseDetail:
        """Give a database another tier. It is started again with it; where that fails, it keeps the one it had."""
        return _change_tier(tx, caller, name, body)

    @router.post("/databases/{name}/upgrade", floor=Role.ADMIN, deprecated=True)
    def upgrade_database(tx: Tx, caller: Caller, name: str, body: ChangeTierInput) -> DatabaseDetail:
        """Give a database another tier: the former name of `change-tier`, which should be used instead."""
        return _change_tier(tx, caller, name, body)


def _change_tier(tx: Tx, caller: Caller, name: str, body: ChangeTierInput) -> DatabaseDetail:
    assert caller.standing is not None
    changed = service.change_tier(
        tx,
        caller.org_id,
        caller.as_actor,
        caller.standing,
        name,
        body.instance_type,
        expected=body.expected_current_tier,
        may_be_free=body.confirm_downgrade_to_free,
    )
    return detail(tx, caller.org_id, changed)
