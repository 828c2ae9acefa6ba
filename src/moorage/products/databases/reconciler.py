"""Starts the servers of running databases and stops those of stopped ones.

The shim restarts a server that exits. The reconciler handles all other cases: a reboot, a killed shim, a server that
failed to start. It ignores databases that a job is changing. The replicator starts servers of replicated databases.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import defaultdict
from collections.abc import Callable
from functools import partial

from moorage.accounts.plans import service as plans
from moorage.accounts.plans.service import Standing
from moorage.core.db.scope import across_organizations
from moorage.core.db.store import Database as Store
from moorage.core.db.tx import Tx, move
from moorage.core.machines import service as machines
from moorage.core.reconciler.rounds import Rounds
from moorage.core.telemetry import Telemetry
from moorage.errors import IllegalMove
from moorage.products.databases import service, tables
from moorage.products.databases.backups import service as backups
from moorage.products.databases.hosts.ports import FolderGone
from moorage.products.databases.moving import service as moving
from moorage.products.databases.servers import Servers, set_server
from moorage.products.databases.states import DATABASE, DatabaseStatus
from moorage.products.databases.tables import Database, Server
from moorage.runtime.database_servers.ports import ServerFailed
from moorage.runtime.engines.ports import Agents, CannotStart, ReplicaState

ROUND_INTERVAL_S = 2.0
PLAN_CHECK_INTERVAL_S = 60.0
START_BACKOFF_S = (1.0, 2.0, 5.0, 10.0, 30.0, 60.0)
MAKES_SPARE = "spare"  # key of the task that makes a spare data folder
NOT_CREATED = (DatabaseStatus.PENDING, DatabaseStatus.QUEUED)
DOWN = (DatabaseStatus.STOPPED, DatabaseStatus.FAILED)
UNPAID = "its tier is not part of the organization's plan; it is started again when it is"

View = list[tuple[Database, list[Server]]]


class DatabaseReconciler:
    def __init__(self, db: Store, servers: Servers, telemetry: Telemetry) -> None:
        self._db = db
        self._servers = servers
        self.rounds = Rounds(telemetry, "databases", ROUND_INTERVAL_S, db.commits)
        self.wake = self.rounds.wake
        self._backoffs: dict[int, tuple[int, float]] = {}  # by server: failed starts, and time of the next attempt
        self._restarts: dict[int, int] = {}  # by server: restarts by its shim
        self._plans_checked_at = float("-inf")

    async def adopt(self) -> None:
        """Adopt running servers. Called once, before the first round."""
        await self._db.write(partial(claim, has_folder=lambda each: self._servers.root(each.id).is_dir()))
        if (agents := self._servers.agents) is not None:
            await self._db.write(partial(moving.begin_all, agents=agents))
        all_servers = await self._db.read(view)
        engine = self._servers.engine
        await engine.adopt({server.key: server.token for _, servers in all_servers for server in servers})
        engine.listen(lambda _: self.wake())
        # Fills the cache, so that no request waits for the `--version` of database programs.
        await asyncio.to_thread(self._servers.catalog.installed)
        in_use = set() if self._servers.host.has_agents else _software_of(all_servers)
        await asyncio.to_thread(self._servers.spares.keep_only, in_use)

    async def run(self) -> None:
        await self.rounds.run(self.round)

    async def round(self) -> bool:
        """Compare wanted and actual servers, and begin starts and stops.

        Returns whether all servers are as wanted. The engine reports a server that ends.
        """
        loop = asyncio.get_running_loop()
        if loop.time() - self._plans_checked_at > PLAN_CHECK_INTERVAL_S:
            self._plans_checked_at = loop.time()
            await self._db.write(partial(enforce_plans, agents=self._servers.agents))
        states = self._servers.engine.states()
        all_databases = await self._db.read(view)
        is_settled = True
        for database, servers in all_databases:
            for server in servers:
                if server.key not in self.rounds.tasks:
                    await self._reconcile(database, server, states.get(server.key))
                is_settled &= (server.key in states) == (database.status == DatabaseStatus.RUNNING)
        self._make_spares(_software_of(all_databases))
        return is_settled and not self.rounds.tasks

    async def _reconcile(self, database: Database, server: Server, state: ReplicaState | None) -> None:
        if state is not None:
            self._restarts[server.id] = state.restarts
            if database.status in DOWN or database.deleted_at is not None:
                self.rounds.begin(server.key, partial(self._servers.stop, server))
            elif database.status == DatabaseStatus.RUNNING:
                # The platform may have exited after the start and before the CPU limit.
                await self._servers.limit(database, server)
                await self._note_trouble(database, server, state)
        elif database.status == DatabaseStatus.RUNNING and not database.is_replicated and self._may_start(server):
            self.rounds.begin(server.key, partial(self._start, database, server))

    async def _note_trouble(self, database: Database, server: Server, state: ReplicaState) -> None:
        """Show why an engine with agents cannot run a server now, such as a node without room, until it runs again."""
        if not self._servers.host.has_agents:
            return
        is_troubled = state.phase in ("starting", "waiting") and state.reason is not None
        if is_troubled and server.reason != state.reason:
            why = str(state.reason)
            await self._db.write(partial(_set_reason, org_id=database.org_id, server=server, why=why))
        elif state.phase == "running" and server.reason is not None:
            await self._db.write(partial(_clear_reason, org_id=database.org_id, server=server))

    def _make_spares(self, names: set[str]) -> None:
        """Prepare the data folder of the next database, for software that is in use."""
        for name in names:
            if MAKES_SPARE not in self.rounds.tasks and (software := self._servers.lacks_spare(name)) is not None:
                self.rounds.begin(MAKES_SPARE, partial(self._servers.make_spare, software))

    def _may_start(self, server: Server) -> bool:
        _, until = self._backoffs.get(server.id, (0, 0.0))
        return asyncio.get_running_loop().time() >= until

    async def _start(self, database: Database, server: Server) -> None:
        """Start a missing server and count it as a restart."""
        tries, _ = self._backoffs.get(server.id, (0, 0.0))
        try:
            await self._servers.start(database, server)
        except FolderGone as error:
            await self._db.write(partial(_fail, org_id=database.org_id, database=database, why=str(error)))
        except (CannotStart, ServerFailed, OSError) as error:
            pause = START_BACKOFF_S[min(tries, len(START_BACKOFF_S) - 1)]
            self._backoffs[server.id] = (tries + 1, asyncio.get_running_loop().time() + pause)
            await self._db.write(partial(_set_reason, org_id=database.org_id, server=server, why=str(error)))
        else:
            self._backoffs.pop(server.id, None)
            seen = server.restarts + self._restarts.pop(server.id, 0)
            await self._db.write(partial(_count_restart, org_id=database.org_id, server=server, seen=seen))


@across_organizations("a machine runs databases of all organizations")
def view(tx: Tx) -> View:
    """Return the databases of this machine with their servers."""
    grouped, mine = defaultdict(list), tx.env.machine.id
    for server in tx.all(tables.SERVERS_OF_MACHINE, machine_id=mine):
        grouped[server.database_id].append(server)
    return [(database, grouped[database.id]) for database in tx.all(tables.OF_MACHINE, machine_id=mine)]


@across_organizations("a machine runs databases of all organizations")
def claim(tx: Tx, has_folder: Callable[[Database], bool]) -> None:
    """Become the owner of databases from before machines had rows, if their data is in this data folder."""
    mine = tx.env.machine.id
    for database in tx.all(tables.OF_MACHINE, machine_id=machines.UNOWNED) if mine else ():
        if tx.dialect == "sqlite" or database.status in NOT_CREATED or has_folder(database):
            of = {"org_id": database.org_id, "machine_id": mine}
            tx.run(tables.CLAIM, id=database.id, **of)
            tx.run(tables.CLAIM_SERVERS, database_id=database.id, **of)
            for key in (service.key_of(database.id), backups.job_key(database)):
                tx.run(tables.CLAIM_JOBS, key=key, machine_id=mine)


def _software_of(databases: View) -> set[str]:
    return {database.software for database, _ in databases if database.software}


@across_organizations("each plan is looked at")
def enforce_plans(tx: Tx, agents: Agents | None = None) -> None:
    """Stop databases with an unpaid tier, and start them again once it is paid."""
    for database, plan, card_verified in tx.all(tables.WITH_PLANS):
        is_paid = not database.tier.paid or plans.counts_as_paid(tx.env.settings, Standing(plan, card_verified))
        if database.status == DatabaseStatus.RUNNING and not is_paid:
            move(tx, DATABASE, database, to=DatabaseStatus.STOPPED, status_reason=UNPAID)
        elif database.status == DatabaseStatus.STOPPED and database.status_reason == UNPAID and is_paid:
            move(tx, DATABASE, database, to=DatabaseStatus.RUNNING, status_reason=None)
    if agents is not None:
        moving.begin_all(tx, agents)  # One that was stopped when its platform moved to the cluster.


def _fail(tx: Tx, org_id: int, database: Database, why: str) -> None:
    with contextlib.suppress(IllegalMove):
        move(tx, DATABASE, database, to=DatabaseStatus.FAILED, status_reason=why)


def _set_reason(tx: Tx, org_id: int, server: Server, why: str) -> None:
    set_server(tx, org_id, server, "reason", why)
    database = service.find_by_id(tx, org_id, server.database_id)
    if database is not None and database.status == DatabaseStatus.RUNNING:
        service.set_column(tx, org_id, database, "status_reason", why)


def _count_restart(tx: Tx, org_id: int, server: Server, seen: int) -> None:
    set_server(tx, org_id, server, "restarts", max(server.seen_restarts, seen) + 1)
    _clear_reason(tx, org_id, server)


def _clear_reason(tx: Tx, org_id: int, server: Server) -> None:
    database = service.find_by_id(tx, org_id, server.database_id)
    if server.reason is not None and database is not None and database.status_reason == server.reason:
        service.set_column(tx, org_id, database, "status_reason", None)
    set_server(tx, org_id, server, "reason", None)
