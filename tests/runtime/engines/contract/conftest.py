"""Engines that keep the contract. A further engine is another `Site`, and passes the same tests."""

from __future__ import annotations

import asyncio
import os
import shutil
import socket
import sys
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable
from http.client import HTTPConnection
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import quote

import pytest
from tests.runtime.engines import memory_engine
from tests.runtime.engines.contract.programs import SOURCE
from tests.runtime.engines.engine_support import APP_UID
from tests.runtime.engines.kubernetes import real_cluster
from tests.runtime.engines.kubernetes.api_server import LabCluster

from moorage.runtime.engines.kubernetes import engine as kubernetes_engine
from moorage.runtime.engines.kubernetes import options as kubernetes_options
from moorage.runtime.engines.kubernetes.client import Cluster
from moorage.runtime.engines.kubernetes.manifests import PodFiles
from moorage.runtime.engines.local import LocalReplicas
from moorage.runtime.engines.local_commands import LocalCommands
from moorage.runtime.engines.local_metrics import LocalMetrics
from moorage.runtime.engines.local_specs import LocalFiles
from moorage.runtime.engines.local_volumes import LocalVolumes
from moorage.runtime.engines.ports import AppSpec, Engine, ReplicaSpec, ReplicaState, RunSpec, ServerSpec
from moorage.runtime.logs.local import LocalLogs
from moorage.runtime.logs.logfile import LogFile

WAIT_S = 60.0
LOG = "apps/1"


class Site(Protocol):
    """Where an engine runs: it outlives the control process."""

    def connect(self) -> Engine:
        """Return the engine of a new control process."""
        ...

    def program(self, words: list[str]) -> dict[str, Any]:
        """Return the fields of a spec that start a program of the contract."""
        ...

    def close(self) -> None: ...


class MemorySite:
    def __init__(self) -> None:
        self._machine = memory_engine.Machine()

    def connect(self) -> Engine:
        return memory_engine.make_engine(self._machine)

    def program(self, words: list[str]) -> dict[str, Any]:
        return {"argv": words}

    def close(self) -> None:
        pass


class LocalSite:
    def __init__(self) -> None:
        self._home = Path(tempfile.mkdtemp(prefix="contract-"))
        self._home.chmod(0o755)
        for name in ("run", "logs", "volumes", "release"):
            (self._home / name).mkdir()
        (self._home / "release" / "main.py").write_text(SOURCE)

    def connect(self) -> Engine:
        home = self._home
        replicas = LocalReplicas(home / "run", logs=home / "logs", volumes=home / "volumes")
        volumes = LocalVolumes(home / "volumes", home / "trash")
        return Engine(
            workloads=replicas,
            logs=LocalLogs(home / "logs"),
            metrics=LocalMetrics(replicas.states, home / "volumes", is_sandboxed=True),
            volumes=volumes,
            commands=LocalCommands(volumes, home / "volumes"),
        )

    def program(self, words: list[str]) -> dict[str, Any]:
        python = Path(sys.executable).resolve()
        prefix = str(python.parent.parent)
        argv = [str(python), "main.py", *words] if words[0] != "missing" else words
        binds = {} if prefix in ("/usr", "/") else {prefix: prefix}
        return {
            "files": LocalFiles(release=str(self._home / "release"), binds=binds),
            "argv": argv,
            "uid": APP_UID if os.getuid() == 0 else 0,
        }

    def close(self) -> None:
        shutil.rmtree(self._home, ignore_errors=True)


class ClusterSite:
    """Any cluster, named by a kubeconfig."""

    drain_s = 0
    storage_class = ""
    run_patience_s = kubernetes_options.RUN_PATIENCE_S

    def __init__(self, kubeconfig: Path, prefix: str, patience_s: float) -> None:
        self._home = Path(tempfile.mkdtemp(prefix="contract-"))
        self._kubeconfig, self._prefix, self._patience_s = kubeconfig, prefix, patience_s
        self.namespace = f"{prefix}-org-0"
        self.writes: list[str] = []  # of all control processes

    def connect(self) -> Engine:
        options = kubernetes_options.Options(
            prefix=self._prefix,
            drain_s=self.drain_s,
            patience_s=self._patience_s,
            run_patience_s=self.run_patience_s,
            storage_class=self.storage_class,
        )
        client = Cluster.connect(str(self._kubeconfig), patience_s=10.0)
        real_cluster.count_writes(client, self.writes)
        return kubernetes_engine.make_engine(client, options, LocalLogs(self._home / "logs"), self._open_log)

    def _open_log(self, log: str, key: str, hidden: list[str], now: Callable[[], float]) -> LogFile:
        return LogFile(self._home / "logs" / log, key, hidden, now)

    def close(self) -> None:
        shutil.rmtree(self._home, ignore_errors=True)


class KubernetesSite(ClusterSite):
    """A cluster of the tests: an API server on loopback whose pods are real processes."""

    IMAGE = "registry.example/contract:1"

    def __init__(self) -> None:
        self.cluster = LabCluster()
        super().__init__(self.cluster.kubeconfig, "moorage", patience_s=2.0)
        (self._home / "image").mkdir()
        (self._home / "image" / "main.py").write_text(SOURCE)
        self.cluster.kubelet.images[self.IMAGE] = self._home / "image"

    def program(self, words: list[str]) -> dict[str, Any]:
        argv = [str(Path(sys.executable).resolve()), "main.py", *words] if words[0] != "missing" else words
        return {"files": PodFiles(org_id=0, image=self.IMAGE), "argv": argv}

    def close(self) -> None:
        self.cluster.close()
        super().close()


class RealClusterSite(ClusterSite):
    """The cluster of KUBECONFIG_TEST. Tests share it one after the other."""

    def __init__(self) -> None:
        self.cluster, self._image = real_cluster.shared(SOURCE)
        super().__init__(self.cluster.kubeconfig, real_cluster.fresh_prefix(), patience_s=30.0)

    def program(self, words: list[str]) -> dict[str, Any]:
        argv = ["python3", "main.py", *words] if words[0] != "missing" else words
        return {"files": PodFiles(org_id=0, image=self._image, workdir="/srv"), "argv": argv}

    def close(self) -> None:
        self.cluster.clear()
        super().close()


SITES: dict[str, type[MemorySite | LocalSite | KubernetesSite | RealClusterSite]] = {
    "memory": MemorySite,
    "local": LocalSite,
    "kubernetes": KubernetesSite,
    **({"real-cluster": RealClusterSite} if real_cluster.is_given() else {}),
}
# Where an engine differs from the contract, and which part of a cluster is the reason.
OF_CLUSTERS = {
    "test_open_connections_are_counted_for_a_drain": "the API counts no connections",
    "test_output_has_its_stream_and_its_workload": "the log API merges both streams",
    "test_a_command_has_two_streams_and_an_exit_code": "the log API merges both streams",
    "test_an_app_reaches_the_workloads_of_its_egress_rules_only": "the network of the cluster enforces policies",
}
DIFFERENCES = {"kubernetes": OF_CLUSTERS, "real-cluster": OF_CLUSTERS}


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "lab" in metafunc.fixturenames:
        name, others = metafunc.function.__name__, getattr(metafunc.module, "OTHER_SITES", ())
        sites = [site for site in SITES if site not in others and name not in DIFFERENCES.get(site, {})]
        metafunc.parametrize("lab", sites, indirect=True)


class Lab:
    """An engine, the specs of its workloads, and a client of them."""

    def __init__(self, site: Site) -> None:
        self.site = site
        self.engine = site.connect()
        self._tokens: dict[str, str] = {}

    def app(self, key: str = "r1", *words: str, **changed: Any) -> AppSpec:
        return AppSpec(**self._common(key, list(words) or ["serve"], changed))

    def server(self, key: str, port: int, **changed: Any) -> ServerSpec:
        return ServerSpec(**self._common(key, ["serve"], changed), port=port)

    def once(self, key: str = "c1", *words: str, **changed: Any) -> RunSpec:
        return RunSpec(**self._common(key, list(words) or ["exit", "0"], changed))

    def _common(self, key: str, words: list[str], changed: dict[str, Any]) -> dict[str, Any]:
        usual = {"key": key, "token": f"token-{key}", "env": {"PATH": "/usr/bin:/bin"}, "log": LOG}
        return {**usual, "memory_mb": 128, "pids": 64, **self.site.program(words), **changed}

    async def start(self, spec: ReplicaSpec) -> ReplicaState:
        """Start a workload; an app that serves also listens afterwards."""
        state = await self.engine.workloads.start(spec)
        self._tokens[spec.key] = spec.token
        if "serve" in spec.argv:
            state = await self.until(spec.key, lambda found: found.is_listening)
        return state

    async def restart(self, tokens: dict[str, str] | None = None) -> None:
        """Replace the control process, which adopts what runs."""
        await self.engine.workloads.close()
        self.engine = self.site.connect()
        await self.engine.workloads.adopt(self._tokens if tokens is None else tokens)

    def find(self, key: str) -> ReplicaState | None:
        return self.engine.workloads.states().get(key)

    async def until(self, key: str, is_so: Callable[[ReplicaState], bool]) -> ReplicaState:
        await self.wait_for(lambda: (state := self.find(key)) is not None and is_so(state))
        state = self.find(key)
        assert state is not None
        return state

    async def wait_for(self, is_so: Callable[[], bool | Awaitable[bool]], timeout_s: float = WAIT_S) -> None:
        async with asyncio.timeout(timeout_s):
            while True:
                answer = is_so()
                if answer if isinstance(answer, bool) else await answer:
                    return
                await asyncio.sleep(0.02)

    async def get(self, key: str, *order: str) -> str:
        """Send an order to an app, and return its answer."""
        state = self.find(key)
        assert state is not None
        return await asyncio.to_thread(_get, state, "/" + "/".join(quote(word, safe="") for word in order))

    async def lines(self, log: str = LOG, stream: str | None = None) -> list[str]:
        lines = await self.engine.logs.read(log, limit=1000)
        return [line.message for line in lines if stream in (None, line.stream)]

    async def printed(self, text: str, log: str = LOG) -> None:
        """Wait until a line is in a log."""

        async def is_there() -> bool:
            return text in await self.lines(log)

        await self.wait_for(is_there)


def _get(state: ReplicaState, path: str) -> str:
    client = HTTPConnection(state.host, state.port, timeout=WAIT_S)
    try:
        client.request("GET", path)
        return client.getresponse().read().decode()
    finally:
        client.close()


@pytest.fixture
async def lab(request: pytest.FixtureRequest) -> AsyncIterator[Lab]:
    site = SITES[request.param]()
    made = Lab(site)
    try:
        yield made
    finally:
        for key in list(made.engine.workloads.states()):
            await made.engine.workloads.stop(key, 0.0)
        await made.engine.workloads.close()
        site.close()


@pytest.fixture
def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as sock:
        return int(sock.getsockname()[1])
