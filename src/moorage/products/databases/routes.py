"""HTTP routes of databases."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

import msgspec

from moorage.accounts.identity.caller import Caller
from moorage.accounts.identity.roles import Role
from moorage.core.db.store import Database as Store
from moorage.core.db.tx import Tx
from moorage.core.http.paging import Page, PageQuery
from moorage.core.http.request import Request
from moorage.core.http.route import Router
from moorage.core.http.waiting import Progress
from moorage.products.databases import ownership, service, urls
from moorage.products.databases.schemas import (
    ChangeTierInput,
    CreateDatabaseInput,
    DatabaseConnectionStrings,
    DatabaseCredentials,
    DatabaseDetail,
    DatabaseExtension,
    DatabaseExtensions,
    DatabaseListItem,
    Deleted,
    Done,
)
from moorage.products.databases.servers import Servers
from moorage.products.databases.states import CHANGING, DatabaseStatus
from moorage.products.databases.tables import Database
from moorage.runtime.database_servers import tls


def make_router(db: Store, servers: Servers) -> Router:
    router = Router("Databases")
    _add_reads(router, db)
    _add_extensions(router, db, servers)
    _add_writes(router, servers)
    _add_tiers(router)
    return router


def detail(tx: Tx, org_id: int, database: Database) -> DatabaseDetail:
    (database,) = ownership.shown(tx, org_id, database)
    return DatabaseDetail.of(database, tx.env.settings)


def _follow_detail(tx: Tx, caller: Caller, answer: DatabaseDetail, path: Mapping[str, Any]) -> Progress:
    database = service.get_by_id(tx, caller.org_id, answer.id)
    return Progress(detail(tx, caller.org_id, database), database.status not in CHANGING)


def follow_change(tx: Tx, caller: Caller, answer: Done, path: Mapping[str, Any]) -> Progress:
    """Follow a change whose answer does not have the database."""
    database = service.get(tx, caller.org_id, path["name"])
    return Progress(msgspec.structs.replace(answer, status=database.status), database.status not in CHANGING)


def _follow_delete(tx: Tx, caller: Caller, answer: Deleted, path: Mapping[str, Any]) -> Progress:
    database = service.find(tx, caller.org_id, path["name"])
    is_there = database is not None and database.status == DatabaseStatus.DELETING
    return Progress(msgspec.structs.replace(answer, status="deleting" if is_there else "deleted"), not is_there)


def _add_reads(router: Router, db: Store) -> None:
    @router.get("/databases")
    def list_databases(tx: Tx, caller: Caller, query: PageQuery) -> Page[DatabaseListItem]:
        """List the organization's databases, newest first."""
        databases = service.page(tx, caller.org_id, skip=query.offset, most=query.page_size)
        shown = ownership.shown(tx, caller.org_id, *databases)
        return Page([DatabaseListItem.of(each) for each in shown], service.count(tx, caller.org_id))

    @router.get("/databases/{name}", point=True)
    def read_database(tx: Tx, caller: Caller, name: str) -> DatabaseDetail:
        """Return a database, without its password.

        `version` is the requested version, `engineVersion` the running one, and `engineNote` explains a difference.
        """
        return detail(tx, caller.org_id, service.get(tx, caller.org_id, name))

    @router.get("/databases/{name}/connection-strings")
    def read_connection_strings(tx: Tx, caller: Caller, name: str) -> DatabaseConnectionStrings:
        """Return the URLs of a database, with stars for the password.

        A public database offers TLS; `caCertificate` verifies its certificate.
        """
        database = service.get(tx, caller.org_id, name)
        address = urls.urls_of(tx.env.settings, database)
        ca_certificate = tls.read_ca(tx.env.settings.folder("keys")) if address.public else None
        return DatabaseConnectionStrings(address.public, address.private, ca_certificate)

    @router.get("/databases/{name}/password", min_role=Role.ADMIN, secret=True)
    async def read_password(caller: Caller, request: Request, name: str) -> DatabaseCredentials:
        """Return the password of a database, and record the caller in the activity feed."""
        reveal = partial(service.reveal, org_id=caller.org_id, actor=caller.as_actor, name=name)
        database, password = await db.write(reveal)
        address = urls.urls_of(db.env.settings, database, password)
        return DatabaseCredentials(password, address.public, address.private)


def _add_extensions(router: Router, db: Store, servers: Servers) -> None:
    @router.get("/databases/{name}/extensions")
    async def list_extensions(caller: Caller, request: Request, name: str) -> DatabaseExtensions:
        """List the extensions of a running PostgreSQL database, by name.

        `CREATE EXTENSION` works for those with `available`; `reason` says why not for the others. `installedVersion` is
        null until it is created. MySQL has no extensions: `items` is empty.
        """
        database = await db.read(partial(service.get, org_id=caller.org_id, name=name))
        return DatabaseExtensions([DatabaseExtension.of(each) for each in await servers.extensions(database)])


def _add_writes(router: Router, servers: Servers) -> None:
    @router.post("/databases", min_role=Role.MEMBER, follow=_follow_detail)
    def create_database(tx: Tx, caller: Caller, body: CreateDatabaseInput) -> DatabaseDetail:
        """Create a database; it accepts connections once it is `running`.

        Usually that takes less than a second. With `projectId` the project's app gets the URL as the secret
        `DATABASE_URL`, and may connect to the database.
        """
        assert caller.standing is not None
        catalog, agents, actor = servers.catalog, servers.agents, caller.as_actor
        created = service.create(tx, caller.org_id, actor, caller.standing, catalog, body.new(), agents)
        return detail(tx, caller.org_id, created)

    @router.post("/databases/{name}/rotate-password", min_role=Role.ADMIN, follow=follow_change)
    def rotate_password(tx: Tx, caller: Caller, name: str) -> Done:
        """Set a new random password, and update the URL of a linked project.

        The database is `updating` until the new password is valid. Open connections stay open.
        """
        service.rotate_password(tx, caller.org_id, caller.as_actor, name)
        return Done(True)

    @router.delete("/databases/{name}", min_role=Role.MEMBER, follow=_follow_delete)
    def delete_database(tx: Tx, caller: Caller, name: str) -> Deleted:
        """Delete a database; the operator can restore its data and backups for days."""
        service.delete(tx, caller.org_id, caller.as_actor, name)
        return Deleted(True)


def _add_tiers(router: Router) -> None:
    @router.post("/databases/{name}/change-tier", min_role=Role.ADMIN, follow=_follow_detail)
    def change_tier(tx: Tx, caller: Caller, name: str, body: ChangeTierInput) -> DatabaseDetail:
        """Change the tier of a database and restart it; keeps its tier on failure."""
        return _change_tier(tx, caller, name, body)

    @router.post("/databases/{name}/upgrade", min_role=Role.ADMIN, deprecated=True, follow=_follow_detail)
    def upgrade_database(tx: Tx, caller: Caller, name: str, body: ChangeTierInput) -> DatabaseDetail:
        """Change the tier of a database: the former name of `change-tier`."""
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
