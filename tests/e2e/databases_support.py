"""What the end-to-end tests of databases share: a platform that can be taken down, real clients, and its processes.

One platform serves all of them: starting it costs more than most of the tests, so these belong to the same group.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import signal
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from http.client import HTTPException
from pathlib import Path
from typing import Any

import psycopg
import pymysql
import pytest
from bench.machine import tree_of
from tests.command import moorage
from tests.e2e.apps_support import Apps
from tests.e2e.projects_support import NOBODY, is_alive
from tests.platform.running import free_ports, running

POSTGRESQL, MYSQL = "postgresql", "mysql"
KINDS = (POSTGRESQL, MYSQL)
KIND_PARAMS = [POSTGRESQL, pytest.param(MYSQL, marks=pytest.mark.twin)]
VERSIONS = {POSTGRESQL: "16.4.0", MYSQL: "8.4.2"}
SERVERS = ("postgres", "mariadbd", "mysqld")
REFUSED = (psycopg.Error, pymysql.err.Error, OSError)
SETTLED_S = 120.0  # Whatever is under way may have to wait for its turn on a busy machine.
EVERY_S = 0.01  # of a writer
LOOK_S = 0.1

_numbers = itertools.count(1)


def wait_until(condition: Callable[[], object], timeout_s: float = SETTLED_S) -> None:
    """Return when a condition holds; what fails because something is restarting counts as not yet.

    It looks less often than others do: a look costs the platform as much as what is waited for.
    """
    deadline = time.monotonic() + timeout_s
    while True:
        try:
            if condition():
                return
        except (*REFUSED, HTTPException, AssertionError):
            if time.monotonic() > deadline:
                raise
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(LOOK_S)


def new_name(stem: str) -> str:
    """Return a database's name that nothing else on the platform has."""
    return f"{stem}-{next(_numbers)}"


@dataclass(frozen=True)
class Client:
    """What somebody needs who connects to a database."""

    engine: str
    port: int
    user: str
    password: str
    database: str

    def connect(self, **options: Any) -> Any:
        """Open a connection on which every statement counts at once."""
        usual = {"host": "127.0.0.1", "port": self.port, "user": self.user, "password": self.password}
        if self.engine == POSTGRESQL:
            given = {**usual, "dbname": self.database, "connect_timeout": 20, **options}
            return psycopg.connect(autocommit=True, **given)
        return pymysql.connect(autocommit=True, **{**usual, "database": self.database, **options})

    def ask(self, statement: str, *values: Any) -> list[tuple[Any, ...]]:
        """Run a statement on a connection of its own, and return its rows."""
        with contextlib.closing(self.connect()) as connection:
            return ask(connection, statement, *values)

    def numbers(self) -> list[int]:
        """Return what is in the table that every database of the tests has."""
        return [number for (number,) in self.ask("SELECT n FROM numbers ORDER BY n")]

    def add(self, *numbers: int) -> None:
        with contextlib.closing(self.connect()) as connection:
            for number in numbers:
                ask(connection, "INSERT INTO numbers VALUES (%s)", number)


def ask(connection: Any, statement: str, *values: Any) -> list[tuple[Any, ...]]:
    with contextlib.closing(connection.cursor()) as cursor:
        cursor.execute(statement, values or None)
        return [tuple(row) for row in cursor.fetchall()] if cursor.description else []


@dataclass
class Writer:
    """Adds numbers without a pause, and notes which of them the server said that it has."""

    client: Client
    first: int
    acknowledged: list[int] = field(default_factory=list)
    longest_s: float = 0.0  # in which nothing was acknowledged
    _stopping: threading.Event = field(default_factory=threading.Event)

    def run(self) -> None:
        connection: Any = None
        seen_at = time.monotonic()
        for number in itertools.count(self.first):
            if self._stopping.wait(EVERY_S):
                break
            try:
                connection = connection or self.client.connect()
                ask(connection, "INSERT INTO numbers VALUES (%s)", number)
            except REFUSED:
                _hang_up(connection)
                connection = None
            else:
                self.acknowledged.append(number)
                self.longest_s = max(self.longest_s, time.monotonic() - seen_at)
                seen_at = time.monotonic()
        _hang_up(connection)

    def wait_for_more(self, count: int = 3) -> None:
        """Return when the server has taken some more numbers."""
        before = len(self.acknowledged)
        wait_until(lambda: len(self.acknowledged) >= before + count)

    @contextlib.contextmanager
    def at_work(self) -> Iterator[Writer]:
        thread = threading.Thread(target=self.run)
        thread.start()
        try:
            self.wait_for_more()
            yield self
        finally:
            self._stopping.set()
            thread.join()


def _hang_up(connection: Any) -> None:
    if connection is not None:
        with contextlib.suppress(*REFUSED):
            connection.close()


class Databases(Apps):
    """A started platform, as those who have databases on it, and its operator, speak to it."""

    # Owners.

    def make(self, name: str, kind: str = POSTGRESQL, **fields: Any) -> None:
        """Ask for a database."""
        asked = {"name": name, "type": kind, "version": VERSIONS[kind], "instanceType": "micro", **fields}
        self.call("POST", "/v1/databases", asked)

    def fill(self, *names: str) -> None:
        """Give databases a table with a number in it, once they run."""
        for name in names:
            self.up(name)
            client = self.client(name)
            client.ask("CREATE TABLE numbers (n BIGINT PRIMARY KEY)")
            client.add(1)

    def find(self, name: str) -> dict[str, Any] | None:
        answer = self.send("GET", f"/v1/databases/{name}")
        assert answer.status in (200, 404), answer
        return answer.json["data"] if answer.status == 200 else None

    def read(self, name: str) -> dict[str, Any]:
        found = self.find(name)
        assert found is not None
        return found

    def settled(self, name: str) -> dict[str, Any]:
        """Return a database once nothing is under way with it any more."""
        wait_until(lambda: self.read(name)["status"] in ("running", "failed", "stopped"))
        return self.read(name)

    def up(self, name: str) -> dict[str, Any]:
        """Return a database that has to run, once it can be connected to."""
        found = self.settled(name)
        assert found["status"] == "running", found
        client = self.client(name)
        wait_until(lambda: client.ask("SELECT 1"))
        return found

    def wait_until_gone(self, name: str) -> None:
        wait_until(lambda: self.find(name) is None)

    def client(self, name: str, **other: Any) -> Client:
        details = self.read(name)["connectionDetails"]
        given = {
            "engine": self.read(name)["type"],
            "port": details["port"],
            "user": details["username"],
            "password": self.credentials(name)["password"],
            "database": details["database"],
        }
        return Client(**{**given, **other})

    def credentials(self, name: str) -> dict[str, Any]:
        found: dict[str, Any] = self.call("GET", f"/v1/databases/{name}/password")
        return found

    def change_tier(self, name: str, tier: str) -> None:
        self.call("POST", f"/v1/databases/{name}/change-tier", {"instanceType": tier})

    def backups(self, name: str) -> list[dict[str, Any]]:
        items: list[dict[str, Any]] = self.call("GET", f"/v1/databases/{name}/backups")["items"]
        return items

    def back_up(self, name: str) -> str:
        """Ask for a backup, and return its name."""
        return str(self.call("POST", f"/v1/databases/{name}/backups")["name"])

    def backed_up(self, name: str, backup: str) -> dict[str, Any]:
        """Return a backup once it has ended."""

        def look() -> dict[str, Any]:
            (found,) = [each for each in self.backups(name) if each["name"] == backup]
            return found

        wait_until(lambda: look()["status"] != "running")
        return look()

    def restore(self, name: str, backup: str) -> None:
        self.call("POST", f"/v1/databases/{name}/restore", {"backupName": backup, "confirm": True})

    def metrics(self, name: str) -> dict[str, Any]:
        found: dict[str, Any] = self.call("GET", f"/v1/databases/{name}/metrics")
        return found

    # The operator.

    def operate(self, command: str, name_or_id: str | int) -> str:
        """Do something to a database at the command line, and return what is said there."""
        number = self.read(name_or_id)["id"] if isinstance(name_or_id, str) else name_or_id
        done = moorage("databases", command, str(number), "--data", self.running.data)
        assert done.returncode == 0, done
        return done.stdout


@dataclass(frozen=True)
class Row:
    """A server as it is written down."""

    id: int
    database_id: int
    folder: str

    @property
    def key(self) -> str:
        return f"d{self.id}"


class Harbor:
    """A platform whose parts are killed, and the processes and folders of its databases."""

    def __init__(self, folder: Path) -> None:
        self.data = folder / "data"
        self.ports = free_ports()
        self._up = contextlib.ExitStack()

    def start(self) -> None:
        given = {"rate_limit": "1000000", "codehost_url": NOBODY, "function_pool": "0"}
        env = {f"MOORAGE_{name.upper()}": value for name, value in given.items()}
        platform = self._up.enter_context(running(self.data, ports=self.ports, env=env))
        self.databases = Databases(platform, platform.session())

    def stop(self) -> None:
        """End the platform in an orderly way; the databases run on."""
        self._up.close()

    def kill_control(self) -> None:
        """End the control process as a crash would, and return when another one answers."""
        pid = self.databases.running.children()["control"]
        os.kill(pid, signal.SIGKILL)
        wait_until(lambda: not is_alive(pid))
        wait_until(lambda: self.databases.send("GET", "/v1/whoami").status == 200)

    # What there is of a database.

    def rows(self) -> list[Row]:
        """Return every server that is written down."""
        address = f"file:{self.data / 'store' / 'moorage.db'}?mode=ro"
        with contextlib.closing(sqlite3.connect(address, uri=True)) as store:
            return [Row(*row) for row in store.execute("SELECT id, database_id, folder FROM database_server")]

    def row(self, name: str) -> Row:
        number = self.databases.read(name)["id"]
        (found,) = [row for row in self.rows() if row.database_id == number]
        return found

    def root(self, name: str) -> Path:
        return self.data / "databases" / str(self.databases.read(name)["id"])

    def place(self, name: str) -> Path:
        """Return the folder that the server of a database runs on."""
        return self.root(name) / self.row(name).folder

    def trash_of(self, database_id: int) -> Path:
        return self.data / "trash" / f"database-{database_id}"

    # Processes.

    def shims(self) -> dict[str, list[int]]:
        """Return the processes that watch over servers, by the name of what they watch over."""
        found: dict[int, str] = {}
        for pid in map(int, filter(str.isdigit, os.listdir("/proc"))):
            with contextlib.suppress(OSError, ValueError, IndexError):
                argv = Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace").split("\0")
                folder = Path(argv[argv.index("moorage.runtime.shim") + 1])
                if folder.parent == self.data / "run" / "databases" and is_alive(pid):
                    found[pid] = folder.name
        # What they start looks like them for a moment, and is none.
        own = {pid: key for pid, key in found.items() if _parent_of(pid) not in found}
        return {key: [pid for pid, other in own.items() if other == key] for key in own.values()}

    def shim(self, name: str) -> int:
        (found,) = self.shims()[self.row(name).key]
        return found

    def servers_on(self, folder: Path) -> list[int]:
        """Return the servers of this machine that run on a folder, whoever has started them."""
        return [pid for pid in _servers() if _is_at(pid, folder / "data")]

    def server(self, name: str) -> int:
        (found,) = self.servers_on(self.place(name))
        return found

    def wait_until_tidy(self) -> None:
        """Return when there is one server for each database, and nothing of any other."""
        wait_until(self._is_tidy)

    def _is_tidy(self) -> bool:
        folders = {path.name for path in (self.data / "databases").iterdir()}
        rows = [row for row in self.rows() if str(row.database_id) in folders]
        keys = {row.key for row in rows}
        shims = self.shims()
        assert {key: len(pids) for key, pids in shims.items()} == dict.fromkeys(keys, 1)
        assert {path.name for path in (self.data / "run" / "databases").iterdir()} == keys
        places = [self.data / "databases" / str(row.database_id) / row.folder for row in rows]
        assert [len(self.servers_on(place)) for place in places] == [1] * len(places)
        assert len(_servers_below([pid for pids in shims.values() for pid in pids])) == len(places)
        return True

    def leftovers(self) -> list[Path]:
        """Return what work on databases has left behind; the folder that it is done in stays, and is empty."""
        below = (path for root in (self.data / "databases").iterdir() for path in root.iterdir())
        found = [path for path in below if not (path.name[0] == "s" and path.name[1:].isdecimal())]
        return [path for path in found if path.name != "backups-tmp" or any(path.iterdir())]

    def end_servers(self) -> None:
        """End the servers that the platform left running, and see that nothing of them is left."""
        shims = [pid for pids in self.shims().values() for pid in pids]
        processes = [each for pid in shims for each in tree_of(pid)]
        for pid in shims:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGTERM)
        wait_until(lambda: not any(map(is_alive, processes)))


def _parent_of(pid: int) -> int:
    with contextlib.suppress(OSError):
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    return 0


def _name_of(pid: int) -> str:
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/comm").read_text().strip()
    return ""


def _servers() -> list[int]:
    """Return the first process of each server on this machine."""
    named = [pid for pid in map(int, filter(str.isdigit, os.listdir("/proc"))) if _name_of(pid) in SERVERS]
    return [pid for pid in named if _name_of(_parent_of(pid)) not in SERVERS and is_alive(pid)]


def _servers_below(pids: list[int]) -> list[int]:
    below = {each for pid in pids for each in tree_of(pid)}
    return [pid for pid in _servers() if pid in below]


def _is_at(pid: int, folder: Path) -> bool:
    """Tell whether a server works in a folder, whatever that is called where the server sees it."""
    with contextlib.suppress(OSError):
        return os.path.samefile(f"/proc/{pid}/cwd", folder)
    return False
