"""Starts, stops and accesses the server process of a database_server row.

The jobs of a database and the reconciler decide when a server starts and stops.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import secrets as random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

from moorage.core.db.store import Database as Store
from moorage.core.db.tx import Tx
from moorage.core.kit import folders
from moorage.core.vault import service as vault
from moorage.errors import Conflict, NotFound
from moorage.products.databases import tables, urls
from moorage.products.databases.hosts.local import LocalHost
from moorage.products.databases.hosts.ports import CERTIFICATES, FOLDER_GONE, FolderGone, Host, Secrets
from moorage.products.databases.states import DatabaseStatus
from moorage.products.databases.tables import Database, Server
from moorage.products.databases.threads import SingleCallThread
from moorage.runtime.database_servers import server_folders, tls
from moorage.runtime.database_servers.kinds import kind_of
from moorage.runtime.database_servers.ports import (
    Access,
    Credentials,
    Extension,
    Primary,
    ServerFailed,
    ServerKind,
    ServerOptions,
    Software,
)
from moorage.runtime.database_servers.software.catalog import SoftwareCatalog, describe
from moorage.runtime.database_servers.software.spares import Spares
from moorage.runtime.engines.ports import CannotStart, Engine, ServerSpec

FIRST_UID = 600_000_000  # Unix users of servers if the platform is root: one per database
MAX_PIDS = 1024
MB_OF_GB = 1024
MB = 2**20
START_TIMEOUT_S = 60.0  # includes crash recovery
REPLAY_TIMEOUT_S = 3600.0  # for a scratch server that replays the WAL of a whole day
READY_POLL_INTERVALS_S = (0.01, 0.01, 0.02, 0.03, 0.05)
ANSWER_TIMEOUT_S = 15.0  # of a server to a request of a user
STOP_GRACE_S = 60.0  # to flush memory to disk
SPARES = ".spares"  # folder of spare data folders
SPARE_TIMEOUT_S = 600.0
LOGS = "databases"  # group of the logs
MAX_SEARCHED_LINES, MAX_LINE_CHARS = 20, 300  # for the last line of a server that does not start
PASSWORD, ADMIN_PASSWORD, REPLICA_PASSWORD = "password", "admin", "replica"
ANY_ADDRESS = "0.0.0.0"  # noqa: S104 - for public databases


def read_secrets(tx: Tx, org_id: int, database: Database) -> Secrets:
    """Read the passwords of a database; raises CannotDecrypt."""
    values = vault.values(tx, org_id, database.resource)
    credentials = Credentials(database.username, values[PASSWORD], database.db_name)
    return Secrets(credentials, values[ADMIN_PASSWORD], values[REPLICA_PASSWORD], values.get(CERTIFICATES))


class Servers:
    def __init__(self, db: Store, engine: Engine, catalog: SoftwareCatalog, *, is_sandboxed: bool) -> None:
        self._db = db
        self._settings = db.env.settings
        self.is_sandboxed = is_sandboxed
        self.engine = engine.workloads
        self.logs = engine.logs
        self.metrics = engine.metrics
        self.catalog = catalog
        self.spares = Spares(self._settings.folder("engines") / SPARES, self._settings.disk_reserve_mb)
        self._spare_thread = SingleCallThread()
        self.substitution = db.env.settings.substitution
        self._limited: dict[str, tuple[int, int, float]] = {}  # by server: pid and start time of the shim, CPU limit
        self._extension_threads: dict[int, SingleCallThread] = {}  # by database
        self.agents = engine.agents
        self.host = self._make_host(engine)

    def _make_host(self, engine: Engine) -> Host:
        if engine.agents is None:
            return LocalHost(self, self._settings)
        # Only an engine with agents needs this module and its libraries.
        from moorage.products.databases.hosts.agents import AgentHost

        return AgentHost(self._db, engine, engine.agents)

    def kind(self, database: Database) -> ServerKind:
        return self.host.kind(database)

    def software(self, database: Database) -> Software:
        software = self.catalog.find(database.software or "")
        if software is None:
            raise CannotStart(f"{database.software} is not installed on this machine any more")
        return software

    def root(self, database_id: int) -> Path:
        return self._settings.folder("databases") / str(database_id)

    def folder(self, database_id: int, name: str) -> Path:
        """Return the path of a folder of a database; raises ServerFailed for a name that leads out of its root."""
        return self.root(database_id) / server_folders.checked_name(name)

    def volume(self, folder: Path) -> str:
        """Return the name of the volume of a server on a folder."""
        return folder.relative_to(self._settings.folder("databases")).as_posix()

    def inside(self, folder: str) -> str:
        """Return the path of a folder as its server sees it."""
        return "/data" if self.is_sandboxed else folder

    def uid(self, database_id: int) -> int:
        """Return the Unix user of a database's servers; 0 for the user of the platform."""
        return FIRST_UID + database_id if os.getuid() == 0 else 0

    def own(self, database_id: int, folder: Path) -> None:
        """Change the owner of files to the Unix user of a database."""
        if uid := self.uid(database_id):
            folders.change_owner(folder, uid)

    async def secrets(self, database: Database) -> Secrets:
        return await self._db.read(lambda tx: read_secrets(tx, database.org_id, database))

    async def access(self, database: Database, server: Server) -> Access:
        return self.host.access(database, server, await self.secrets(database))

    async def find_primary(self, database: Database) -> Server | None:
        return await self._db.read(lambda tx: primary_of(tx, database.org_id, database.id))

    async def extensions(self, database: Database) -> list[Extension]:
        """List the extensions of a running database; raises Conflict if it is not reachable."""
        primary = await self.find_primary(database)
        if primary is None or database.status != DatabaseStatus.RUNNING:
            raise Conflict(f"The database is {database.status}; this needs one that is running")
        access = await self.access(database, primary)
        credentials = (await self.secrets(database)).credentials
        thread = self._extension_threads.setdefault(database.id, SingleCallThread())
        try:
            return await thread.run(partial(self.kind(database).extensions, access, credentials), ANSWER_TIMEOUT_S)
        except (ServerFailed, TimeoutError):
            raise Conflict("The database does not answer now; try again in a moment") from None
        finally:
            if not thread.is_busy:
                self._extension_threads.pop(database.id, None)

    async def options(self, database: Database, server: Server) -> ServerOptions:
        primary = None
        if server.role == "replica":
            primary = Primary(database.address, (await self.secrets(database)).replica)
        return ServerOptions(
            port=server.port,
            memory_mb=int(database.tier.memory * MB_OF_GB),
            cpu=database.tier.cpu,
            disk_mb=database.tier.disk * MB_OF_GB,
            has_tls=database.visibility == "public",
            archives=database.backup and database.backup_method == "physical" and server.role == "primary",
            is_replicated=database.is_replicated,
            primary=primary,
            number=server.id,
        )

    # Starting and stopping.

    def make_folder(self, database: Database, software: Software, folder: str) -> None:
        """Create a server's folder from the template, replacing a previous one. Blocks."""
        self._make_root(database.id)
        server_folders.make(
            kind_of(database.engine),
            software,
            self.folder(database.id, folder),
            database.id,
            own=lambda path: self.own(database.id, path),
            take_spare=self.spares.take,
        )

    def lacks_spare(self, name: str) -> Software | None:
        """Return the software of this name if it is installed and has no spare data folder."""
        software = None if self.host.has_agents else self.catalog.find(name)
        return software if software is not None and self.spares.is_missing(software) else None

    async def make_spare(self, software: Software) -> None:
        with contextlib.suppress(TimeoutError):
            await self._spare_thread.run(partial(self.spares.make, software), SPARE_TIMEOUT_S)

    def _make_root(self, database_id: int) -> None:
        """Create the folder of a database, which its Unix user may traverse."""
        root = self.root(database_id)
        root.mkdir(mode=0o711, parents=True, exist_ok=True)
        # A sandbox mounts the folder as root; without one the server traverses its parents as its own user.
        outer = () if self.is_sandboxed or not self.uid(database_id) else (self._settings.data,)
        for folder in (*outer, root.parent, root):
            folder.chmod(0o711)

    def seal(self, database_id: int, folder: Path) -> None:
        """Write the identity file, which marks a folder as complete; set the owner."""
        server_folders.seal(folder, database_id)
        self.own(database_id, folder)

    def check_folder(self, database: Database, folder: str) -> None:
        """Raise FolderGone if a server's files are incomplete: never start it empty."""
        if not server_folders.is_complete(kind_of(database.engine), self.folder(database.id, folder), database.id):
            raise FolderGone(FOLDER_GONE)

    async def start(self, database: Database, server: Server, *, new: Software | None = None) -> None:
        """Start a server unless it runs, and wait until it is ready; or CannotStart.

        `new` is the software of a new server: its folder is created. It has no CPU limit until a call of `limit`,
        because a user waits for its first start.
        """
        if server.key not in self.engine.states():
            spec = await self.host.prepare(database, server, await self.options(database, server), new)
            await self.engine.start(spec)
        elif self.host.has_agents:
            await self.access(database, server)
        await self.host.started(database, server, new)
        if new is None:
            await self.limit(database, server)
        access = await self.access(database, server)
        await self._until_ready(database, server.key, access)
        if server.role == "primary" and (software := self.software(database)).name != database.software:
            version = await asyncio.to_thread(self.kind(database).version, access)
            await self._db.write(
                partial(_set_software, org_id=database.org_id, database=database, software=software, version=version)
            )

    async def limit(self, database: Database, server: Server) -> None:
        """Set the CPU limit of the tier, once per shim process. Safe to repeat."""
        state = self.engine.states().get(server.key)
        if state is None or self.host.has_agents:  # The spec of an agent has the limit.
            return
        limited = (state.pid, state.started, database.tier.cpu)
        if self._limited.get(server.key) != limited:
            await self.engine.limit(server.key, database.tier.cpu)
            self._limited[server.key] = limited

    async def stop(self, server: Server, grace_s: float = STOP_GRACE_S) -> None:
        self._limited.pop(server.key, None)
        await self.engine.stop(server.key, grace_s)

    @asynccontextmanager
    async def scratch(self, database: Database, folder: Path, options: ServerOptions) -> AsyncIterator[Access]:
        """Run a private server on a prepared folder for the duration of the block.

        It has no row, so after a crash the next control process stops it when it adopts servers.
        """
        key, token = _scratch_key(database, folder), random.token_hex(24)
        admin = (await self.secrets(database)).admin
        access = Access(str(folder), options.port, admin)
        spec = await asyncio.to_thread(self.configure, database, folder, options, key, token)
        try:
            await self.engine.start(spec)
            await self._until_ready(database, key, access, REPLAY_TIMEOUT_S)
            yield access
        finally:
            await self.engine.stop(key, STOP_GRACE_S)

    async def end_scratch(self, database: Database, folder: Path) -> None:
        """Kill a scratch server that a previous attempt left on a folder."""
        await self.engine.stop(_scratch_key(database, folder), 0.0)

    def configure(self, database: Database, folder: Path, options: ServerOptions, key: str, token: str) -> ServerSpec:
        """Write the configuration of a server and return its process spec. Blocks."""
        kind, software = self.kind(database), self.software(database)
        home, inside = ("/work", "/data") if self.is_sandboxed else (software.home, str(folder))
        if options.has_tls:
            hosts = [urls.host_of(self._settings, database)]
            tls.ensure_certificate(self._settings.folder("keys"), folder, hosts, self._db.env.clock.now())
        kind.configure(software, folder, options, home=home, inside=inside)
        self.own(database.id, folder)
        return ServerSpec(
            key=key,
            token=token,
            name=database.workload,
            argv=kind.argv(software, options, home=home, inside=inside),
            env={name: value.replace("{home}", home) for name, value in software.env.items()},
            files=software.files,
            log=log_of(database),
            volume=self.volume(folder),
            disk_mb=max(options.disk_mb, _largest_mb(folder)) if options.disk_mb else 0,
            reserve_mb=self._settings.disk_reserve_mb,
            cpu=options.cpu,
            memory_mb=options.memory_mb,
            pids=MAX_PIDS,
            uid=self.uid(database.id),
            egress=[database.egress] if options.primary else [],
            block=[ANY_ADDRESS + "/0", "::/0"],
            is_boxed=self.is_sandboxed,
            port=options.port if options.is_open else 0,
            proxy=kind.type if self._is_reached_by_others(database, options) else "",
            proxy_address=ANY_ADDRESS,
            proxy_connections=kind.usable_connections(options),
            stop_signal=kind.stop_signal,
        )

    def _is_reached_by_others(self, database: Database, options: ServerOptions) -> bool:
        """Tell whether other machines may connect; never to replicas and scratch servers."""
        return options.is_open and options.primary is None and urls.is_public(self._settings, database)

    async def _until_ready(
        self, database: Database, key: str, access: Access, within_s: float = START_TIMEOUT_S
    ) -> None:
        """Wait until a server is ready; raises CannotStart if it exits or on timeout."""
        kind, loop = self.kind(database), asyncio.get_running_loop()
        deadline, tries = loop.time() + within_s, 0
        while not await asyncio.to_thread(kind.ping, access):
            state = self.engine.states().get(key)
            if state is None:
                raise CannotStart("its server exited during the start")
            if loop.time() > deadline or state.phase == "waiting":
                reason = state.reason or "it does not take connections"
                raise CannotStart(f"its server does not start: {reason}{await self._last_log_line(database)}")
            await asyncio.sleep(READY_POLL_INTERVALS_S[min(tries, len(READY_POLL_INTERVALS_S) - 1)])
            tries += 1

    async def _last_log_line(self, database: Database) -> str:
        lines = await self.logs.read(log_of(database), limit=MAX_SEARCHED_LINES)
        line = next((each for each in reversed(lines) if each.stream != "system"), None)
        return f" ({line.message[:MAX_LINE_CHARS]})" if line else ""


def _largest_mb(folder: Path) -> int:
    """Return the size of the largest file, the lower limit for RLIMIT_FSIZE."""
    sizes = (entry.stat(follow_symlinks=False).st_size for entry in folders.walk(folder, is_lenient=True))
    return max(sizes, default=0) // MB + 1


def _scratch_key(database: Database, folder: Path) -> str:
    """Return the engine key of a scratch server, by which a later attempt stops it."""
    return f"x{database.id}-{folder.name.strip('.').replace('.', '-')}"


def log_of(database: Database) -> str:
    """Return the name of the log of a database's servers."""
    return f"{LOGS}/{database.id}"


def _set_software(tx: Tx, org_id: int, database: Database, software: Software, version: str) -> None:
    """Record that a later release runs: it has replaced that of the last start."""
    choice = describe(software, database.version)
    values: dict[str, Any] = {"software": software.name, "engine_version": version}
    values |= {"engine_exact": choice.is_exact, "engine_note": choice.note}
    for name, value in values.items():
        tx.run(tables.SET[name], org_id=org_id, id=database.id, new=value, now=tx.now)


def servers_of(tx: Tx, org_id: int, database_id: int) -> list[Server]:
    return tx.all(tables.SERVERS_OF, org_id=org_id, database_id=database_id)


def primary_of(tx: Tx, org_id: int, database_id: int) -> Server | None:
    return next((each for each in servers_of(tx, org_id, database_id) if each.role == "primary"), None)


def add_server(tx: Tx, org_id: int, database_id: int, role: str, folder: str, port: int) -> Server:
    """Add the row of a server on the machine of its database; the caller creates its folder."""
    database = tx.find(tables.FIND_BY_ID, org_id=org_id, id=database_id)
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
        machine_id=database.machine_id if database is not None else tx.env.machine.id,
    )
    return get_server(tx, org_id, server_id)


def get_server(tx: Tx, org_id: int, server_id: int) -> Server:
    server = tx.find(tables.FIND_SERVER, org_id=org_id, id=server_id)
    if server is None:
        raise NotFound("There is no such server")
    return server


def set_server(tx: Tx, org_id: int, server: Server, name: str, value: Any) -> None:
    tx.run(tables.SET_SERVER[name], org_id=org_id, id=server.id, new=value, now=tx.now)


def forget_server(tx: Tx, org_id: int, server: Server) -> None:
    tx.run(tables.DELETE_SERVER, org_id=org_id, id=server.id)
