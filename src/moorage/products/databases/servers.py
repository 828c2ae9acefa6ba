"""From the row of a server to a process that runs, and the way into it.

Whoever has a database and one of its servers can start it here, stop it, and speak to it. When that is to happen is
decided by the jobs of a database and, for as long as it runs, by its keeper.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import secrets as random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from moorage.core.db.store import Database as Store
from moorage.core.db.tx import Tx
from moorage.core.kit import folders
from moorage.core.vault import service as vault
from moorage.errors import NotFound
from moorage.products.databases import tables, urls
from moorage.products.databases.tables import Database, Server
from moorage.runtime.database_servers import tls
from moorage.runtime.database_servers.kinds import kind_of
from moorage.runtime.database_servers.ports import (
    IDENTITY_FILE,
    Access,
    Credentials,
    Primary,
    ServerKind,
    ServerOptions,
    Software,
)
from moorage.runtime.database_servers.software.catalog import Shelf
from moorage.runtime.engines.ports import CannotStart, Replicas, ReplicaSpec, ReplicaState

FIRST_UID = 600_000_000  # of the users that servers run as, where we are root: one for each database
PIDS = 1024
MB_OF_GB = 1024
MB = 2**20
START_S = 60.0  # for a server to take connections; one that recovers from a crash may need it
REPLAY_S = 3600.0  # for one that replays the log of a whole day, and that nobody waits for
LOOK_S = (0.01, 0.01, 0.02, 0.03, 0.05)
GRACE_S = 60.0  # to write down what is only in memory
SCRATCH_MB = 512
PASSWORD, ADMIN_PASSWORD, REPLICA_PASSWORD = "password", "admin", "replica"
EVERYWHERE = "0.0.0.0"  # noqa: S104 - for who asked for a public database


@dataclass(frozen=True, slots=True)
class Secrets:
    names: Credentials
    admin: str
    replica: str


def read_secrets(tx: Tx, org_id: int, found: Database) -> Secrets:
    """Read the passwords of a database; raises CannotDecrypt."""
    values = vault.values(tx, org_id, found.resource)
    names = Credentials(found.username, values[PASSWORD], found.db_name)
    return Secrets(names, values[ADMIN_PASSWORD], values[REPLICA_PASSWORD])


class Servers:
    def __init__(self, db: Store, engine: Replicas, shelf: Shelf, *, is_sandboxed: bool) -> None:
        self._db = db
        self._settings = db.env.settings
        self.is_sandboxed = is_sandboxed
        self.engine = engine
        self.shelf = shelf
        self.substitution = db.env.settings.substitution
        self._limited: dict[str, tuple[int, int, float]] = {}  # by server: which process, and to how many processors

    # What there is.

    def kind(self, found: Database) -> ServerKind:
        return kind_of(found.engine)

    def software(self, found: Database) -> Software:
        software = self.shelf.find(found.software or "")
        if software is None:
            raise CannotStart(f"{found.software} is not installed on this machine any more")
        return software

    def root(self, database_id: int) -> Path:
        return self._settings.folder("databases") / str(database_id)

    def place(self, database_id: int, folder: str) -> Path:
        return self.root(database_id) / folder

    def inside(self, folder: str) -> str:
        """Return where a server finds its folder."""
        return "/data" if self.is_sandboxed else folder

    def uid(self, database_id: int) -> int:
        """Return the user that the servers of a database run as; 0 for our own."""
        return FIRST_UID + database_id if os.getuid() == 0 else 0

    def own(self, database_id: int, folder: Path) -> None:
        """Give files to the user of a database."""
        if uid := self.uid(database_id):
            folders.give(folder, uid)

    async def secrets(self, found: Database) -> Secrets:
        return await self._db.read(lambda tx: read_secrets(tx, found.org_id, found))

    async def access(self, found: Database, server: Server) -> Access:
        admin = (await self.secrets(found)).admin
        return Access(str(self.place(found.id, server.folder)), server.port, admin)

    async def shape(self, found: Database, server: Server) -> ServerOptions:
        """Return how a server of a database is configured now."""
        primary = None
        if server.role == "replica":
            primary = Primary(found.port, (await self.secrets(found)).replica)
        return ServerOptions(
            port=server.port,
            memory_mb=int(found.tier.memory * MB_OF_GB),
            cpu=found.tier.cpu,
            disk_mb=found.tier.disk * MB_OF_GB,
            has_tls=found.visibility == "public",
            archives=found.backup and found.backup_method == "physical" and server.role == "primary",
            is_replicated=found.is_replicated,
            primary=primary,
            number=server.id,
        )

    # Starting and stopping.

    def make_folder(self, found: Database, software: Software, folder: str) -> None:
        """Make the folder of a new server from the template. What an attempt before left behind goes. In a thread."""
        place = self.place(found.id, folder)
        self.own_root(found.id)
        half = place.with_name(f".{folder}.new")
        folders.remove(half)
        half.mkdir(mode=0o700)
        kind_of(found.engine).fill(software, half)
        self.seal(found.id, half)
        folders.remove(place)
        half.rename(place)

    def own_root(self, database_id: int) -> None:
        """Make the folder of a database, through which its user may pass."""
        root = self.root(database_id)
        root.mkdir(mode=0o711, parents=True, exist_ok=True)
        # In a sandbox the way there is the platform's own; without one the server goes it as its own user.
        outer = () if self.is_sandboxed or not self.uid(database_id) else (self._settings.data,)
        for folder in (*outer, root.parent, root):
            folder.chmod(0o711)

    def seal(self, database_id: int, folder: Path) -> None:
        """Say in a folder that it is whole, and whose it is: nothing is started on one that does not say so."""
        (folder / IDENTITY_FILE).write_text(json.dumps({"database": database_id}))
        self.own(database_id, folder)

    def check_folder(self, found: Database, folder: str) -> None:
        """Raise CannotStart where the files of a server are not all there: it must never come up empty instead."""
        place = self.place(found.id, folder)
        try:
            card = json.loads((place / IDENTITY_FILE).read_bytes())
        except (OSError, ValueError):
            card = {}
        if card.get("database") != found.id or not self.kind(found).is_filled(place):
            raise FolderGone("its data folder is gone or incomplete; nothing was started in its place")

    async def start(self, found: Database, server: Server, *, is_new: bool = False) -> None:
        """Start a server and wait until it takes connections; raises CannotStart. One that runs is not started again.

        It has the processors of its tier from the beginning. One that is new may use all there are, until somebody
        calls `limit`: whoever has asked for it waits for what it does first.
        """
        if server.key not in self.engine.states():
            await asyncio.to_thread(self.check_folder, found, server.folder)
            shape = await self.shape(found, server)
            place = self.place(found.id, server.folder)
            spec = await asyncio.to_thread(self._specify, found, place, shape, server.key, server.token)
            await self.engine.start(spec)
        if not is_new:
            await self.limit(found, server)
        await self._until_ready(found, server.key, await self.access(found, server))

    async def limit(self, found: Database, server: Server) -> None:
        """Let a server use no more processors than its tier has. Safe to repeat, and asked of each process once."""
        state = self.engine.states().get(server.key)
        if state is None:
            return
        wanted = (state.pid, state.started, found.tier.cpu)
        if self._limited.get(server.key) != wanted:
            await self.engine.limit(server.key, found.tier.cpu)
            self._limited[server.key] = wanted

    async def stop(self, server: Server, grace_s: float = GRACE_S) -> None:
        self._limited.pop(server.key, None)
        await self.engine.stop(server.key, grace_s)

    @asynccontextmanager
    async def scratch(self, found: Database, folder: Path, shape: ServerOptions) -> AsyncIterator[Access]:
        """Run a server that nobody but us can reach on a prepared folder, for as long as the block takes.

        No row knows it, so what is left of it after a crash is ended when the next control process looks around.
        """
        key, token = _scratch_key(found, folder), random.token_hex(24)
        admin = (await self.secrets(found)).admin
        access = Access(str(folder), shape.port, admin)
        spec = await asyncio.to_thread(self._specify, found, folder, shape, key, token)
        try:
            await self.engine.start(spec)
            await self._until_ready(found, key, access, REPLAY_S)
            yield access
        finally:
            await self.engine.stop(key, GRACE_S)

    async def end_scratch(self, found: Database, folder: Path) -> None:
        """Wait for the end of what an attempt before has left running on a folder, which then can be made anew."""
        await self.engine.stop(_scratch_key(found, folder), 0.0)

    def _specify(self, found: Database, place: Path, shape: ServerOptions, key: str, token: str) -> ReplicaSpec:
        """Write down how the server is to run, and return how it is started; in a thread."""
        kind, software = self.kind(found), self.software(found)
        home, inside = ("/work", "/data") if self.is_sandboxed else (software.home, str(place))
        if shape.has_tls:
            hosts = [urls.host_of(self._settings, found)]
            tls.ensure_certificate(self._settings.folder("keys"), place, hosts, self._db.env.clock.now())
        kind.configure(software, place, shape, home=home, inside=inside)
        self.own(found.id, place)
        return ReplicaSpec(
            key=key,
            token=token,
            release=software.home,
            base="",
            argv=kind.argv(software, shape, home=home, inside=inside),
            env={name: value.replace("{home}", home) for name, value in software.env.items()},
            binds=dict(software.binds),
            hidden=[],
            log_folder=str(self._settings.folder("logs") / "databases" / str(found.id)),
            volume=str(place),
            disk_mb=max(shape.disk_mb, _largest_mb(place)) if shape.disk_mb else 0,
            reserve_mb=self._settings.disk_reserve_mb,
            cpu=shape.cpu,
            memory_mb=shape.memory_mb,
            pids=PIDS,
            uid=self.uid(found.id),
            doors=[f"{urls.HERE}:{shape.primary.port}"] if shape.primary else [],
            block=[EVERYWHERE + "/0", "::/0"],
            is_boxed=self.is_sandboxed,
            port=shape.port if shape.is_open else 0,
            proxy=kind.type if self._is_reached_by_others(found, shape) else "",
            proxy_address=EVERYWHERE,
            proxy_connections=kind.usable_connections(shape),
            stop_signal=kind.stop_signal,
            is_server=True,
        )

    def _is_reached_by_others(self, found: Database, shape: ServerOptions) -> bool:
        """Tell whether other machines connect to a server: a replica and a scratch server are never public."""
        return shape.is_open and shape.primary is None and urls.is_public(self._settings, found)

    async def _until_ready(self, found: Database, key: str, access: Access, within_s: float = START_S) -> None:
        """Wait until a server lets us in; raises CannotStart when it has ended, or does not get there."""
        kind, loop = self.kind(found), asyncio.get_running_loop()
        deadline, tries = loop.time() + within_s, 0
        while not await asyncio.to_thread(kind.ping, access):
            state = self.engine.states().get(key)
            if state is None:
                raise CannotStart("its server has ended while it started")
            if loop.time() > deadline or state.phase == "waiting":
                raise CannotStart(f"its server does not start: {why(state)}{await self._last_words(found)}")
            await asyncio.sleep(LOOK_S[min(tries, len(LOOK_S) - 1)])
            tries += 1

    async def _last_words(self, found: Database) -> str:
        """Return the last line that the servers of a database have printed, for who wants to know why one ended."""
        folder = self._settings.folder("logs") / "databases" / str(found.id)
        line = await asyncio.to_thread(_last_line, folder)
        return f" ({line})" if line else ""


def _largest_mb(folder: Path) -> int:
    """Return the size of the largest file: a server that may not write to the end of one that it has cannot start."""
    sizes = (entry.stat(follow_symlinks=False).st_size for entry in folders.walk(folder, is_lenient=True))
    return max(sizes, default=0) // MB + 1


class FolderGone(CannotStart):
    """The files of a server are not there: starting again will not help."""


def why(state: ReplicaState) -> str:
    return state.reason or "it does not take connections"


def _scratch_key(found: Database, folder: Path) -> str:
    """Return what a server on a prepared folder is known by: always the same, so that who comes later can find it."""
    return f"x{found.id}-{folder.name.strip('.').replace('.', '-')}"


def _last_line(folder: Path) -> str:
    with contextlib.suppress(OSError, IndexError):
        newest = max(folder.iterdir())
        lines = [line.split(" ", 3) for line in newest.read_text(errors="replace").splitlines()[-20:]]
        return [parts[3] for parts in lines if len(parts) == 4 and parts[1] != "s"][-1][:300]
    return ""


def servers_of(tx: Tx, org_id: int, database_id: int) -> list[Server]:
    return tx.all(tables.SERVERS_OF, org_id=org_id, database_id=database_id)


def primary_of(tx: Tx, org_id: int, database_id: int) -> Server | None:
    return next((each for each in servers_of(tx, org_id, database_id) if each.role == "primary"), None)


def add_server(tx: Tx, org_id: int, database_id: int, role: str, folder: str, port: int) -> Server:
    """Say that a database is to have a server; its folder is made by whoever says so."""
    server_id = tx.one(
        tables.ADD_SERVER,
        org_id=org_id,
        database_id=database_id,
        role=role,
        folder=folder,
        token=random.token_hex(24),
        port=port,
        in_sync=False,
        restarts=0,
        reason=None,
        started_at=None,
        cpu_milli=None,
        memory_bytes=None,
        seen_restarts=0,
        seen_at=None,
        created_at=tx.now,
        updated_at=tx.now,
    )
    return get_server(tx, org_id, server_id)


def get_server(tx: Tx, org_id: int, server_id: int) -> Server:
    found = tx.find(tables.FIND_SERVER, org_id=org_id, id=server_id)
    if found is None:
        raise NotFound("There is no such server")
    return found


def set_server(tx: Tx, org_id: int, server: Server, name: str, value: Any) -> None:
    tx.run(tables.SET_SERVER[name], org_id=org_id, id=server.id, new=value, now=tx.now)


def forget_server(tx: Tx, org_id: int, server: Server) -> None:
    tx.run(tables.DELETE_SERVER, org_id=org_id, id=server.id)


def next_folder(root: Path) -> str:
    """Return a name that no folder of a database has had, as far as can be seen."""
    numbers = [int(path.name[1:]) for path in root.glob("s*") if path.name[1:].isdecimal()] if root.is_dir() else []
    return f"s{max(numbers, default=0) + 1}"
