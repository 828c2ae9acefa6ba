"""Watches over databases with two servers: a primary that takes all changes, and a replica that has them too.

Nothing that was acknowledged is lost with one of them, and the address of the database stays the same:

- Commits wait for the replica for as long as its row says `in_sync`. When it is away for some seconds the row changes
  first, and only then does the primary go on alone.
- A primary that does not come back is fenced: first in its row, so that nobody ever starts it again, then by ending it.
  Only then is the replica promoted, and only where it is `in_sync`.

Level-triggered: each look compares the rows with what runs and does the next step. The platform may end after any of
them, and the next look goes on from there.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import json
from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

from moorage.core.db.store import Database as Store
from moorage.core.db.tx import Tx, move
from moorage.core.kit import folders
from moorage.core.telemetry import Telemetry
from moorage.errors import IllegalMove
from moorage.products.databases.replication import tables as rows
from moorage.products.databases.replication.tables import Pair
from moorage.products.databases.servers import FolderGone, Servers, forget_server, servers_of
from moorage.products.databases.states import DATABASE, DatabaseStatus
from moorage.products.databases.tables import Database, Server
from moorage.runtime.database_servers import copying
from moorage.runtime.database_servers.ports import SCRATCH_PORT, Primary, ServerFailed
from moorage.runtime.database_servers.replication import Replication, replication_of
from moorage.runtime.database_servers.tools import in_thread
from moorage.runtime.engines.ports import CannotStart

P = ParamSpec("P")
T = TypeVar("T")
A = TypeVar("A")

ROUND_S = 1.0
ANSWER_S = 2.0  # A server that takes longer to greet us does not answer.
PROMOTE_S = 3.0  # What watches over a server has usually brought it back in half a second.
AWAY_S = 5.0  # How long commits wait for a replica that is away.
BROKEN_S = 60.0  # A replica that runs, and does not follow for so long, is made anew.
TRIM_S = 60.0
TRY_AGAIN_S = (1.0, 2.0, 5.0, 10.0, 30.0, 60.0)
STOP_S = 30.0
FIRST_S = 60.0  # for a new replica to follow
PAUSE_S = 0.1
STARTS, MAKES = "starts", "makes"  # what goes on beside the looks
SUPERSEDED = "superseded.json"
LAGS = "its primary does not run, and its replica lacks some of the last changes and is not put in its place"
Listener = Callable[[Tx, int, Database], None]
Failures = (CannotStart, ServerFailed, OSError)


class Replicator:
    def __init__(self, db: Store, servers: Servers, telemetry: Telemetry) -> None:
        self._db = db
        self._servers = servers
        self._telemetry = telemetry
        self._locks: defaultdict[int, asyncio.Lock] = defaultdict(asyncio.Lock)  # by database
        self._looks: dict[int, asyncio.Task[None]] = {}  # by database
        self._tasks: dict[int, asyncio.Task[None]] = {}  # by server: it is being started, or made
        self._failures: dict[int, tuple[int, float]] = {}  # by server: how often that failed, and until when to wait
        self._silent: dict[int, float] = {}  # by server: since when a primary does not answer, or a replica not follow
        self._trimmed: dict[int, float] = {}
        self.on_promoted: list[Listener] = []  # told in the transaction in which another server becomes the primary

    # Looking.

    async def run(self) -> None:
        try:
            while True:
                try:
                    await self.round()
                except Exception as error:  # noqa: BLE001 - the loop outlives whatever one round meets
                    self._telemetry.crashed(None, error, where="replication")
                await asyncio.sleep(ROUND_S)
        finally:
            await self.close()

    async def round(self) -> None:
        """Begin to look at every database that is not being looked at."""
        for found in await self._db.read(rows.running_pairs):
            if found.id not in self._looks:
                self._looks[found.id] = asyncio.create_task(self._look_safely(found))

    async def close(self) -> None:
        """Let go of everything; what was begun is done again by whoever looks next."""
        tasks = [*self._looks.values(), *self._tasks.values()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _look_safely(self, found: Database) -> None:
        try:
            await self.look(found)
        except Exception as error:  # noqa: BLE001 - what is wrong with one database must not stop the others
            self._telemetry.crashed(None, error, where=f"replication of database {found.id}")
        finally:
            self._looks.pop(found.id, None)

    async def look(self, found: Database) -> None:
        """Look at one database, and do what is next. Nothing is done while a job has it."""
        async with self._locks[found.id]:
            pair = await self._read(found)
            if pair is None or not pair.is_running:
                return
            try:
                await self._step(pair)
            except Failures as error:
                await self._note(pair.primary or pair.replica, str(error))

    async def _step(self, pair: Pair) -> None:
        if pair.fenced is not None:
            await self._switch(pair)
        elif pair.primary is None:
            raise CannotStart("it has no primary")
        elif await self._answers(pair.found, pair.primary):
            self._is_well(pair.primary)
            await self._note(pair.primary, None)
            try:
                await self._keep_replica(pair, pair.primary)
            except Failures as error:
                await self._note(pair.replica, str(error))
        else:
            await self._bring_back(pair, pair.primary)

    @asynccontextmanager
    async def resting(self, found: Database) -> AsyncIterator[None]:
        """Keep everything else from the servers of a database while a job changes them; a switch is finished first."""
        async with self._locks[found.id]:
            pair = await self._read(found)
            if pair is not None:
                if pair.fenced is not None:
                    await self._switch(pair)
                for server in (pair.primary, pair.replica):
                    await self._give_up(server)
            yield

    # The primary.

    async def _bring_back(self, pair: Pair, primary: Server) -> None:
        """Start a primary that does not answer; one that does not come back is replaced."""
        since = self._silent.setdefault(primary.id, self._now())
        is_gone = await self._is_folder_gone(pair.found, primary)
        is_late = self._now() - since >= PROMOTE_S
        if (is_late or is_gone or primary.id in self._failures) and await self._replace(pair):
            return
        if not is_gone:
            await self._ensure_started(pair.found, primary)
        elif is_late and (pair.replica is None or not pair.replica.in_sync):
            await self._lose(pair, primary)

    async def _replace(self, pair: Pair) -> bool:
        """Put the replica in the place of its primary, where it has everything that was acknowledged."""
        replica = pair.replica
        if replica is None or not replica.in_sync:
            await self._note(pair.primary, LAGS)
            return False
        if not await self._answers(pair.found, replica):
            await self._ensure_started(pair.found, replica)
            return False
        if not await self._write(rows.fence, pair.found, pair):
            return False
        fenced = await self._read(pair.found)
        if fenced is not None:
            await self._switch(fenced)
        return True

    async def _switch(self, pair: Pair) -> None:
        """Make a replica the primary. The old one is gone before anything else is done."""
        old, replica, found = pair.fenced, pair.replica, pair.found
        assert old is not None
        assert replica is not None
        await self._give_up(old)
        await self._servers.stop(old, grace_s=0.0)
        await self._give_up(replica)
        await self._servers.start(found, replica)
        access = await self._servers.access(found, replica)
        await in_thread(self._replication(found).promote, access)
        await asyncio.to_thread(self._set_aside, self._servers.place(found.id, old.folder))
        await self._write(self._take_over, found, pair)
        self._telemetry.log.warning("database promoted", database=found.id, server=replica.id, instead_of=old.id)
        now = await self._read(found)
        if now is not None and now.primary is not None:
            await self._ensure_port(now.primary)
            await self._servers.start(found, now.primary)

    def _take_over(self, tx: Tx, org_id: int, pair: Pair) -> None:
        rows.take_over(tx, org_id, pair)
        for listener in self.on_promoted:
            listener(tx, org_id, pair.found)

    async def _ensure_port(self, server: Server) -> None:
        """Stop a server that is not found where it should be: it was promoted, and is started at another port."""
        state = self._servers.engine.states().get(server.key)
        if state is not None and state.port != server.port:
            await self._servers.stop(server, STOP_S)

    def _set_aside(self, folder: Path) -> None:
        """Say that a folder is not used any more, and since when."""
        if folder.is_dir():
            copying.put(folder, SUPERSEDED, json.dumps({"at": self._db.env.clock.now()}), is_kept=True)

    async def _lose(self, pair: Pair, primary: Server) -> None:
        why = "the data folder of its primary is gone, and its replica lacks some of the last changes"
        self._is_well(primary)

        def fail(tx: Tx, org_id: int, found: Database) -> None:
            with contextlib.suppress(IllegalMove):
                move(tx, DATABASE, found, to=DatabaseStatus.FAILED, status_reason=why)

        await self._write(fail, pair.found, pair.found)

    # The replica.

    async def _keep_replica(self, pair: Pair, primary: Server) -> None:
        found, replica = pair.found, pair.replica
        if replica is None:
            replica = await self._write(rows.ensure_replica, found, found)
        if replica.id in self._tasks:
            await self._be_patient(found, primary, replica)
        elif await self._is_folder_gone(found, replica):
            await self._part(found, primary, replica)
            self._begin(replica, self._make(found, primary, replica), can_be_cancelled=True)
        elif await self._follows(found, primary, replica):
            await self._keep_together(found, primary, replica)
        else:
            await self._be_patient(found, primary, replica)
            await self._help(pair, primary, replica)

    async def _keep_together(self, found: Database, primary: Server, replica: Server) -> None:
        self._is_well(replica)
        kind = self._replication(found)
        ours, theirs = await self._servers.access(found, primary), await self._servers.access(found, replica)
        if not replica.in_sync:
            await self._join(found, primary, replica)
        elif not await in_thread(kind.is_awaited, ours, replica.id):
            await self._part(found, primary, replica)
        elif self._now() - self._trimmed.get(found.id, float("-inf")) > TRIM_S:
            self._trimmed[found.id] = self._now()
            await in_thread(kind.trim, ours, theirs)

    async def _join(self, found: Database, primary: Server, replica: Server) -> None:
        """Let commits wait for the replica. Only when it has everything does its row say so."""
        kind = self._replication(found)
        ours, theirs = await self._servers.access(found, primary), await self._servers.access(found, replica)
        try:
            await in_thread(kind.await_replica, ours, theirs, replica.id)
        except BaseException:
            with contextlib.suppress(ServerFailed):
                await in_thread(kind.go_alone, ours)
            raise
        await self._write(partial(rows.set_in_sync, is_so=True), found, replica)
        await self._note(replica, None)

    async def _part(self, found: Database, primary: Server, replica: Server) -> None:
        """Let the primary go on alone. First the row says that the replica may lack something."""
        if replica.in_sync:
            await self._write(partial(rows.set_in_sync, is_so=False), found, replica)
        kind, access = self._replication(found), await self._servers.access(found, primary)
        if replica.in_sync or await in_thread(kind.is_awaited, access, replica.id):
            await in_thread(kind.go_alone, access)

    async def _be_patient(self, found: Database, primary: Server, replica: Server) -> None:
        """Give a replica that is away some seconds, in which commits wait for it."""
        if self._now() - self._silent.setdefault(replica.id, self._now()) > AWAY_S:
            await self._part(found, primary, replica)

    async def _help(self, pair: Pair, primary: Server, replica: Server) -> None:
        """Start a replica that does not run, and let it follow; one that never does is made anew."""
        if not await self._answers(pair.found, replica):
            await self._ensure_started(pair.found, replica)
            return
        try:
            access = await self._servers.access(pair.found, replica)
            await in_thread(self._replication(pair.found).follow, access)
        except ServerFailed as error:
            await self._note(replica, str(error))
        if self._now() - self._silent[replica.id] > BROKEN_S:
            await self._dismiss(pair.found, primary, replica)

    async def _ensure_started(self, found: Database, server: Server) -> None:
        if server.id in self._tasks:
            return
        await self._ensure_port(server)
        if server.key not in self._servers.engine.states():
            self._begin(server, self._start(found, server))

    # Making a replica.

    async def seed(self, found: Database) -> None:
        """Give a database whose primary runs a replica that has everything. Safe to repeat; for jobs."""
        async with self._locks[found.id]:
            replica = await self._write(rows.ensure_replica, found, found)
            pair = await self._read(found)
            if pair is None or pair.primary is None:
                raise CannotStart("it has no primary")
            if await self._is_folder_gone(found, replica):
                await self._make(found, pair.primary, replica)
            await self._servers.start(found, replica, is_new=True)
            await self._until_following(found, pair.primary, replica)
            if not replica.in_sync:
                await self._join(found, pair.primary, replica)
            await self._servers.limit(found, replica)

    async def reseed(self, found: Database) -> None:
        """Make the replica of a database anew. For jobs, when the primary has got other data."""
        await self.dismiss(found)
        await self.seed(found)

    async def dismiss(self, found: Database) -> None:
        """Have no replica any more. Before a primary gets other data: the replica must never be put in its place."""
        async with self._locks[found.id]:
            pair = await self._read(found)
            if pair is not None and pair.replica is not None:
                await self._dismiss(found, pair.primary, pair.replica)

    async def _dismiss(self, found: Database, primary: Server | None, replica: Server) -> None:
        await self._give_up(replica)
        await self._write(forget_server, found, replica)
        await self._servers.stop(replica, grace_s=0.0)
        if primary is not None and await self._answers(found, primary):
            access = await self._servers.access(found, primary)
            await in_thread(self._replication(found).go_alone, access)
        await asyncio.to_thread(folders.remove, self._servers.place(found.id, replica.folder))
        self._is_well(replica)

    async def _make(self, found: Database, primary: Server, replica: Server) -> None:
        """Copy what the primary has into the folder of a replica, which appears whole or not at all."""
        place, kind = self._servers.place(found.id, replica.folder), self._replication(found)
        half = place.with_name(f".{replica.folder}.new")
        software, access = self._servers.software(found), await self._servers.access(found, primary)
        await self._servers.stop(replica, grace_s=0.0)  # It may still run on a folder that is gone.
        await self._servers.end_scratch(found, half)
        kept = {server.folder for server in await self._db.read(lambda tx: servers_of(tx, found.org_id, found.id))}
        await asyncio.to_thread(self._clear, found, kept, half)
        await in_thread(kind.copy, software, access, half, replica.id)
        if kind.needs_loading:
            await self._load(found, replica, half)
        await asyncio.to_thread(self._servers.seal, found.id, half)
        await asyncio.to_thread(half.rename, place)

    async def _load(self, found: Database, replica: Server, half: Path) -> None:
        wanted = await self._servers.shape(found, replica)
        shape = dataclasses.replace(wanted, port=SCRATCH_PORT, is_open=False, primary=None)
        primary = Primary(found.port, (await self._servers.secrets(found)).replica)
        software = self._servers.software(found)
        async with self._servers.scratch(found, half, shape) as access:
            await in_thread(self._servers.kind(found).set_admin_password, software, access)
            await in_thread(self._replication(found).load, software, access, primary)

    def _clear(self, found: Database, kept: set[str], half: Path) -> None:
        """Make an empty folder, and remove what others before it have left: replicas that no row knows."""
        for left in (*half.parent.glob(f"{rows.FOLDER}*"), *half.parent.glob(f".{rows.FOLDER}*.new")):
            if left.name not in kept and not (left / SUPERSEDED).exists():
                folders.remove(left)
        half.mkdir(mode=0o700)
        self._servers.own(found.id, half)

    async def _until_following(self, found: Database, primary: Server, replica: Server) -> None:
        deadline = self._now() + FIRST_S
        while not await self._follows(found, primary, replica):
            if self._now() > deadline:
                raise CannotStart("its replica does not follow")
            access = await self._servers.access(found, replica)
            await in_thread(self._replication(found).follow, access)
            await asyncio.sleep(0.1)

    # What goes on beside the looks.

    def _begin(self, server: Server, work: Coroutine[Any, Any, None], *, can_be_cancelled: bool = False) -> None:
        """Do something for a server, unless that has just failed."""
        tries, until = self._failures.get(server.id, (0, 0.0))
        if self._now() < until:
            work.close()
            return

        async def run() -> None:
            try:
                await work
                self._failures.pop(server.id, None)
            except Failures as error:
                pause = TRY_AGAIN_S[min(tries, len(TRY_AGAIN_S) - 1)]
                self._failures[server.id] = (tries + 1, self._now() + pause)
                await self._note(server, str(error))
            except Exception as error:  # noqa: BLE001 - nobody waits for this, so it is told here
                self._telemetry.crashed(None, error, where=f"replication of database {server.database_id}")
            finally:
                self._tasks.pop(server.id, None)

        task = asyncio.create_task(run(), name=MAKES if can_be_cancelled else STARTS)
        self._tasks[server.id] = task

    async def _give_up(self, server: Server | None) -> None:
        """End what goes on for a server. A start is not cut short: something could be left that runs, unknown to us."""
        task = self._tasks.get(server.id) if server is not None else None
        if task is None or server is None:
            return
        if task.get_name() == MAKES:
            task.cancel()
        while not task.done():
            if task.get_name() == STARTS:
                await self._servers.stop(server, grace_s=0.0)
            await asyncio.wait({task}, timeout=PAUSE_S)

    async def _start(self, found: Database, server: Server) -> None:
        await self._servers.start(found, server)
        await self._write(rows.count_restart, found, server)

    # Asking.

    async def _answers(self, found: Database, server: Server) -> bool:
        """Tell whether a server runs where it should, on a folder that is still there, and lets us in."""
        state = self._servers.engine.states().get(server.key)
        if state is None or state.port != server.port or await self._is_folder_gone(found, server):
            return False
        access = await self._servers.access(found, server)
        return await self._ask(self._servers.kind(found).ping, access)

    async def _follows(self, found: Database, primary: Server, replica: Server) -> bool:
        if not await self._answers(found, replica):
            return False
        ours, theirs = await self._servers.access(found, primary), await self._servers.access(found, replica)
        return await self._ask(self._replication(found).is_following, ours, theirs, replica.id)

    async def _ask(self, question: Callable[P, bool], *args: P.args, **kwargs: P.kwargs) -> bool:
        """Ask a server; one that does not answer soon says no."""
        try:
            return await asyncio.wait_for(asyncio.to_thread(question, *args, **kwargs), ANSWER_S)
        except (TimeoutError, ServerFailed, OSError):
            return False

    async def _is_folder_gone(self, found: Database, server: Server) -> bool:
        try:
            await asyncio.to_thread(self._servers.check_folder, found, server.folder)
        except FolderGone:
            return True
        return False

    def _replication(self, found: Database) -> Replication:
        return replication_of(found.engine)

    def _is_well(self, server: Server) -> None:
        self._silent.pop(server.id, None)
        if server.id not in self._tasks:
            self._failures.pop(server.id, None)

    @staticmethod
    def _now() -> float:
        return asyncio.get_running_loop().time()

    # The rows.

    async def _read(self, found: Database) -> Pair | None:
        return await self._db.read(partial(rows.read_pair, org_id=found.org_id, database_id=found.id))

    async def _write(self, change: Callable[[Tx, int, A], T], found: Database, about: A) -> T:
        return await self._db.write(lambda tx: change(tx, found.org_id, about))

    async def _note(self, server: Server | None, why: str | None) -> None:
        if server is not None and server.reason != why:
            await self._db.write(partial(rows.note_reason, org_id=server.org_id, server=server, why=why))
