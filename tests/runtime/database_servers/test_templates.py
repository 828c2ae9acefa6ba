"""Templates: a server starts on a copy, and accepts only the platform's user."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import psycopg
import pymysql
import pytest

from moorage.core.kit import folders
from moorage.runtime.database_servers.ports import ADMIN, ServerFailed, Software
from moorage.runtime.database_servers.software import templates
from moorage.runtime.database_servers.software.catalog import SoftwareCatalog, shared_folder

pytestmark = pytest.mark.group("templates")  # They share two servers.

NOBODY = 65534
STARTED_S = 60


def software(engine: str, version: str) -> Software:
    found = SoftwareCatalog([], shared_folder()).choose(engine, version, "any").software
    assert found is not None, "make setup installs it"
    return found


@pytest.fixture(scope="module")
def postgresql(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("postgresql") / "template"
    templates.make(software("postgresql", "14.8.0"), made)
    return made


@pytest.fixture(scope="module")
def mariadb(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("mariadb") / "template"
    templates.make(software("mysql", "8.4.2"), made)
    return made


@pytest.fixture(scope="module")
def postgresql_server(postgresql: Path) -> Iterator[Path]:
    """The folder of a server's socket."""
    found = software("postgresql", "14.8.0")
    with copied(postgresql) as (folder, user):
        # A checkout under a private home is closed to the user of the server.
        home = shutil.copytree(found.home, folder / "software", symlinks=True)
        options = ["-h", "", "-k", str(folder), "-c", "shared_preload_libraries=pg_stat_statements"]
        argv = [str(home / found.program), "-D", str(folder / "data"), *options]
        with running(argv, user):
            wait_for(lambda: to_postgresql(folder, templates.password_of(postgresql)).close(), psycopg.OperationalError)
            yield folder


@pytest.fixture(scope="module")
def mariadb_server(mariadb: Path) -> Iterator[Path]:
    """The folder of a server's socket."""
    with copied(mariadb) as (folder, user):
        options = [f"--datadir={folder / 'data'}", f"--socket={folder / 'socket'}", f"--pid-file={folder / 'pid'}"]
        argv = [software("mysql", "8.4.2").program, "--no-defaults", "--skip-networking", "--skip-log-bin", *options]
        with running([*argv, f"--innodb-log-file-size={templates.LOG_FILE_SIZE}"], user):
            password = templates.password_of(mariadb)
            wait_for(lambda: to_mariadb(folder, ADMIN, password).close(), pymysql.err.OperationalError)
            yield folder


def test_a_copy_of_postgresql_has_checksums_utf8_and_the_counting_of_statements(
    postgresql: Path, postgresql_server: Path
) -> None:
    password = templates.password_of(postgresql)
    with closing(to_postgresql(postgresql_server, password)) as connection:
        shown = [connection.execute(f"SHOW {name}").fetchone() for name in ("data_checksums", "server_encoding")]
        users = connection.execute("SELECT rolname, rolsuper FROM pg_roles WHERE rolcanlogin").fetchall()
        connection.execute("CREATE DATABASE fresh")
    with closing(to_postgresql(postgresql_server, password, "fresh")) as fresh:
        counted = fresh.execute("SELECT count(*) > 0 FROM pg_stat_statements").fetchone()

    assert shown == [("on",), ("UTF8",)]
    assert users == [(ADMIN, True)]
    assert counted == (True,)


def test_a_copy_of_postgresql_lets_nobody_in_without_the_password(postgresql_server: Path) -> None:
    with pytest.raises(psycopg.OperationalError, match="password authentication failed"):
        to_postgresql(postgresql_server, "guessed")


def test_a_copy_of_mariadb_has_only_the_platforms_user_who_may_do_everything(
    mariadb: Path, mariadb_server: Path
) -> None:
    with closing(to_mariadb(mariadb_server, ADMIN, templates.password_of(mariadb))) as connection:
        rights = rows(connection, f"SELECT Host, plugin, Super_priv, Grant_priv FROM mysql.user WHERE User = '{ADMIN}'")
        users = rows(connection, "SELECT User FROM mysql.global_priv ORDER BY User")
        databases = rows(connection, "SHOW DATABASES")

    assert rights == [("localhost", "mysql_native_password", "Y", "Y")]
    assert users == [("mariadb.sys",), (ADMIN,)]
    assert not {("sys",), ("test",)} & set(databases)


@pytest.mark.parametrize("user", ["root", "", "mariadb.sys", ADMIN])
def test_a_copy_of_mariadb_lets_nobody_in_without_a_password(mariadb_server: Path, user: str) -> None:
    with pytest.raises(pymysql.err.OperationalError, match=r"Access denied|account is locked"):
        to_mariadb(mariadb_server, user, "")


def test_a_template_belongs_to_the_platform_alone_and_its_password_is_new(postgresql: Path, mariadb: Path) -> None:
    shared = software("mysql", "8.4.2").template

    owners = {
        entry.stat(follow_symlinks=False).st_uid for made in (postgresql, mariadb) for entry in folders.walk(made)
    }

    assert owners == {os.geteuid()}
    assert {path.stat().st_mode & 0o777 for made in (postgresql, mariadb) for path in (made, made / "data")} == {0o700}
    assert (mariadb / templates.ABOUT).stat().st_mode & 0o777 == 0o600
    assert len({templates.password_of(made) for made in (postgresql, mariadb, shared)}) == 3


def test_a_template_of_mariadb_is_small_for_every_server_begins_with_a_copy(mariadb: Path) -> None:
    entries = [entry for entry in folders.walk(mariadb) if entry.is_file()]

    assert len(entries) < 120
    assert sum(entry.stat().st_size for entry in entries) < 40 * 2**20


def test_what_the_programs_said_is_told_when_a_template_cannot_be_made(tmp_path: Path) -> None:
    home = tmp_path / "server"
    (home / "bin").mkdir(parents=True)
    (home / "bin" / "initdb").write_text("#!/bin/sh\necho 'no space left'\nexit 1\n")
    (home / "bin" / "initdb").chmod(0o755)
    broken = Software("postgresql", "PostgreSQL", "16.4", str(home), "bin/postgres", "", "")

    with pytest.raises(ServerFailed, match=r"cannot prepare postgresql-16\.4: initdb said: no space left"):
        templates.make(broken, tmp_path / "template")

    assert not templates.is_complete(tmp_path / "template")


@contextlib.contextmanager
def copied(template: Path) -> Iterator[tuple[Path, dict[str, Any]]]:
    """A copy of a template at a short path, and the user arguments of its server."""
    folder = Path(tempfile.mkdtemp(prefix="moorage-t-"))
    user: dict[str, Any] = {}
    try:
        shutil.copytree(template / "data", folder / "data", symlinks=True)
        if os.geteuid() == 0:
            folders.change_owner(folder, NOBODY)
            user = {"user": NOBODY, "group": NOBODY, "extra_groups": []}
        yield folder, user
    finally:
        folders.remove(folder)


@contextlib.contextmanager
def running(argv: list[str], user: dict[str, Any]) -> Iterator[None]:
    server = subprocess.Popen(argv, cwd="/", stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env={}, **user)
    try:
        yield
    finally:
        server.terminate()
        server.wait(STARTED_S)


def wait_for(step: Callable[[], None], not_yet: type[Exception]) -> None:
    deadline = time.monotonic() + STARTED_S
    while True:
        try:
            return step()
        except not_yet:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.02)


def to_postgresql(folder: Path, password: str, database: str = "postgres") -> psycopg.Connection[Any]:
    return psycopg.connect(host=str(folder), user=ADMIN, dbname=database, password=password, autocommit=True)


def to_mariadb(folder: Path, user: str, password: str) -> pymysql.Connection[Any]:
    return pymysql.connect(unix_socket=str(folder / "socket"), user=user, password=password)


def rows(connection: pymysql.Connection[Any], query: str) -> list[tuple[Any, ...]]:
    with connection.cursor() as cursor:
        cursor.execute(query)
        return list(cursor.fetchall())
