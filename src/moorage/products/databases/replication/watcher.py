"""Reconciles databases with a primary and a replica, and fails over between them.

No acknowledged transaction is lost with one server, and the address of the database stays the same:

- Commits wait for the replica while its row is `in_sync`. If the replica is unavailable for some seconds, the row is
  changed first, and only then does the primary commit without it.
- A primary that does not come back is fenced: first in its row, so that it is never started again, then its process is
  killed. Only then is the replica promoted, and only if it is `in_sync`.

Level-triggered: each check compares rows with running servers and does the next step. The platform may exit after any
step, and the next check continues from there.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

from moorage.core.db.store import Database as Store
from moorage.core.db.tx import Tx, move
from moorage.core.kit import folders
from moorage.core.reconciler.rounds import Rounds
from moorage.core.telemetry import Telemetry
from moorage.errors import IllegalMove
from moorage.products.databases.hosts.ports import FolderGone
from moorage.products.databases.replication import tables as rows
from moorage.products.databases.replication.tables import Pair
from moorage.products.databases.servers import Servers, forget_server, servers_of
from moorage.products.databases.states import DATABASE, DatabaseStatus
from moorage.products.databases.tables import Database, Server
from moorage.runtime.database_servers.ports import SCRATCH_PORT, Access, Primary, ServerFailed
from moorage.runtime.database_servers.replication import Replication, replication_of
from moorage.runtime.database_servers.server_folders import SUPERSEDED, mark_superseded
from moorage.runtime.database_servers.tools import in_thread
from moorage.runtime.engines.ports import CannotStart

P = ParamSpec("P")
T = TypeVar("T")
A = TypeVar("A")

ROUND_INTERVAL_S = 1.0
PING_TIMEOUT_S = 2.0
FAILOVER_AFTER_S = 3.0  # The shim usually restarts a server within half a second.
REPLICA_GRACE_S = 5.0  # time for which commits wait for an unavailable replica
REBUILD_AFTER_S = 60.0  # A replica that runs, but does not replicate for so long, is rebuilt.
TRIM_INTERVAL_S = 60.0
RETRY_BACKOFF_S = (1.0, 2.0, 5.0, 10.0, 30.0, 60.0)
STOP_GRACE_S = 30.0
FIRST_SYNC_TIMEOUT_S = 60.0  # for a new replica to start replicating
CANCEL_POLL_INTERVAL_S = 0.1
STARTS, MAKES = "starts", "makes"  # names of background tasks
LAGS = "its primary does not run, and its replica lacks some of the last changes and is not put in its place"
Listener = Callable[[Tx, int, Database], None]
Failures = (CannotStart, ServerFailed, OSError)


class Replicator:
    def __init__(self, db: Store, servers: Servers, telemetry: Telemetry) -> None:
        self._db = db
        self._servers = servers
        self._telemetry = telemetry
        self._locks: defaultdict[int, asyncio.Lock] = defaultdict(asyncio.Lock)  # by database
        self._checks: dict[int, asyncio.Task[None]] = {}  # by database
        self._tasks: dict[int, asyncio.Task[None]] = {}  # by server: task that starts or creates it
        self._failures: dict[int, tuple[int, float]] = {}  # by server: failed tasks, and time of the next attempt
        self._down_since: dict[int, float] = {}  # by server: a primary does not answer, or a replica not replicate
        self._trimmed: dict[int, float] = {}  # by database
        self.on_promoted: list[Listener] = []  # called in the transaction that promotes a replica

    # Checks.

    async def run(self) -> None:
        try:
            await Rounds(self._telemetry, "replication", ROUND_INTERVAL_S, self._db.commits).run(self.round)
        finally:
            await self.close()

    async def round(self) -> bool:
        """Begin a check of each database that has none in progress; True without any database."""
        databases = await self._db.read(rows.running_pairs)
        for database in databases:
            if database.id not in self._checks:
                self._checks[database.id] = asyncio.create_task(self._check_safely(database))
        return not databases and not self._checks

    async def close(self) -> None:
        """Cancel all tasks; the next control process repeats them."""
        tasks = [*self._checks.values(), *self._tasks.values()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _check_safely(self, database: Database) -> None:
        try:
            await self.check(database)
        except Exception as error:  # noqa: BLE001 - an error of one database must not stop the others
            self._telemetry.crashed(None, error, where=f"replication of database {database.id}")
        finally:
            self._checks.pop(database.id, None)

    async def check(self, database: Database) -> None:
        """Do the next step for a database. Does nothing while a job changes it."""
        async with self._locks[database.id]:
            pair = await self._read(database)
            if pair is None or not pair.is_running:
                return
            try:
                await self._step(pair)
            except Failures as error:
                await self._set_reason(pair.primary or pair.replica, str(error))

    async def _step(self, pair: Pair) -> None:
        if pair.fenced is not None:
            await self._switch(pair)
        elif pair.primary is None:
            raise CannotStart("it has no primary")
        elif await self._answers(pair.database, pair.primary):
            self._set_healthy(pair.primary)
            await self._set_reason(pair.primary, None)
            try:
                await self._reconcile_replica(pair, pair.primary)
            except Failures as error:
                await self._set_reason(pair.replica, str(error))
        else:
            await self._recover_primary(pair, pair.primary)

    @asynccontextmanager
    async def exclusive(self, database: Database) -> AsyncIterator[None]:
        """Suspend checks while a job changes the servers; ends a failover and tasks first."""
        async with self._locks[database.id]:
            pair = await self._read(database)
            if pair is not None:
                if pair.fenced is not None:
                    await self._switch(pair)
                for server in (pair.primary, pair.replica):
                    await self._cancel_task(server)
            yield

    # The primary.

    async def _recover_primary(self, pair: Pair, primary: Server) -> None:
        """Start a primary that does not answer; fails over if it does not come back."""
        since = self._down_since.setdefault(primary.id, self._now())
        is_gone = await self._is_folder_gone(pair.database, primary)
        is_late = self._now() - since >= FAILOVER_AFTER_S
        if (is_late or is_gone or primary.id in self._failures) and await self._fail_over(pair):
            return
        if not is_gone:
            await self._ensure_started(pair.database, primary)
        elif is_late and (pair.replica is None or not pair.replica.in_sync):
            await self._fail_database(pair, primary)

    async def _fail_over(self, pair: Pair) -> bool:
        """Replace the primary with its replica, if that is in sync and answers."""
        replica = pair.replica
        if replica is None or not replica.in_sync:
            await self._set_reason(pair.primary, LAGS)
            return False
        if not await self._answers(pair.database, replica):
            await self._ensure_started(pair.database, replica)
            return False
        if not await self._write(rows.fence, pair.database, pair):
            return False
        fenced = await self._read(pair.database)
        if fenced is not None:
            await self._switch(fenced)
        return True

    async def _switch(self, pair: Pair) -> None:
        """Promote the replica of a fenced primary, after killing that primary."""
        old, replica, database = pair.fenced, pair.replica, pair.database
        assert old is not None
        assert replica is not None
        await self._cancel_task(old)
        await self._servers.stop(old, grace_s=0.0)
        await self._cancel_task(replica)
        await self._servers.start(database, replica)
        access = await self._servers.access(database, replica)
        await in_thread(self._replication(database).promote, access)
        folder = self._servers.folder(database.id, old.folder)
        await asyncio.to_thread(mark_superseded, folder, self._db.env.clock.now())
        await self._write(self._promote_replica, database, pair)
        self._telemetry.log.warning("database promoted", database=database.id, server=replica.id, instead_of=old.id)
        now = await self._read(database)
        if now is not None and now.primary is not None:
            await self._ensure_port(now.primary)
            await self._servers.start(database, now.primary)

    def _promote_replica(self, tx: Tx, org_id: int, pair: Pair) -> None:
        rows.promote_replica(tx, org_id, pair)
        for listener in self.on_promoted:
            listener(tx, org_id, pair.database)

    async def _ensure_port(self, server: Server) -> None:
        """Stop a promoted server that still listens on its former port."""
        state = self._servers.engine.states().get(server.key)
        if state is not None and state.address != server.address:
            await self._servers.stop(server, STOP_GRACE_S)

    async def _fail_database(self, pair: Pair, primary: Server) -> None:
        why = "the data folder of its primary is gone, and its replica lacks some of the last changes"
        self._set_healthy(primary)

        def fail(tx: Tx, org_id: int, database: Database) -> None:
            with contextlib.suppress(IllegalMove):
                move(tx, DATABASE, database, to=DatabaseStatus.FAILED, status_reason=why)

        await self._write(fail, pair.database, pair.database)

    # The replica.

    async def _reconcile_replica(self, pair: Pair, primary: Server) -> None:
        database, replica = pair.database, pair.replica
        if replica is None:
            replica = await self._write(rows.ensure_replica, database, database)
        if replica.id in self._tasks:
            await self._stop_waiting_if_late(database, primary, replica)
        elif await self._is_folder_gone(database, replica):
            await self._stop_waiting(database, primary, replica)
            self._begin(replica, self._make(database, primary, replica), can_be_cancelled=True)
        elif await self._follows(database, primary, replica):
            await self._ensure_in_sync(database, primary, replica)
        else:
            await self._stop_waiting_if_late(database, primary, replica)
            await self._repair_replica(pair, primary, replica)

    async def _ensure_in_sync(self, database: Database, primary: Server, replica: Server) -> None:
        self._set_healthy(replica)
        kind = self._replication(database)
        to_primary, to_replica = await self._accesses(database, primary, replica)
        if not replica.in_sync:
            await self._wait_for_replica(database, primary, replica)
        elif not await in_thread(kind.is_awaited, to_primary, replica.id):
            await self._stop_waiting(database, primary, replica)
        elif self._now() - self._trimmed.get(database.id, float("-inf")) > TRIM_INTERVAL_S:
            self._trimmed[database.id] = self._now()
            await in_thread(kind.trim, to_primary, to_replica)

    async def _wait_for_replica(self, database: Database, primary: Server, replica: Server) -> None:
        """Make commits wait for the replica; sets `in_sync` after it has caught up."""
        kind = self._replication(database)
        to_primary, to_replica = await self._accesses(database, primary, replica)
        try:
            await in_thread(kind.await_replica, to_primary, to_replica, replica.id)
        except BaseException:
            with contextlib.suppress(ServerFailed):
                await in_thread(kind.go_alone, to_primary)
            raise
        await self._write(partial(rows.set_in_sync, in_sync=True), database, replica)
        await self._set_reason(replica, None)

    async def _stop_waiting(self, database: Database, primary: Server, replica: Server) -> None:
        """Clear `in_sync` of the replica, then let the primary commit without it."""
        if replica.in_sync:
            await self._write(partial(rows.set_in_sync, in_sync=False), database, replica)
        kind, access = self._replication(database), await self._servers.access(database, primary)
        if replica.in_sync or await in_thread(kind.is_awaited, access, replica.id):
            await in_thread(kind.go_alone, access)

    async def _stop_waiting_if_late(self, database: Database, primary: Server, replica: Server) -> None:
        """Stop commits from waiting for a replica that is unavailable for REPLICA_GRACE_S."""
        if self._now() - self._down_since.setdefault(replica.id, self._now()) > REPLICA_GRACE_S:
            await self._stop_waiting(database, primary, replica)

    async def _repair_replica(self, pair: Pair, primary: Server, replica: Server) -> None:
        """Start a replica and resume replication; rebuilt after REBUILD_AFTER_S."""
        if not await self._answers(pair.database, replica):
            await self._ensure_started(pair.database, replica)
            return
        try:
            access = await self._servers.access(pair.database, replica)
            await in_thread(self._replication(pair.database).follow, access)
        except ServerFailed as error:
            await self._set_reason(replica, str(error))
        if self._now() - self._down_since[replica.id] > REBUILD_AFTER_S:
            await self._dismiss(pair.database, primary, replica)

    async def _ensure_started(self, database: Database, server: Server) -> None:
        if server.id in self._tasks:
            return
        await self._ensure_port(server)
        if server.key not in self._servers.engine.states():
            self._begin(server, self._start(database, server))

    # Creating a replica.

    async def seed(self, database: Database) -> None:
        """Create a replica and wait until it is in sync; for jobs. Safe to repeat."""
        async with self._locks[database.id]:
            replica = await self._write(rows.ensure_replica, database, database)
            pair = await self._read(database)
            if pair is None or pair.primary is None:
                raise CannotStart("it has no primary")
            if await self._is_folder_gone(database, replica):
                await self._make(database, pair.primary, replica)
            await self._servers.start(database, replica, new=self._servers.software(database))
            await self._until_following(database, pair.primary, replica)
            if not replica.in_sync:
                await self._wait_for_replica(database, pair.primary, replica)
            await self._servers.limit(database, replica)

    async def dismiss(self, database: Database) -> None:
        """Remove the replica, before a restore replaces the data of its primary."""
        async with self._locks[database.id]:
            pair = await self._read(database)
            if pair is not None and pair.replica is not None:
                await self._dismiss(database, pair.primary, pair.replica)

    async def _dismiss(self, database: Database, primary: Server | None, replica: Server) -> None:
        await self._cancel_task(replica)
        await self._write(forget_server, database, replica)
        await self._servers.stop(replica, grace_s=0.0)
        if primary is not None and await self._answers(database, primary):
            access = await self._servers.access(database, primary)
            await in_thread(self._replication(database).go_alone, access)
        await asyncio.to_thread(folders.remove, self._servers.folder(database.id, replica.folder))
        self._set_healthy(replica)

    async def _make(self, database: Database, primary: Server, replica: Server) -> None:
        """Copy the primary into a temporary folder, and rename it to the replica's folder."""
        target, kind = self._servers.folder(database.id, replica.folder), self._replication(database)
        temporary = target.with_name(f".{replica.folder}.new")
        software, access = self._servers.software(database), await self._servers.access(database, primary)
        await self._servers.stop(replica, grace_s=0.0)  # It may still run on a deleted folder.
        await self._servers.end_scratch(database, temporary)
        used = {
            server.folder for server in await self._db.read(lambda tx: servers_of(tx, database.org_id, database.id))
        }
        await asyncio.to_thread(self._make_empty, database, used, temporary)
        await in_thread(kind.copy, software, access, temporary, replica.id)
        if kind.needs_loading:
            await self._load(database, replica, temporary)
        await asyncio.to_thread(self._servers.seal, database.id, temporary)
        await asyncio.to_thread(temporary.rename, target)

    async def _load(self, database: Database, replica: Server, folder: Path) -> None:
        replica_options = await self._servers.options(database, replica)
        options = dataclasses.replace(replica_options, port=SCRATCH_PORT, is_open=False, primary=None)
        primary = Primary(database.address, (await self._servers.secrets(database)).replica)
        software = self._servers.software(database)
        async with self._servers.scratch(database, folder, options) as access:
            await in_thread(self._servers.kind(database).set_admin_password, software, access)
            await in_thread(self._replication(database).load, software, access, primary)

    def _make_empty(self, database: Database, used: set[str], folder: Path) -> None:
        """Create an empty folder, and delete folders of replicas without a row."""
        for leftover in (*folder.parent.glob(f"{rows.FOLDER}*"), *folder.parent.glob(f".{rows.FOLDER}*.new")):
            if leftover.name not in used and not (leftover / SUPERSEDED).exists():
                folders.remove(leftover)
        folder.mkdir(mode=0o700)
        self._servers.own(database.id, folder)

    async def _until_following(self, database: Database, primary: Server, replica: Server) -> None:
        deadline = self._now() + FIRST_SYNC_TIMEOUT_S
        while not await self._follows(database, primary, replica):
            if self._now() > deadline:
                raise CannotStart("its replica does not follow")
            access = await self._servers.access(database, replica)
            await in_thread(self._replication(database).follow, access)
            await asyncio.sleep(0.1)

    # Background tasks.

    def _begin(self, server: Server, work: Coroutine[Any, Any, None], *, can_be_cancelled: bool = False) -> None:
        """Begin a task for a server, unless it is backing off after a failure."""
        tries, until = self._failures.get(server.id, (0, 0.0))
        if self._now() < until:
            work.close()
            return

        async def run() -> None:
            try:
                await work
                self._failures.pop(server.id, None)
            except Failures as error:
                pause = RETRY_BACKOFF_S[min(tries, len(RETRY_BACKOFF_S) - 1)]
                self._failures[server.id] = (tries + 1, self._now() + pause)
                await self._set_reason(server, str(error))
            except Exception as error:  # noqa: BLE001 - no caller awaits the task, so it is logged here
                self._telemetry.crashed(None, error, where=f"replication of database {server.database_id}")
            finally:
                self._tasks.pop(server.id, None)

        task = asyncio.create_task(run(), name=MAKES if can_be_cancelled else STARTS)
        self._tasks[server.id] = task

    async def _cancel_task(self, server: Server | None) -> None:
        """End the task of a server; does not cancel a start, which may leave a process.

        Instead the server is stopped until its start has failed.
        """
        task = self._tasks.get(server.id) if server is not None else None
        if task is None or server is None:
            return
        if task.get_name() == MAKES:
            task.cancel()
        while not task.done():
            if task.get_name() == STARTS:
                await self._servers.stop(server, grace_s=0.0)
            await asyncio.wait({task}, timeout=CANCEL_POLL_INTERVAL_S)

    async def _start(self, database: Database, server: Server) -> None:
        await self._servers.start(database, server)
        await self._write(rows.count_restart, database, server)

    # Observing.

    async def _answers(self, database: Database, server: Server) -> bool:
        """Tell whether a server has its folder and accepts connections on its port."""
        state = self._servers.engine.states().get(server.key)
        if state is None or state.address != server.address or await self._is_folder_gone(database, server):
            return False
        access = await self._servers.access(database, server)
        return await self._query(self._servers.kind(database).ping, access)

    async def _follows(self, database: Database, primary: Server, replica: Server) -> bool:
        if not await self._answers(database, replica):
            return False
        to_primary, to_replica = await self._accesses(database, primary, replica)
        return await self._query(self._replication(database).is_following, to_primary, to_replica, replica.id)

    async def _accesses(self, database: Database, primary: Server, replica: Server) -> tuple[Access, Access]:
        return await self._servers.access(database, primary), await self._servers.access(database, replica)

    async def _query(self, query: Callable[P, bool], *args: P.args, **kwargs: P.kwargs) -> bool:
        """Query a server; False on an error or timeout."""
        try:
            return await asyncio.wait_for(asyncio.to_thread(query, *args, **kwargs), PING_TIMEOUT_S)
        except (TimeoutError, ServerFailed, OSError):
            return False

    async def _is_folder_gone(self, database: Database, server: Server) -> bool:
        try:
            await asyncio.to_thread(self._servers.check_folder, database, server.folder)
        except FolderGone:
            return True
        return False

    def _replication(self, database: Database) -> Replication:
        return replication_of(database.engine)

    def _set_healthy(self, server: Server) -> None:
        self._down_since.pop(server.id, None)
        if server.id not in self._tasks:
            self._failures.pop(server.id, None)

    @staticmethod
    def _now() -> float:
        return asyncio.get_running_loop().time()

    # Rows.

    async def _read(self, database: Database) -> Pair | None:
        return await self._db.read(partial(rows.read_pair, org_id=database.org_id, database_id=database.id))

    async def _write(self, change: Callable[[Tx, int, A], T], database: Database, argument: A) -> T:
        return await self._db.write(lambda tx: change(tx, database.org_id, argument))

    async def _set_reason(self, server: Server | None, why: str | None) -> None:
        if server is not None and server.reason != why:
            await self._db.write(partial(rows.set_reason, org_id=server.org_id, server=server, why=why))
