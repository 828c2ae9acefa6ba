"""Runs statements of users on running databases, one thread per statement, with limits."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import NamedTuple, TypeVar

from moorage.core.audit import service as audit
from moorage.core.audit.service import Actor
from moorage.core.db.store import Database as Store
from moorage.core.db.tx import Tx
from moorage.errors import BadRequest, Conflict, NotFound, RateLimited
from moorage.products.databases import service
from moorage.products.databases.servers import Servers, primary_of, read_secrets
from moorage.products.databases.states import DatabaseStatus
from moorage.products.databases.tables import Database
from moorage.products.databases.threads import SingleCallThread
from moorage.runtime.database_servers.ports import READER, Access, Credentials, ServerFailed
from moorage.runtime.database_servers.queries import statements
from moorage.runtime.database_servers.queries.model import (
    KILL_AFTER_S,
    QueryRunner,
    Result,
    StatementFailed,
    TableDetail,
    TableSummary,
    Watchdog,
)

MAX_PER_DATABASE = 3  # statements at once: a page of the console sends a few
MAX_PER_ORGANIZATION = 6
MAX_ON_MACHINE = 16  # each has a thread and up to a row of MAX_ROW_BYTES in memory
MAX_FIRST = 32  # Beyond MAX_ON_MACHINE an organization runs one statement, so that others cannot take all places.
ANSWER_TIMEOUT_S = KILL_AFTER_S + 10  # for a server that accepts no connections

T = TypeVar("T")


class Target(NamedTuple):
    """A running database with its logins."""

    database: Database
    access: Access
    credentials: Credentials
    runner: QueryRunner


class Places:
    """Statements that run at once."""

    def __init__(self) -> None:
        self._by_database: Counter[int] = Counter()
        self._by_organization: Counter[int] = Counter()

    @contextmanager
    def hold(self, org_id: int, database_id: int) -> Iterator[None]:
        """Count a statement; raises RateLimited."""
        own, total = self._by_organization[org_id], self._by_organization.total()
        has_room = total < MAX_ON_MACHINE or (own == 0 and total < MAX_FIRST)
        if self._by_database[database_id] >= MAX_PER_DATABASE or own >= MAX_PER_ORGANIZATION or not has_room:
            raise RateLimited("Too many statements run at once; try again when one has ended")
        held = ((self._by_database, database_id), (self._by_organization, org_id))
        for counter, key in held:
            counter[key] += 1
        try:
            yield
        finally:
            for counter, key in held:
                counter[key] -= 1
                if not counter[key]:
                    del counter[key]


class Queries:
    def __init__(self, db: Store, servers: Servers) -> None:
        self._db = db
        self._servers = servers
        self._places = Places()

    async def run(self, org_id: int, actor: Actor, name: str, sql: str, *, may_write: bool) -> tuple[Result, int]:
        """Run one statement; return its result and its time in ms. The audit log has it before it runs."""

        def begin(tx: Tx) -> Target:
            target = self._target(tx, org_id, name)
            action = "database.query_written" if may_write else "database.query_read"
            shown = statements.for_audit(sql)
            audit.record(tx, org_id, actor, action, service.target_of(target.database), statement=shown)
            return target

        target, started = await self._db.write(begin), time.monotonic()
        call = partial(target.runner.run, target.access, target.credentials, sql, may_write=may_write)
        result = await self._call(target, lambda watchdog: call(watchdog=watchdog))
        return result, round((time.monotonic() - started) * 1000)

    async def tables(self, org_id: int, name: str) -> list[TableSummary]:
        target = await self._db.read(lambda tx: self._target(tx, org_id, name))
        return await self._call(target, partial(target.runner.tables, target.access, target.credentials))

    async def table(self, org_id: int, name: str, schema: str, table: str) -> TableDetail:
        target = await self._db.read(lambda tx: self._target(tx, org_id, name))
        look = partial(target.runner.find_table, target.access, target.credentials, schema, table)
        found = await self._call(target, look)
        if found is None:
            raise NotFound("There is no such table")
        return found

    def _target(self, tx: Tx, org_id: int, name: str) -> Target:
        database = service.get(tx, org_id, name)
        primary = primary_of(tx, org_id, database.id)
        if database.status != DatabaseStatus.RUNNING or primary is None:
            raise Conflict(f"The database is {database.status}; this needs one that is running")
        if database.username == READER and database.engine == "mysql":  # from before the name was reserved
            raise Conflict(f"The database's user is named {READER}, which the platform needs for this")
        secrets = read_secrets(tx, org_id, database)
        access = self._servers.host.access(database, primary, secrets)
        return Target(database, access, secrets.credentials, self._servers.host.runner(database))

    async def _call(self, target: Target, call: Callable[[Watchdog], T]) -> T:
        """Call a runner in a thread; a cancelled request ends its statement."""
        watchdog = Watchdog()
        with self._places.hold(target.database.org_id, target.database.id):
            try:
                return await SingleCallThread().run(partial(call, watchdog), ANSWER_TIMEOUT_S)
            except StatementFailed as error:
                raise _refusal(error) from None
            except (ServerFailed, TimeoutError):
                raise Conflict("The database does not answer now; try again in a moment") from None
            except asyncio.CancelledError:
                await asyncio.get_running_loop().run_in_executor(None, watchdog.fire)
                raise


def _refusal(error: StatementFailed) -> BadRequest:
    """Return the server's error: its text for `sql`, with SQLSTATE and position if it has them."""
    text = error.message[:1].upper() + error.message[1:]
    fields = {"sql": text}
    if error.state is not None:
        fields["sqlState"] = error.state
    if error.position is not None:
        fields["position"] = str(error.position)
    return BadRequest(text, fields=fields)
