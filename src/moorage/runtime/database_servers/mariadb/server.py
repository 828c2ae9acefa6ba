"""MariaDB, and MySQL where it is installed: how a server of it is filled, started and spoken to."""

from __future__ import annotations

import hashlib
import signal
import socket
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from moorage.runtime.database_servers import copying
from moorage.runtime.database_servers.mariadb import configuration as mariadb_conf
from moorage.runtime.database_servers.mariadb.dumps import MariaDBDumps, connected
from moorage.runtime.database_servers.ports import (
    ADMIN,
    CONF,
    DATA,
    REPLICATOR,
    RUN,
    Access,
    Counters,
    Names,
    ServerFailed,
    Session,
    Shape,
    Software,
)
from moorage.runtime.database_servers.software import templates

if TYPE_CHECKING:
    from pymysql.cursors import Cursor

OWN_DATABASE = "mysql"  # where the platform looks around; users cannot enter it
ADMIN_HOST, USER_HOST, REPLICATOR_HOST = "localhost", "%", "127.0.0.1"
PING_S = 5.0
_OWN = (ADMIN, REPLICATOR)
_NO_SUCH_THREAD = 1094
# What a user loses who must not add data; reading stays, and everything that makes the database smaller.
_ADDING = """
INSERT, UPDATE, CREATE, CREATE TEMPORARY TABLES, CREATE VIEW, CREATE ROUTINE, ALTER, INDEX, REFERENCES, EVENT, TRIGGER
"""
_FIGURES = "'threads_connected', 'questions', 'innodb_buffer_pool_reads', 'innodb_buffer_pool_read_requests'"
_OTHERS = "('system user', 'event_scheduler', 'unauthenticated user')"  # what is no session of anybody
_SESSIONS = f"""
SELECT id FROM information_schema.processlist WHERE user NOT IN (%s, %s) AND user NOT IN {_OTHERS}
"""  # noqa: S608 - constants
_OWN_SESSIONS = "SELECT 'own_sessions', count(*) FROM information_schema.processlist WHERE user IN (%s, %s)"
_MOST = "SELECT 'max_connections', @@max_connections"
# MariaDB counts what every user asks, except by SHOW: so the platform asks without it, and knows its share. What is
# being asked right now is not in there yet.
_ASK_MARIADB = f"""
SELECT lower(variable_name), variable_value FROM information_schema.global_status WHERE variable_name IN ({_FIGURES})
UNION ALL
SELECT 'own_questions', 1 + coalesce(sum(select_commands + update_commands + other_commands), 0)
FROM information_schema.user_statistics WHERE user IN (%s, %s)
UNION ALL {_OWN_SESSIONS} UNION ALL {_MOST}
"""  # noqa: S608 - constants
# Of MySQL only what this very session has asked is known.
_ASK_MYSQL = (
    "SHOW SESSION STATUS LIKE 'Questions'",
    f"SHOW GLOBAL STATUS WHERE Variable_name IN ({_FIGURES})",
    f"{_OWN_SESSIONS} UNION ALL {_MOST}",
)
_INSERTS = "SELECT insert_priv = 'Y' FROM mysql.db WHERE db = %s AND user = %s AND host = %s"


class MariaDB(MariaDBDumps):
    type: Literal["postgresql", "mysql"] = "mysql"
    stop_signal: int = signal.SIGTERM
    scheme: str = "mysql"

    # Files.

    def fill(self, software: Software, folder: Path) -> None:
        copying.fill(Path(software.template), folder)

    def configure(self, software: Software, folder: Path, shape: Shape, *, home: str, place: str) -> None:
        for name in (mariadb_conf.FILES, mariadb_conf.TEMPORARY):
            copying.ensure_folder(folder / RUN, name)
        told = mariadb_conf.settings(software, folder, shape, home=home, place=place)
        copying.put(folder / CONF, mariadb_conf.MAIN_FILE, mariadb_conf.render(told, place))
        copying.ensure_file(folder / CONF, mariadb_conf.REPLICATION_FILE)

    def argv(self, software: Software, shape: Shape, *, home: str, place: str) -> list[str]:
        program = software.program if software.program.startswith("/") else f"{home}/{software.program}"
        return [program, f"--defaults-file={place}/{CONF}/{mariadb_conf.MAIN_FILE}"]

    def usable_connections(self, shape: Shape) -> int:
        return mariadb_conf.usable_connections(shape.memory_mb)

    def is_filled(self, folder: Path) -> bool:
        return (folder / DATA / "ibdata1").is_file() and (folder / DATA / OWN_DATABASE).exists()

    # Speaking to a server that runs.

    def ping(self, access: Access) -> bool:
        """Tell whether it greets, which it does only when it is ready, or says that it has too many guests."""
        try:
            with copying.short_path(Path(access.folder) / RUN) as run, socket.socket(socket.AF_UNIX) as sock:
                sock.settimeout(PING_S)
                sock.connect(f"{run}/{mariadb_conf.SOCKET}")
                return len(sock.recv(64)) > 4
        except OSError:
            return False

    def take_over(self, software: Software, access: Access) -> None:
        first = replace(access, password=templates.password_of(software.template))
        try:
            with connected(first, OWN_DATABASE) as server, server.cursor() as cursor:
                _set_password(cursor, ADMIN, ADMIN_HOST, access.password)
        except ServerFailed:
            with connected(access, OWN_DATABASE):
                pass  # It has been taken over before.

    def provision(self, access: Access, names: Names, replica_password: str | None) -> None:
        """Make what is missing. A user who must not add data right now stays so."""
        with connected(access, OWN_DATABASE) as server, server.cursor() as cursor:
            cursor.execute(f"CREATE DATABASE IF NOT EXISTS {_quoted(names.database)} CHARACTER SET utf8mb4")
            _ensure_user(cursor, names.username, USER_HOST, names.password)
            if _may_insert(cursor, names) is None:
                whom = (names.username, USER_HOST)
                cursor.execute(f"GRANT ALL PRIVILEGES ON {_pattern(names)}.* TO %s@%s", whom)
            if replica_password is not None:
                _ensure_user(cursor, REPLICATOR, REPLICATOR_HOST, replica_password)
                cursor.execute("GRANT REPLICATION SLAVE ON *.* TO %s@%s", (REPLICATOR, REPLICATOR_HOST))

    def set_password(self, access: Access, names: Names) -> None:
        with connected(access, OWN_DATABASE) as server, server.cursor() as cursor:
            _set_password(cursor, names.username, USER_HOST, names.password)

    def set_read_only(self, access: Access, names: Names, on: bool) -> None:
        """Take the rights that add data, or give them back. Sessions end: they keep the rights they came with."""
        with connected(access, OWN_DATABASE) as server, server.cursor() as cursor:
            if _may_insert(cursor, names) is (not on):
                return
            whom = (names.username, USER_HOST)
            if on:
                cursor.execute(f"REVOKE {_ADDING} ON {_pattern(names)}.* FROM %s@%s", whom)
            else:
                cursor.execute(f"GRANT ALL PRIVILEGES ON {_pattern(names)}.* TO %s@%s", whom)
            _end_sessions(cursor)

    def end_sessions(self, access: Access) -> None:
        with connected(access, OWN_DATABASE) as server, server.cursor() as cursor:
            _end_sessions(cursor)

    def version(self, access: Access) -> str:
        with connected(access, OWN_DATABASE) as server, server.cursor() as cursor:
            return str(_row(cursor, "SELECT version()")[0])

    def session(self, access: Access) -> Session:
        return _Session(access)


class _Session:
    """A connection of the platform that is kept."""

    def __init__(self, access: Access) -> None:
        self._kept = ExitStack()
        server = self._kept.enter_context(connected(access, OWN_DATABASE))
        self._cursor = self._kept.enter_context(server.cursor())
        self._cursor.execute("SHOW VARIABLES LIKE 'userstat'")
        self._counts_users = self._cursor.fetchone() is not None

    def counters(self) -> Counters:
        import pymysql

        try:
            return self._counters()
        except (pymysql.MySQLError, OSError) as error:
            raise ServerFailed(f"the server does not say how it is: {error}") from error

    def _counters(self) -> Counters:
        figures = self._of_mariadb() if self._counts_users else self._of_mysql()
        reads = figures["innodb_buffer_pool_reads"]
        return Counters(
            connections=max(0, figures["threads_connected"] - figures["own_sessions"]),
            max_connections=figures["max_connections"],
            queries=max(0, figures["questions"] - figures["own_questions"]),
            cache_hits=max(0, figures["innodb_buffer_pool_read_requests"] - reads),
            cache_reads=reads,
        )

    def _of_mariadb(self) -> dict[str, int]:
        return _figures(self._cursor, _ASK_MARIADB, (*_OWN, *_OWN))

    def _of_mysql(self) -> dict[str, int]:
        own, status, sessions = _ASK_MYSQL
        # Its own question is in there already, the next one is not.
        own_questions = _figures(self._cursor, own)["questions"] + 1
        return {
            "own_questions": own_questions,
            **_figures(self._cursor, status),
            **_figures(self._cursor, sessions, _OWN),
        }

    def close(self) -> None:
        self._kept.close()


def _figures(cursor: Cursor, query: str, values: tuple[str, ...] | None = None) -> dict[str, int]:
    cursor.execute(query, values)
    return {str(name).lower(): int(value) for name, value in cursor.fetchall()}


def _row(cursor: Cursor, query: str, values: tuple[str, ...] | None = None) -> tuple[Any, ...]:
    cursor.execute(query, values)
    found = cursor.fetchone()
    assert found is not None
    return tuple(found)


def _may_insert(cursor: Cursor, names: Names) -> bool | None:
    """Tell whether a user may add data to the database; None for one who has no rights in it yet."""
    cursor.execute(_INSERTS, (_escaped(names.database), names.username, USER_HOST))
    found = cursor.fetchone()
    return None if found is None else bool(found[0])


def _ensure_user(cursor: Cursor, name: str, host: str, password: str) -> None:
    cursor.execute("CREATE USER IF NOT EXISTS %s@%s IDENTIFIED WITH mysql_native_password", (name, host))
    _set_password(cursor, name, host, password)


def _set_password(cursor: Cursor, name: str, host: str, password: str) -> None:
    """Set a password without saying it: what a server is told can be seen in more than one place."""
    statement = "ALTER USER %s@%s IDENTIFIED WITH mysql_native_password AS %s"
    cursor.execute(statement, (name, host, _verifier(password)))


def _verifier(password: str) -> str:
    once = hashlib.sha1(password.encode(), usedforsecurity=False).digest()
    return "*" + hashlib.sha1(once, usedforsecurity=False).hexdigest().upper()


def _end_sessions(cursor: Cursor) -> None:
    import pymysql

    cursor.execute(_SESSIONS, _OWN)
    for (thread,) in cursor.fetchall():
        try:
            cursor.execute("KILL %s", (thread,))
        except pymysql.MySQLError as error:
            if error.args[0] != _NO_SUCH_THREAD:
                raise


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"


def _escaped(name: str) -> str:
    """Return a pattern that only this very name matches."""
    return name.replace("\\", "\\\\").replace("_", "\\_").replace("%", "\\%")


def _pattern(names: Names) -> str:
    """Return the name of a database as rights are given to it; %% because values are filled in afterwards."""
    return _quoted(_escaped(names.database)).replace("%", "%%")
