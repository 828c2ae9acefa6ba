"""Real database servers for tests, started by the local engine.

Each runs as its own Unix user. `server_story` runs with a copy of this file, without the other tests.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import itertools
import os
import secrets
import shutil
import signal
import tempfile
import threading
import time
from collections.abc import Callable, Coroutine, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import psycopg
import pymysql
from tests.ports import free_port

from moorage.core.kit import folders
from moorage.runtime.database_servers.kinds import kind_of
from moorage.runtime.database_servers.ports import (
    SCRATCH_PORT,
    Access,
    Credentials,
    Recovery,
    ServerKind,
    ServerOptions,
    Software,
)
from moorage.runtime.database_servers.postgres import dumps as postgres_dumps
from moorage.runtime.database_servers.software.catalog import SoftwareCatalog, shared_folder
from moorage.runtime.engines.local import LocalReplicas
from moorage.runtime.engines.ports import Egress, ReplicaState, ServerSpec

T = TypeVar("T")
WAIT_S = 90.0
FIRST_UID = 610_000_000
MEMORY_MB = 256
POSTGRESQL, POSTGRESQL_14, MARIADB = "postgresql-16.", "postgresql-14.", "mariadb-"
REFUSALS = (psycopg.Error, pymysql.MySQLError)
_numbers = itertools.count(1)


def find_software(name: str) -> Software:
    """Return the software with this name prefix, which `make setup` installs."""
    catalog = SoftwareCatalog([shared_folder()], shared_folder())
    return next(each for each in catalog.installed() if each.name.startswith(name))


def until(condition: Callable[[], T], what: str) -> T:
    deadline = time.monotonic() + WAIT_S
    while True:
        found = condition()
        if found:
            return found
        assert time.monotonic() < deadline, f"waited too long for {what}"
        time.sleep(0.01)


@dataclass
class Server:
    """A server of a test."""

    lab: Lab
    software: Software
    folder: Path
    options: ServerOptions
    is_boxed: bool = True
    uid: int = 0
    key: str = field(default_factory=lambda: f"d{next(_numbers)}")
    admin: str = field(default_factory=lambda: secrets.token_urlsafe(24))
    names: Credentials = field(default_factory=lambda: Credentials("keeper_1", secrets.token_urlsafe(24), "har_bour"))

    @property
    def kind(self) -> ServerKind:
        return kind_of(self.software.type)

    @property
    def access(self) -> Access:
        return Access(str(self.folder), self.options.port, self.admin)

    @property
    def paths(self) -> dict[str, str]:
        """Return the paths of software and folder as the server sees them."""
        outside = {"home": self.software.home, "inside": str(self.folder)}
        return {"home": "/work", "inside": "/data"} if self.is_boxed else outside

    def fill(self) -> None:
        self.folder.mkdir(parents=True, mode=0o700)
        self.kind.fill(self.software, self.folder)
        self.own()

    def own(self) -> None:
        if self.uid:
            folders.change_owner(self.folder, self.uid)

    def copy_of(self, other: Server) -> None:
        """Copy the folder of a stopped server."""
        shutil.copytree(other.folder, self.folder, symlinks=True)
        self.admin, self.names = other.admin, other.names
        self.own()

    def be(self, **changed: Any) -> None:
        self.options = dataclasses.replace(self.options, **changed)

    def recover(self, pieces: Path, moment_ms: int) -> None:
        """Configure recovery up to a point in time for the next start."""
        shutil.copytree(pieces, self.folder / "wal")
        self.own()
        self.be(recovery=Recovery(moment_ms))

    def start(self) -> ReplicaState:
        """Write the configuration, start the server, and wait until it is ready."""
        self.kind.configure(self.software, self.folder, self.options, **self.paths)
        state = self.lab.run(self.lab.engine.start(self._spec()))
        until(lambda: self.kind.ping(self.access), f"{self.software.name}: {self.log()}")
        return state

    def settle(self, replica_password: str | None = None) -> None:
        """Replace the template's password, and create user and database."""
        self.kind.set_admin_password(self.software, self.access)
        self.kind.provision(self.access, self.names, replica_password)

    def stop(self, grace_s: float = 30.0) -> None:
        self.lab.run(self.lab.engine.stop(self.key, grace_s))

    def look(self) -> ReplicaState:
        state = self.lab.run(self.lab.engine.look(self.key))
        assert state is not None, self.log()
        return state

    def log(self) -> str:
        files = sorted((self.lab.home / "logs" / self.key).glob("**/*")) if self.lab.home.exists() else []
        return "\n".join(path.read_text(errors="replace")[-2000:] for path in files if path.is_file())

    def _spec(self) -> ServerSpec:
        env = {name: value.format(home=self.paths["home"]) for name, value in self.software.env.items()}
        return ServerSpec(
            key=self.key,
            token=f"token-of-{self.key}",
            argv=self.kind.argv(self.software, self.options, **self.paths),
            env={"PATH": "/usr/bin:/bin", "HOME": "/tmp", **env},
            files=self.software.files,
            log=str(self.lab.home / "logs" / self.key),
            volume=str(self.folder),
            disk_mb=self.options.disk_mb,
            cpu=2.0,
            memory_mb=max(512, self.options.memory_mb),
            uid=self.uid,
            egress=[Egress("primary", self.options.primary.address)] if self.options.primary else [],
            port=self.options.port,
            stop_signal=self.kind.stop_signal,
            is_boxed=self.is_boxed,
        )

    def kill(self) -> None:
        pid = self.look().app_pid
        assert pid is not None
        os.kill(pid, signal.SIGKILL)

    def crash(self) -> None:
        """Kill the server and wait for its restart."""
        before = self.look().restarts
        self.kill()
        until(lambda: self.look().restarts > before, "another start")
        self.until_back()

    def until_back(self) -> None:
        until(lambda: self.kind.ping(self.access), f"{self.software.name}: {self.log()}")

    # Connections of users.

    def connect(self, user: str | None = None, password: str | None = None, database: str | None = None) -> Any:
        """Connect over TCP with autocommit; the caller closes the connection."""
        user, password = user or self.names.username, password or self.names.password
        database = database or self.names.database
        if self.software.type == "postgresql":
            return psycopg.connect(
                host="127.0.0.1", port=self.options.port, user=user, password=password, dbname=database, autocommit=True
            )
        return pymysql.connect(
            host="127.0.0.1",
            port=self.options.port,
            user=user,
            password=password,
            database=database,
            autocommit=True,
            ssl_disabled=True,
        )

    def ask(self, *statements: str, **whom: str) -> list[tuple[Any, ...]]:
        """Run statements in a new session; return the rows of the last one."""
        with contextlib.closing(self.connect(**whom)) as connection:
            return rows(connection, *statements)

    def as_platform(self, statement: str) -> tuple[Any, ...]:
        with postgres_dumps.connected(self.access, "postgres") as connection:
            return rows(connection, statement)[0]

    def now_ms(self) -> int:
        """Return a server time between all earlier and all later statements."""
        (before,) = self.as_platform("SELECT (extract(epoch FROM clock_timestamp()) * 1000)::bigint + 2")
        self.as_platform("SELECT pg_sleep(0.01)")
        return int(before)

    def archive_log(self) -> None:
        """Archive the WAL of all earlier statements."""
        (piece,) = self.as_platform("SELECT pg_walfile_name(pg_current_wal_lsn())")
        self.as_platform("SELECT pg_switch_wal()")
        until(lambda: (self.folder / "archive" / str(piece)).exists(), f"the archived {piece}")

    def timeline(self) -> int:
        return int(self.as_platform("SELECT ('x' || left(pg_walfile_name(pg_current_wal_lsn()), 8))::bit(32)::int")[0])

    def ask_over_tls(self) -> str:
        """Return the TLS version of a session."""
        whom: dict[str, Any] = {"host": "127.0.0.1", "port": self.options.port, "user": self.names.username}
        if self.software.type == "postgresql":
            where: dict[str, Any] = {"dbname": self.names.database, "sslmode": "require"}
            with psycopg.connect(**whom, **where, password=self.names.password) as connection:
                return str(rows(connection, "SELECT version FROM pg_stat_ssl WHERE pid = pg_backend_pid()")[0][0])
        with pymysql.connect(**whom, password=self.names.password, ssl={"check_hostname": False}) as connection:
            return str(rows(connection, "SHOW STATUS LIKE 'Ssl_version'")[0][1])


def rows(connection: Any, *statements: str) -> list[tuple[Any, ...]]:
    """Run statements in a session; return the rows of the last one."""
    with connection.cursor() as cursor:
        for statement in statements:
            cursor.execute(statement)
        return [tuple(row) for row in cursor.fetchall()] if cursor.description else []


class Lab:
    """An engine with an event loop in its own thread, for synchronous tests."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.engine = LocalReplicas(home / "run", "databases")
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(WAIT_S)

    def new(self, software: Software, *, is_boxed: bool = True, folder: str = "", **options: Any) -> Server:
        """Return a server that has no files yet."""
        usual = {"memory_mb": MEMORY_MB, "cpu": 1.0}
        port = options.pop("port", 0) or (free_port() if options.get("is_open", True) else SCRATCH_PORT)
        made = Server(self, software, self.home, ServerOptions(port=port, **{**usual, **options}), is_boxed)
        made.folder = self.home / "databases" / (folder or made.key)
        made.uid = FIRST_UID + int(made.key[1:]) if os.getuid() == 0 else 0
        return made

    def start(self, software: Software, **how: Any) -> Server:
        """Create and start a server with a user and a database."""
        made = self.new(software, **how)
        made.fill()
        made.start()
        made.settle()
        return made

    def close(self) -> None:
        for key in self.engine.states():
            self.run(self.engine.stop(key, 5.0))
        self.run(self.engine.close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(WAIT_S)
        self._loop.close()


@contextlib.contextmanager
def lab_in(home: Path) -> Iterator[Lab]:
    """Yield a lab in a folder; stops all its servers on exit."""
    (home / "run").mkdir(parents=True, exist_ok=True)
    (home / "databases").mkdir(exist_ok=True)
    lab = Lab(home)
    try:
        yield lab
    finally:
        lab.close()


@contextlib.contextmanager
def a_lab() -> Iterator[Lab]:
    """Yield a lab in a temporary folder."""
    # Imported here, because the copy of this file runs without the other tests.
    from tests import memory

    home = Path(tempfile.mkdtemp(prefix="srv-", dir=memory.place()))
    home.chmod(0o755)
    try:
        with lab_in(home) as lab:
            yield lab
    finally:
        shutil.rmtree(home, ignore_errors=True)
