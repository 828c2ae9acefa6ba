"""Database servers as pods of the cluster of the tests: real servers behind real agents."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec
from tests.ports import free_port
from tests.runtime.database_servers.server_support import find_software
from tests.runtime.engines.kubernetes.api_server import LabCluster

import moorage
from moorage.core.kit.clock import SystemClock
from moorage.runtime.database_servers.agent import certificates, model
from moorage.runtime.database_servers.agent.client import AgentClient
from moorage.runtime.database_servers.agent.model import AgentConfig
from moorage.runtime.database_servers.agent.remote import RemoteKind, RemoteQueries
from moorage.runtime.database_servers.ports import Access, Credentials, ServerOptions, Software
from moorage.runtime.engines.kubernetes.client import Cluster
from moorage.runtime.engines.kubernetes.engine import make_engine
from moorage.runtime.engines.kubernetes.options import Options
from moorage.runtime.engines.ports import Engine, ServerSpec
from moorage.runtime.logs.local import LocalLogs
from moorage.runtime.logs.logfile import LogFile

IMAGE = "registry.example/databases:1"
MEMORY_MB = 256
MAX_FILE_BYTES = 2**30


def folders_of_the_image() -> tuple[Path, ...]:
    """Return the folders of this machine that the image of databases has: the environment, and the source."""
    return Path(sys.prefix), Path(moorage.__file__).parents[1]


@dataclass
class DatabasePod:
    """A server with the parts of the platform that the product makes."""

    engine: Engine
    software: Software
    number: int
    port: int = field(default_factory=free_port)
    folder: str = "s1"
    credentials: Credentials = field(default_factory=lambda: Credentials("captain", "hunter2-hunter2", "harbor"))
    token: str = "token"
    archives: bool = False

    def __post_init__(self) -> None:
        self.key, self.name, self.volume = f"d{self.number}", f"database-{self.number}", f"database-{self.number}"
        self.certificates = certificates.make(self.name, SystemClock().now())
        self.client = AgentClient(self.name, self.certificates, self.host, lambda: MAX_FILE_BYTES)
        self.kind, self.queries = RemoteKind(lambda: self.client, self.software.type), RemoteQueries(self.client)

    @property
    def access(self) -> Access:
        return Access(self.folder, self.port, "admin-password-of-the-platform")

    def host(self) -> str | None:
        state = self.engine.workloads.states().get(self.key)
        return state.host if state is not None else None

    def spec(self, **changed: Any) -> ServerSpec:
        assert self.engine.agents is not None
        program = self.engine.agents.program(0)
        config = AgentConfig(
            database_id=self.number,
            type=self.software.type,
            software=self.software.name,
            folder=self.folder,
            options=ServerOptions(port=self.port, memory_mb=MEMORY_MB, cpu=1.0, archives=self.archives),
            name=self.name,
            authority=self.certificates.authority,
            certificate=self.certificates.server,
            key=self.certificates.server_key,
        )
        usual: dict[str, Any] = {
            "key": self.key,
            "token": self.token,
            "name": self.name,
            "argv": program.argv,
            "env": {model.VARIABLE: msgspec.json.encode(config).decode()},
            "files": program.files,
            "log": f"databases/{self.number}",
            "volume": self.volume,
            "memory_mb": MEMORY_MB,
            "port": self.port,
            "agent_port": model.PORT,
        }
        return ServerSpec(**{**usual, **changed})


class DatabaseSite:
    def __init__(self, patience_s: float = 3.0) -> None:
        self.cluster = LabCluster()
        self.cluster.set_room(has_room=True)
        self.cluster.kubelet.machine_images[IMAGE] = folders_of_the_image()
        self._home = Path(tempfile.mkdtemp(prefix="databases-"))
        self._options = Options(kind="server", agent_image=IMAGE, patience_s=patience_s)

    def connect(self) -> Engine:
        client = Cluster.connect(str(self.cluster.kubeconfig), patience_s=10.0)
        return make_engine(client, self._options, LocalLogs(self._home / "logs"), self._open_log)

    def _open_log(self, log: str, key: str, hidden: list[str], now: Callable[[], float]) -> LogFile:
        return LogFile(self._home / "logs" / log, key, hidden, now)

    def close(self) -> None:
        self.cluster.close()


def software_of(type_: str) -> Software:
    return find_software({"postgresql": "postgresql-16.", "mysql": "mariadb-"}[type_])
