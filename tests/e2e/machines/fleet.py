"""Platforms on several machines: one PostgreSQL, one S3, and a data folder for each."""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import signal
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg
from tests.core.artifacts.s3_server import S3Server, running_s3
from tests.e2e.apps_life_support import Apps, Shim, end_shims, shims_of, started_apps
from tests.e2e.functions_support import wait_until
from tests.e2e.projects_support import Sites, is_alive
from tests.platform.running import clean_environment
from tests.postgres_server import PostgresServer, running_postgres

from moorage.core.telemetry import Telemetry
from moorage.platform import opening
from moorage.products.repositories.fetch import Sources
from moorage.runtime.machines.wiring import Machines
from moorage.settings import Settings

BUILT_S = 120.0


@dataclass(frozen=True)
class Fleet:
    """Starts machines that share a store and their artifacts."""

    folder: Path
    postgres: PostgresServer
    url: str
    settings: dict[str, str]

    @contextlib.contextmanager
    def machine(self, name: str, **settings: str) -> Iterator[Apps]:
        """Start a machine; at the end, also its apps and runs, which outlive the platform."""
        data = self.folder / name
        try:
            with started_apps(data, None, machine_name=name, **self.settings, **settings) as apps:
                yield apps
        finally:
            end_shims(data)
            end_runs(data)

    @contextlib.asynccontextmanager
    async def worker(self, data: Path) -> AsyncIterator[Sources]:
        """Open the sources of builds as a process with its own data folder that is no machine."""
        settings = Settings(_env_file=None, data=data, **self.settings)
        db = opening.open_store(settings).db
        machines, sources = Machines.make(db, Telemetry(quiet=True)), Sources(db)
        sources.reach_machine = machines.reach
        try:
            yield sources
        finally:
            await machines.close()
            db.close()

    def rows(self, query: str) -> list[tuple[Any, ...]]:
        with psycopg.connect(self.url) as connection:
            return connection.execute(query).fetchall()  # type: ignore[arg-type,unused-ignore]

    def execute(self, statement: str) -> None:
        with psycopg.connect(self.url) as connection:
            connection.execute(statement)  # type: ignore[call-overload,unused-ignore]

    def shims(self, name: str) -> list[Shim]:
        return shims_of(self.folder / name)


def kill_machine(apps: Apps) -> None:
    """Kill every process of a machine at once, apps and runs included, as a power failure does."""
    data = apps.running.data
    pids = [apps.running.process.pid, *apps.children().values(), *[shim.pid for shim in shims_of(data)], *runs_of(data)]
    for pid in pids:
        os.kill(pid, signal.SIGSTOP)  # so that none of them acts on the end of another
    for pid in pids:
        os.kill(pid, signal.SIGKILL)
    wait_until(lambda: not any(map(is_alive, pids[1:])), 30)


def runs_of(data: Path) -> list[int]:
    """Return the shims of cronjob runs and database servers of a data folder."""
    found = []
    for kept in ("cronjobs", "databases"):
        for card in (data / "run" / kept).glob("*/shim.json"):
            with contextlib.suppress(OSError, ValueError):
                found.append(int(json.loads(card.read_bytes())["pid"]))
    return [pid for pid in found if _is_of(pid, data)]


def _is_of(pid: int, data: Path) -> bool:
    with contextlib.suppress(OSError):
        return str(data).encode() in Path(f"/proc/{pid}/cmdline").read_bytes() and is_alive(pid)
    return False


def end_runs(data: Path) -> None:
    for pid in runs_of(data):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGTERM)
    wait_until(lambda: not runs_of(data), 30)


@contextlib.contextmanager
def started_fleet(folder: Path) -> Iterator[Fleet]:
    """Start the servers that machines share."""
    folder.mkdir(parents=True, exist_ok=True)
    with running_postgres() as postgres, running_s3() as s3:
        url = postgres.create_database()
        yield Fleet(folder, postgres, url, _shared(url, s3))


def _shared(url: str, s3: S3Server) -> dict[str, str]:
    return {
        "database_url": url,
        "master_key": secrets.token_hex(32),
        "session_secret": secrets.token_hex(32),
        "artifacts_url": f"s3://moorage/{secrets.token_hex(8)}/blobs",
        "artifacts_endpoint": s3.endpoint,
        "artifacts_access_key": s3.access_key,
        "artifacts_secret_key": s3.secret_key,
    }


def make_cronjob(apps: Apps, name: str, repository: str, seconds: float, **fields: Any) -> str:
    """Make a cronjob whose runs take so long, and return its name once it is built."""
    given = {"name": name, "cronSchedule": "0 0 1 1 *", "repositoryName": repository, "language": "python", **fields}
    apps.call("POST", "/v1/cronjobs", {**given, "command": f"python -c 'import time; time.sleep({seconds})'"})
    wait_until(lambda: apps.call("GET", f"/v1/cronjobs/{name}")["status"] == "running", BUILT_S)
    return name


def runs(apps: Apps, name: str) -> list[dict[str, Any]]:
    items: list[dict[str, Any]] = apps.call("GET", f"/v1/cronjobs/{name}/executions")["items"]
    return items


class Visitor:
    """Requests an app through one machine's gateway, again and again, in a thread of its own."""

    def __init__(self, apps: Sites, name: str, pause_s: float = 0.05) -> None:
        self.count = 0
        self.failures: list[str] = []
        self._apps, self._name, self._pause_s = apps, name, pause_s
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> Visitor:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ending.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._ending.wait(self._pause_s):
            self.count += 1
            try:
                status = self._apps.visit(self._name, "/who").status
            except OSError as error:
                self.failures.append(repr(error))
            else:
                if status != 200:
                    self.failures.append(str(status))


def run_command(*words: str) -> str:
    """Run a command of the operator, which has to succeed; return what it prints."""
    done = subprocess.run(
        [sys.executable, "-m", "moorage.cli.main", *words], env=clean_environment(), capture_output=True, timeout=120
    )
    assert done.returncode == 0, done.stderr.decode()
    return done.stdout.decode()
