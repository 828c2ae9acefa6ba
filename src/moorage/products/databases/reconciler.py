"""Keeps the servers of running databases running, and those of stopped ones down.

What ends by itself is started again at once by what watches over it; this is for what that does not see: a machine
that was started anew, a supervisor process that was killed, a server that could not be started a moment ago. While a
job changes a database its servers are the job's. A pair of servers is looked after by the replicator.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import defaultdict
from functools import partial

from moorage.accounts.plans import service as plans
from moorage.accounts.plans.service import Standing
from moorage.core.db.scope import across_organizations
from moorage.core.db.store import Database as Store
from moorage.core.db.tx import Tx, move
from moorage.core.reconciler.rounds import Rounds
from moorage.core.telemetry import Telemetry
from moorage.errors import IllegalMove
from moorage.products.databases import service, tables
from moorage.products.databases.servers import FolderGone, Servers, set_server
from moorage.products.databases.states import DATABASE, DatabaseStatus
from moorage.products.databases.tables import Database, Server
from moorage.runtime.database_servers.ports import ServerFailed
from moorage.runtime.engines.ports import CannotStart, ReplicaState

ROUND_S = 2.0
BILLING_S = 60.0
START_AGAIN_S = (1.0, 2.0, 5.0, 10.0, 30.0, 60.0)
DOWN = (DatabaseStatus.STOPPED, DatabaseStatus.FAILED)
UNPAID = "its tier is not part of the organization's plan; it is started again when it is"

View = list[tuple[Database, list[Server]]]


class Keeper:
    def __init__(self, db: Store, servers: Servers, telemetry: Telemetry) -> None:
        self._db = db
        self._servers = servers
        self.rounds = Rounds(telemetry, "databases", ROUND_S)
        self.wake = self.rounds.wake  # has everything looked at again, soon
        self._pauses: dict[int, tuple[int, float]] = {}  # by server: how often it could not be started, and until when
        self._restarts: dict[int, int] = {}  # by server: how often what watches over it has started it again
        self._billed_at = float("-inf")

    async def adopt(self) -> None:
        """Find what runs already. Called once, before anything else."""
        seen = await self._db.read(view)
        engine = self._servers.engine
        await engine.adopt({server.key: server.token for _, servers in seen for server in servers})
        engine.listen(lambda _: self.wake())
        # What runs on one of them must not be asked for while a request waits.
        await asyncio.to_thread(self._servers.shelf.installed)

    async def run(self) -> None:
        await self.rounds.run(self.round)

    async def round(self) -> None:
        """Compare what should run with what does, and begin whatever brings them together."""
        loop = asyncio.get_running_loop()
        if loop.time() - self._billed_at > BILLING_S:
            self._billed_at = loop.time()
            await self._db.write(level_with_plans)
        states = self._servers.engine.states()
        for found, servers in await self._db.read(view):
            for server in servers:
                if server.key not in self.rounds.tasks:
                    await self._level(found, server, states.get(server.key))

    async def _level(self, found: Database, server: Server, state: ReplicaState | None) -> None:
        if state is not None:
            self._restarts[server.id] = state.restarts
            if found.status in DOWN or found.deleted_at is not None:
                self.rounds.begin(server.key, partial(self._servers.stop, server))
            elif found.status == DatabaseStatus.RUNNING:
                # The platform may have ended after it was started, and before it was limited.
                await self._servers.limit(found, server)
        elif found.status == DatabaseStatus.RUNNING and not found.is_replicated and self._may_start(server):
            self.rounds.begin(server.key, partial(self._start, found, server))

    def _may_start(self, server: Server) -> bool:
        _, until = self._pauses.get(server.id, (0, 0.0))
        return asyncio.get_running_loop().time() >= until

    async def _start(self, found: Database, server: Server) -> None:
        """Start a server that has gone. It counts as a restart."""
        tries, _ = self._pauses.get(server.id, (0, 0.0))
        try:
            await self._servers.start(found, server)
        except FolderGone as error:
            await self._db.write(partial(_fail, org_id=found.org_id, found=found, why=str(error)))
        except (CannotStart, ServerFailed, OSError) as error:
            pause = START_AGAIN_S[min(tries, len(START_AGAIN_S) - 1)]
            self._pauses[server.id] = (tries + 1, asyncio.get_running_loop().time() + pause)
            await self._db.write(partial(_note, org_id=found.org_id, server=server, why=str(error)))
        else:
            self._pauses.pop(server.id, None)
            seen = server.restarts + self._restarts.pop(server.id, 0)
            await self._db.write(partial(_count_restart, org_id=found.org_id, server=server, seen=seen))


@across_organizations("one machine runs everybody's databases")
def view(tx: Tx) -> View:
    """Return every database with its servers."""
    grouped = defaultdict(list)
    for server in tx.all(tables.EVERY_SERVER):
        grouped[server.database_id].append(server)
    return [(found, grouped[found.id]) for found in tx.all(tables.EVERY)]


@across_organizations("each plan is looked at")
def level_with_plans(tx: Tx) -> None:
    """Stop the databases whose tier is not paid for, and let those run again that are."""
    for found, plan, card_verified in tx.all(tables.WITH_PLANS):
        is_paid = not found.tier.paid or plans.counts_as_paid(tx.env.settings, Standing(plan, card_verified))
        if found.status == DatabaseStatus.RUNNING and not is_paid:
            move(tx, DATABASE, found, to=DatabaseStatus.STOPPED, status_reason=UNPAID)
        elif found.status == DatabaseStatus.STOPPED and found.status_reason == UNPAID and is_paid:
            move(tx, DATABASE, found, to=DatabaseStatus.RUNNING, status_reason=None)


def _fail(tx: Tx, org_id: int, found: Database, why: str) -> None:
    with contextlib.suppress(IllegalMove):
        move(tx, DATABASE, found, to=DatabaseStatus.FAILED, status_reason=why)


def _note(tx: Tx, org_id: int, server: Server, why: str) -> None:
    set_server(tx, org_id, server, "reason", why)
    found = service.find_by_id(tx, org_id, server.database_id)
    if found is not None and found.status == DatabaseStatus.RUNNING:
        service.set_column(tx, org_id, found, "status_reason", why)


def _count_restart(tx: Tx, org_id: int, server: Server, seen: int) -> None:
    set_server(tx, org_id, server, "restarts", max(server.seen_restarts, seen) + 1)
    found = service.find_by_id(tx, org_id, server.database_id)
    if server.reason is not None and found is not None and found.status_reason == server.reason:
        service.set_column(tx, org_id, found, "status_reason", None)
    set_server(tx, org_id, server, "reason", None)
