"""Database servers behind agents: created, used, restarted and deleted, as pods of a cluster."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import psycopg
import pymysql
import pytest
from tests.runtime.engines.kubernetes.database_pods import DatabasePod, DatabaseSite, software_of

from moorage.core.kit.clock import SystemClock
from moorage.products.databases.hosts.agent_physical import AgentPhysicalBackups
from moorage.products.databases.tables import Database
from moorage.runtime.database_servers.agent import certificates
from moorage.runtime.database_servers.agent.certificates import Certificates
from moorage.runtime.database_servers.agent.client import AgentAway, AgentClient
from moorage.runtime.database_servers.ports import SCRATCH_PORT, Access, Recovery, ServerFailed, ServerOptions
from moorage.runtime.database_servers.queries.model import StatementFailed, Watchdog
from moorage.runtime.database_servers.server_folders import WORK, Restored
from moorage.runtime.engines.kubernetes import observing
from moorage.runtime.engines.ports import CannotStart, Engine

WAIT_S = 60.0
NAMESPACE = "moorage-org-0"
KINDS = ("postgresql", pytest.param("mysql", marks=pytest.mark.twin))
pytestmark = pytest.mark.anyio


class Yard:
    """An engine with database pods."""

    def __init__(self) -> None:
        self.site = DatabaseSite()
        self.cluster = self.site.cluster
        self.engine: Engine = self.site.connect()
        self.pods: list[DatabasePod] = []

    def make(self, type_: str) -> DatabasePod:
        pod = DatabasePod(self.engine, software_of(type_), len(self.pods) + 1)
        self.pods.append(pod)
        return pod

    async def create(self, type_: str, *, archives: bool = False) -> DatabasePod:
        """Create a database as the product does."""
        pod = self.make(type_)
        pod.archives = archives
        await self.engine.volumes.ensure(pod.volume, uid=0, size_mb=500)
        await self.engine.workloads.start(pod.spec())
        await self.until(lambda: answers(pod))
        await asyncio.to_thread(pod.client.call, "make_folder", pod.folder)
        await self.until(lambda: pod.kind.ping(pod.access))
        await asyncio.to_thread(pod.kind.set_admin_password, pod.software, pod.access)
        await asyncio.to_thread(pod.kind.provision, pod.access, pod.credentials, None)
        return pod

    async def restart(self, pod: DatabasePod, **changed: Any) -> None:
        await self.engine.workloads.stop(pod.key, 30.0)
        await self.engine.workloads.start(pod.spec(**changed))
        await self.until(lambda: answers(pod) and pod.kind.ping(pod.access))

    async def until(self, condition: Callable[[], object]) -> None:
        deadline = time.monotonic() + WAIT_S
        while not await asyncio.to_thread(condition):
            assert time.monotonic() < deadline, "waited too long"
            await asyncio.sleep(0.05)

    def volume_of(self, pod: DatabasePod) -> Path:
        """Return the folder of the node that a claim is bound to."""
        [claim] = self.cluster.objects("PersistentVolumeClaim", f"moorage.dev/volume={pod.volume}")
        return self.cluster.kubelet.volumes / NAMESPACE / str(claim["metadata"]["name"])

    async def close(self) -> None:
        for key in list(self.engine.workloads.states()):
            await self.engine.workloads.stop(key, 0.0)
        await self.engine.workloads.close()
        self.site.close()


def answers(pod: DatabasePod) -> bool:
    try:
        pod.client.call("has_folder", pod.folder, returns=bool)
    except AgentAway:
        return False
    return True


def execute(pod: DatabasePod, *statements: str) -> list[Any]:
    """Run statements as the tenant, over TCP at the address of the pod."""
    own, connection = pod.credentials, None
    login: dict[str, Any] = {"host": pod.host(), "port": pod.port, "user": own.username, "password": own.password}
    if pod.software.type == "postgresql":
        connection = psycopg.connect(**login, dbname=own.database, autocommit=True)
    else:
        connection = pymysql.connect(**login, database=own.database, autocommit=True)
    with connection, connection.cursor() as cursor:
        for statement in statements:
            cursor.execute(statement)
        return [tuple(row) for row in cursor.fetchall()] if cursor.description else []


def pid_outside(container: int, inside: int) -> int:
    """Return the process of this machine that has a number in the namespace of a container."""
    for path in Path("/proc").glob("[0-9]*/status"):
        try:
            lines = dict(line.split(":", 1) for line in path.read_text().splitlines() if ":" in line)
        except OSError:
            continue
        if lines["NSpid"].split()[-1] == str(inside) and os.readlink(path.parent / "ns/pid") == os.readlink(
            f"/proc/{container}/ns/pid"
        ):
            return int(path.parent.name)
    raise AssertionError(f"no process {inside} in the container")


@pytest.fixture
async def yard() -> AsyncIterator[Yard]:
    made = Yard()
    try:
        yield made
    finally:
        await made.close()


@pytest.mark.parametrize("type_", KINDS)
async def test_a_database_keeps_its_data_when_its_pod_is_restarted_deleted_or_resized(yard: Yard, type_: str) -> None:
    pod = await yard.create(type_)
    await asyncio.to_thread(execute, pod, "CREATE TABLE ships (name varchar(20))", "INSERT INTO ships VALUES ('gull')")

    await yard.restart(pod, memory_mb=512)
    after_restart = await asyncio.to_thread(execute, pod, "SELECT name FROM ships")
    yard.cluster.delete("Pod", NAMESPACE, f"{pod.key}-0", gracePeriodSeconds=30)
    await yard.until(lambda: not any(map(observing.is_leaving, yard.cluster.objects("Pod"))))
    await yard.until(lambda: answers(pod) and pod.kind.ping(pod.access))
    after_deletion = await asyncio.to_thread(execute, pod, "SELECT name FROM ships")

    assert (after_restart, after_deletion) == ([("gull",)], [("gull",)])


@pytest.mark.parametrize("type_", KINDS)
async def test_a_dump_is_downloaded_and_loaded_into_a_scratch_server(yard: Yard, type_: str, tmp_path: Path) -> None:
    pod = await yard.create(type_)
    await asyncio.to_thread(execute, pod, "CREATE TABLE ships (name varchar(20))", "INSERT INTO ships VALUES ('gull')")
    scratch = Access("restore-1", SCRATCH_PORT, pod.access.password)
    options = ServerOptions(port=SCRATCH_PORT, memory_mb=64, cpu=1.0, is_open=False)

    def story() -> tuple[int, dict[str, int], Any, list[str]]:
        pod.kind.dump(pod.software, pod.access, pod.credentials, tmp_path / "dump")
        tables = pod.kind.check(pod.software, tmp_path / "dump")
        pod.client.call("make_folder", scratch.folder)
        pod.client.call("start_scratch", scratch.folder, options, scratch.password)
        pod.kind.set_admin_password(pod.software, scratch)
        pod.kind.provision(scratch, pod.credentials, None)
        pod.kind.load(pod.software, scratch, pod.credentials, tmp_path / "dump")
        rows = pod.kind.count_rows(scratch, pod.credentials)
        pod.client.call("stop_scratch", scratch.folder, 10.0)
        restored = pod.client.call("finish_restored", scratch.folder, 7, "s1", returns=Restored)
        found = pod.client.call("find_restored", 7, returns=Restored | None)
        left = os.listdir(yard.volume_of(pod) / WORK)
        return tables, rows, (restored, found), left

    tables, rows, (restored, found), left = await asyncio.to_thread(story)

    assert (tables, list(rows.values())) == (1, [1])
    assert restored == found == Restored("s2", "s1")
    assert left == []


async def test_a_base_backup_and_its_wal_bring_a_moment_back(yard: Yard, tmp_path: Path) -> None:
    pod = await yard.create("postgresql", archives=True)
    physical = AgentPhysicalBackups(lambda _: pod.client)
    found = cast(Database, SimpleNamespace(disk_bytes=0))
    options = ServerOptions(port=SCRATCH_PORT, memory_mb=64, cpu=1.0, is_open=False)
    scratch = Access("restore-1", SCRATCH_PORT, pod.access.password)
    await asyncio.to_thread(execute, pod, "CREATE TABLE ships (n int)")

    files, first = await physical.copy(found, pod.software, pod.access, tmp_path / "backup")
    await asyncio.to_thread(execute, pod, "INSERT INTO ships VALUES (1)")
    moment = time.time_ns() // 1_000_000 + 1
    await asyncio.sleep(0.1)
    await asyncio.to_thread(execute, pod, "INSERT INTO ships VALUES (2)")
    await physical.finish_segment(found, pod.access)
    archived = await physical.archived(found, pod.folder)
    await physical.begin_recovery(found, tmp_path / "backup", scratch.folder)
    for name in archived:
        await physical.fetch_wal(found, pod.folder, name, tmp_path / "wal")
        await physical.add_wal(found, scratch.folder, name, tmp_path / "wal")
        await physical.drop_wal(found, pod.folder, name)
    await physical.end_recovery(found, pod.software, scratch.folder)

    def replay() -> dict[str, int]:
        recovery = replace(options, recovery=Recovery(moment))
        pod.client.call("start_scratch", scratch.folder, recovery, scratch.password)
        try:
            return pod.kind.count_rows(scratch, pod.credentials)
        finally:
            pod.client.call("stop_scratch", scratch.folder, 10.0)

    rows = await asyncio.to_thread(replay)
    await physical.remove_wal(found, scratch.folder)

    assert files > 100
    assert first in archived
    assert list(rows.values()) == [1]
    assert await physical.archived(found, pod.folder) == []
    assert os.listdir(yard.volume_of(pod) / WORK) == []
    assert not (yard.volume_of(pod) / scratch.folder / "wal").exists()


async def test_an_agent_keeps_to_the_names_of_wal_files_and_to_the_room_of_its_volume(
    yard: Yard, tmp_path: Path
) -> None:
    pod = await yard.create("postgresql", archives=True)
    physical = AgentPhysicalBackups(lambda _: pod.client)
    (tmp_path / "file").write_bytes(b"x")
    small = cast(Database, SimpleNamespace(disk_bytes=0))

    for name in ("../wal", "postgresql.conf"):
        with pytest.raises(ServerFailed, match="no name of"):
            await physical.add_wal(small, pod.folder, name, tmp_path / "file")
    with pytest.raises(ServerFailed, match="no name of a folder"):
        await physical.drop_wal(small, pod.folder, "../moorage.json")
    large = cast(Database, SimpleNamespace(disk_bytes=1 << 60))
    with pytest.raises(ServerFailed, match="no room for the restored data"):
        await physical.begin_recovery(large, tmp_path / "file", "restore-1")
    with pytest.raises(ServerFailed, match="the copy is broken"):
        await physical.begin_recovery(small, tmp_path / "file", "restore-1")
    with pytest.raises(ServerFailed, match="WAL file is broken"):  # A WAL file needs no room for a whole database.
        await physical.add_wal(large, "restore-1", "000000010000000000000001", tmp_path / "file")
    away = AgentPhysicalBackups(lambda _: AgentClient(pod.name, pod.certificates, lambda: None, lambda: 0))

    assert await away.archived(small, pod.folder) == []
    assert os.listdir(yard.volume_of(pod) / WORK) == []


async def test_statements_of_users_run_in_the_pod_and_end_when_they_are_cancelled(yard: Yard) -> None:
    pod = await yard.create("postgresql")
    run = partial(pod.queries.run, pod.access, pod.credentials, may_write=False)

    answer = await asyncio.to_thread(run, "SELECT 1 AS one, 'gull' AS name", watchdog=Watchdog())
    with pytest.raises(StatementFailed) as refused:
        await asyncio.to_thread(run, "SELECT missing", watchdog=Watchdog())
    watchdog = Watchdog()
    slow = asyncio.create_task(asyncio.to_thread(run, "SELECT pg_sleep(9)", watchdog=watchdog))
    await asyncio.sleep(0.5)
    await asyncio.to_thread(watchdog.fire)
    with pytest.raises(StatementFailed):
        await slow
    counters = await asyncio.to_thread(pod.kind.session(pod.access).counters)

    assert ([column.name for column in answer.columns], answer.rows) == (["one", "name"], [[1, "gull"]])
    assert (refused.value.state, refused.value.position) == ("42703", 8)
    assert counters.max_connections > 0


@pytest.mark.boundary(
    "tenant-to-tenant",
    "An agent of a database in a cluster serves only clients with the certificate of its own database.",
)
async def test_an_agent_serves_only_the_platform(yard: Yard) -> None:
    pod = await yard.create("postgresql")
    strange = certificates.make(pod.name, SystemClock().now())
    other = certificates.make("database-99", SystemClock().now())
    mixed = Certificates(pod.certificates.authority, "", "", other.client, other.client_key)

    for own in (strange, mixed):
        with pytest.raises(AgentAway):
            await asyncio.to_thread(AgentClient(pod.name, own, pod.host, lambda: 0).call, "ping", pod.access)
    with pytest.raises(AgentAway):
        await asyncio.to_thread(
            AgentClient("database-99", pod.certificates, pod.host, lambda: 0).call, "ping", pod.access
        )
    with pytest.raises(ServerFailed, match="no name of a folder"):
        await asyncio.to_thread(pod.client.call, "remove_folder", "../s1")
    assert await asyncio.to_thread(pod.kind.ping, pod.access)


async def test_a_server_that_dies_is_started_again_and_the_engine_has_the_reason(yard: Yard) -> None:
    pod = await yard.create("postgresql")
    postmaster = int((yard.volume_of(pod) / "s1" / "data" / "postmaster.pid").read_text().splitlines()[0])
    [inner] = [run for run in yard.cluster.kubelet.pods.values() if run.process is not None]
    assert inner.process is not None

    os.kill(pid_outside(inner.process.pid, postmaster), signal.SIGKILL)
    await yard.until(lambda: yard.engine.workloads.states()[pod.key].restarts == 1)
    await yard.until(lambda: answers(pod) and pod.kind.ping(pod.access))

    state = yard.engine.workloads.states()[pod.key]
    assert (state.phase, state.reason) == ("running", "it was ended by SIGKILL")


async def test_a_database_without_room_in_the_quota_says_so_and_starts_when_there_is_some(yard: Yard) -> None:
    pod = yard.make("postgresql")
    await yard.engine.volumes.ensure(pod.volume, uid=0, size_mb=500)
    yard.cluster.limit_pods(NAMESPACE, 0)

    with pytest.raises(CannotStart, match=r"quota of the organization in the cluster is used up .*exceeded quota"):
        await yard.engine.workloads.start(pod.spec())
    during = yard.engine.workloads.states()[pod.key]
    yard.cluster.limit_pods(NAMESPACE, 10)
    await yard.until(lambda: yard.engine.workloads.states()[pod.key].phase == "running")

    assert during.phase == "starting"
    assert "exceeded quota" in str(during.reason)


async def test_a_claim_that_cannot_be_bound_is_named_and_the_pod_starts_once_it_is(yard: Yard) -> None:
    pod = yard.make("postgresql")
    yard.cluster.controllers.storage_classes = ()
    await yard.engine.volumes.ensure(pod.volume, uid=0, size_mb=500)

    with pytest.raises(CannotStart, match="its volume cannot be used yet"):
        await yard.engine.workloads.start(pod.spec())
    yard.cluster.controllers.storage_classes = ("",)
    yard.cluster.set_room(has_room=True)

    await yard.until(lambda: yard.engine.workloads.states()[pod.key].phase == "running")


async def test_a_new_control_process_adopts_a_database_and_an_idle_one_writes_nothing(yard: Yard) -> None:
    pod = await yard.create("postgresql")
    await yard.engine.workloads.close()
    pod.engine = yard.engine = yard.site.connect()

    await yard.engine.workloads.adopt({pod.key: pod.token})
    before = yard.cluster.writes
    alive = await asyncio.to_thread(pod.kind.ping, pod.access)
    await yard.engine.workloads.look(pod.key)
    await asyncio.sleep(1.0)

    assert (alive, yard.cluster.writes - before) == (True, 0)


async def test_a_deleted_database_leaves_a_claim_in_the_trash_that_comes_back_or_goes(yard: Yard) -> None:
    pod = await yard.create("postgresql")
    agents = yard.engine.agents
    assert agents is not None
    await yard.engine.workloads.stop(pod.key, 30.0)

    await agents.discard(pod.volume)
    discarded = await yard.engine.volumes.names()
    await agents.take_back(pod.volume)
    returned = await yard.engine.volumes.names()
    await agents.discard(pod.volume)
    await agents.purge(pod.volume)
    await yard.until(lambda: not yard.cluster.objects("PersistentVolumeClaim"))

    assert (discarded, returned) == ([], [pod.volume])
    await yard.until(lambda: not yard.cluster.objects("Service"))
    assert yard.cluster.objects("Secret") == []
