"""Servers behind agents: an engine runs them on its own volumes, and the platform calls them over mutual TLS."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Collection
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path

import msgspec

from moorage.core.db.store import Database as Store
from moorage.core.db.tx import Tx
from moorage.core.kit import folders as local_folders
from moorage.core.kit.decoding import decode
from moorage.core.vault import service as vault
from moorage.products.databases.hosts.agent_physical import AgentPhysicalBackups
from moorage.products.databases.hosts.ports import CERTIFICATES, FOLDER_GONE, FolderGone, Secrets
from moorage.products.databases.tables import Database, Server
from moorage.runtime.database_servers.agent import certificates, model
from moorage.runtime.database_servers.agent.certificates import Certificates
from moorage.runtime.database_servers.agent.client import AgentAway, AgentClient
from moorage.runtime.database_servers.agent.model import AgentConfig
from moorage.runtime.database_servers.agent.remote import ANSWER_TIMEOUT_S, RemoteKind, RemoteQueries
from moorage.runtime.database_servers.ports import Access, ServerFailed, ServerKind, ServerOptions, Software
from moorage.runtime.database_servers.queries.model import QueryRunner
from moorage.runtime.database_servers.server_folders import Restored
from moorage.runtime.engines.ports import Agents, CannotStart, Engine, ServerSpec

AGENT_MB = 128  # memory of an agent and its tools, beyond that of the tier
MIN_SCRATCH_MB = 64
SCRATCH_SHARE = 4  # A scratch server shares the memory of the pod with the server of the database.
DISK_SHARE = 2  # A restore builds the new data beside the current one, so a volume has room for both.
STOP_GRACE_S = 60.0
AGENT_TIMEOUT_S = 60.0  # for the agent of a pod that runs
POLL_S = 0.1
MB_OF_GB = 1024
MB = 2**20
MAX_PIDS = 1024


def _volume_mb(database: Database) -> int:
    return database.tier.disk * MB_OF_GB * DISK_SHARE


class _Clients:
    """Clients of agents, by database. They are made from the secrets that each use reads anyway."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._clients: dict[int, tuple[str, AgentClient]] = {}
        self._keys: dict[int, str] = {}  # of the workload
        self._names: dict[int, str | None] = {}
        self._volumes_mb: dict[int, int] = {}  # sizes, which a change of the tier changes

    def of(self, database: Database) -> AgentClient:
        """Return the client; raises ServerFailed before `learn` was called."""
        found = self._clients.get(database.id)
        if found is None:
            raise ServerFailed("the database has no server yet")
        return found[1]

    def learn(self, database: Database, server: Server, agent: str | None) -> None:
        self._keys[database.id], self._names[database.id] = server.key, database.host
        self._volumes_mb[database.id] = _volume_mb(database)
        known = self._clients.get(database.id)
        if agent is None or (known is not None and known[0] == agent):
            return
        own = decode(agent, Certificates)
        client = AgentClient(
            database.workload, own, partial(self._host, database.id), lambda: self._volumes_mb[database.id] * MB
        )
        self._clients[database.id] = (agent, client)

    def forget(self, database: Database) -> None:
        for known in (self._clients, self._keys, self._names, self._volumes_mb):
            known.pop(database.id, None)

    def _host(self, database_id: int) -> str | None:
        """Return the address of the pod; a process that does not run workloads knows the name only."""
        state = self._engine.workloads.states().get(self._keys[database_id])
        if state is not None:
            return state.host or None
        return self._names[database_id]


class AgentFolders:
    def __init__(self, clients: _Clients) -> None:
        self._clients = clients

    async def make(self, database: Database, software: Software, folder: str) -> None:
        await asyncio.to_thread(self._clients.of(database).call, "make_folder", folder)

    async def remove(self, database: Database, folder: str) -> None:
        await asyncio.to_thread(self._clients.of(database).call, "remove_folder", folder)

    async def find_restored(self, database: Database, job_id: int) -> Restored | None:
        call = partial(self._clients.of(database).call, "find_restored", job_id, returns=Restored | None)
        found: Restored | None = await asyncio.to_thread(call)
        return found if found is not None and found.is_valid else None

    async def finish_restored(self, database: Database, building: str, job_id: int, replaces: str) -> Restored:
        client = self._clients.of(database)
        call = partial(client.call, "finish_restored", building, job_id, replaces, returns=Restored)
        found: Restored = await asyncio.to_thread(call)
        if not found.is_valid:  # Programs of the tenant may have changed the agent.
            raise ServerFailed(f"the agent named its folder {found.folder!r}")
        return found

    async def mark_superseded(self, database: Database, folder: str, now: int) -> None:
        await asyncio.to_thread(self._clients.of(database).call, "mark_superseded", folder, now)

    async def sweep(self, database: Database, used: Collection[str], superseded: int, abandoned: int) -> None:
        with contextlib.suppress(ServerFailed):  # A database that does not run is swept when it does.
            client = self._clients.of(database)
            call = partial(client.call, "sweep", list(used), superseded, abandoned, timeout_s=ANSWER_TIMEOUT_S)
            await asyncio.to_thread(call)


class AgentTrash:
    """Volumes in the trash keep their files until they are purged."""

    def __init__(self, agents: Agents, clients: _Clients, local: Path) -> None:
        self._agents = agents
        self._clients = clients
        self._local = local  # with files of backups on their way

    async def put(self, database: Database) -> None:
        self._clients.forget(database)
        await self._agents.discard(database.workload)
        await asyncio.to_thread(local_folders.remove, self._local / str(database.id))

    async def take_back(self, database: Database) -> None:
        await self._agents.take_back(database.workload)

    async def purge(self, database: Database) -> None:
        await self._agents.purge(database.workload)


class AgentHost:
    has_agents = True

    def __init__(self, db: Store, engine: Engine, agents: Agents) -> None:
        self._db = db
        self._agents = agents
        self._engine = engine
        self._clients = _Clients(engine)
        self._local = db.env.settings.folder("databases")
        self.folders = AgentFolders(self._clients)
        self.trash = AgentTrash(agents, self._clients, self._local)
        self.physical = AgentPhysicalBackups(self._clients.of)

    def kind(self, database: Database) -> ServerKind:
        return RemoteKind(partial(self._clients.of, database), database.engine)

    def runner(self, database: Database) -> QueryRunner:
        return RemoteQueries(self._clients.of(database))

    def access(self, database: Database, server: Server, secrets: Secrets) -> Access:
        self._clients.learn(database, server, secrets.agent)
        return Access(server.folder, server.port, secrets.admin)

    async def prepare(
        self, database: Database, server: Server, options: ServerOptions, new: Software | None
    ) -> ServerSpec:
        own = await self._db.write(partial(self._ensure_certificates, org_id=database.org_id, database=database))
        self._clients.learn(database, server, msgspec.json.encode(own).decode())
        disk_mb = _volume_mb(database)
        await self._agents.ensure_volume(database.org_id, database.workload, disk_mb)
        program = self._agents.program(database.org_id)
        config = AgentConfig(
            database_id=database.id,
            type=database.engine,
            software=database.software or "",
            folder=server.folder,
            options=options,
            name=database.workload,
            authority=own.authority,
            certificate=own.server,
            key=own.server_key,
        )
        return ServerSpec(
            key=server.key,
            token=server.token,
            name=database.workload,
            argv=program.argv,
            env={**program.env, model.VARIABLE: msgspec.json.encode(config).decode()},
            files=program.files,
            log=f"databases/{database.id}",
            volume=database.workload,
            disk_mb=disk_mb,
            cpu=options.cpu,
            memory_mb=options.memory_mb + AGENT_MB,
            pids=MAX_PIDS,
            port=options.port,
            agent_port=model.PORT,
        )

    def _ensure_certificates(self, tx: Tx, org_id: int, database: Database) -> Certificates:
        stored = vault.find(tx, org_id, database.resource, CERTIFICATES)
        if stored is not None and (own := decode(stored, Certificates)).is_current(tx.now):
            return own
        made = certificates.make(database.workload, tx.now)
        vault.put(tx, org_id, database.resource, CERTIFICATES, msgspec.json.encode(made).decode())
        return made

    async def started(self, database: Database, server: Server, new: Software | None) -> None:
        """Wait for the agent; it fills the folder of a new server, and starts the server."""
        if not await self._has_folder(database, server):
            if new is None:
                raise FolderGone(FOLDER_GONE)
            await self.folders.make(database, new, server.folder)

    async def _has_folder(self, database: Database, server: Server) -> bool:
        call = partial(self._clients.of(database).call, "has_folder", server.folder, returns=bool)
        loop = asyncio.get_running_loop()
        deadline = loop.time() + AGENT_TIMEOUT_S
        while True:
            try:
                return bool(await asyncio.to_thread(call, timeout_s=ANSWER_TIMEOUT_S))
            except AgentAway as error:
                state = self._engine.workloads.states().get(server.key)
                if state is None or state.phase == "waiting" or loop.time() > deadline:
                    why = state.reason if state is not None and state.reason else str(error)
                    raise CannotStart(f"its server does not start: {why}") from None
                await asyncio.sleep(POLL_S)

    @asynccontextmanager
    async def scratch(self, database: Database, folder: str, options: ServerOptions) -> AsyncIterator[Access]:
        client = self._clients.of(database)
        secrets = await self._db.read(lambda tx: vault.find(tx, database.org_id, database.resource, "admin"))
        # A recovery accepts connections only at its end, so the WAL does not ask for the settings of its server.
        memory_mb = max(MIN_SCRATCH_MB, options.memory_mb // SCRATCH_SHARE)
        access = Access(folder, options.port, secrets or "")
        smaller = replace(options, memory_mb=memory_mb)
        try:
            await asyncio.to_thread(client.call, "start_scratch", folder, smaller, access.password)
            yield access
        finally:
            with contextlib.suppress(ServerFailed):  # It ended with its agent.
                await asyncio.to_thread(client.call, "stop_scratch", folder, STOP_GRACE_S)

    def used_bytes(self, database: Database, server: Server) -> int:
        client = self._clients.of(database)
        return int(client.call("used_bytes", server.folder, returns=int, timeout_s=ANSWER_TIMEOUT_S))
