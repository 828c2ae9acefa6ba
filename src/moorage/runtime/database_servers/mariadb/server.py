"""MariaDB and MySQL servers: files, configuration and administration."""

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
from moorage.runtime.database_servers.mariadb.programs import quoted
from moorage.runtime.database_servers.ports import (
    ADMIN,
    CONF,
    DATA,
    REPLICATOR,
    RUN,
    Access,
    Counters,
    Credentials,
    Extension,
    ServerFailed,
    ServerOptions,
    Software,
    StatisticsSession,
)
from moorage.runtime.database_servers.software import templates

if TYPE_CHECKING:
    from pymysql.cursors import Cursor

OWN_DATABASE = "mysql"  # for the platform's connections; users cannot connect to it
ADMIN_HOST, USER_HOST, REPLICATOR_HOST = "localhost", "%", "127.0.0.1"
PING_TIMEOUT_S = 5.0
_OWN = (ADMIN, REPLICATOR)
_NO_SUCH_THREAD = 1094
# Privileges revoked from a user whose database is full. SELECT, DELETE and DROP stay.
_ADDING = """
INSERT, UPDATE, CREATE, CREATE TEMPORARY TABLES, CREATE VIEW, CREATE ROUTINE, ALTER, INDEX, REFERENCES, EVENT, TRIGGER
"""
_FIGURES = "'threads_connected', 'questions', 'innodb_buffer_pool_reads', 'innodb_buffer_pool_read_requests'"
_OTHERS = "('system user', 'event_scheduler', 'unauthenticated user')"  # not sessions of users
_SESSIONS = f"""
SELECT id FROM information_schema.processlist WHERE user NOT IN (%s, %s) AND user NOT IN {_OTHERS}
"""  # noqa: S608 - constants
_OWN_SESSIONS = "SELECT 'own_sessions', count(*) FROM information_schema.processlist WHERE user IN (%s, %s)"
_MAX_CONNECTIONS = "SELECT 'max_connections', @@max_connections"
# MariaDB counts the statements per user, except SHOW, so the platform uses SELECT to know its own share. The statement
# itself is not counted yet, hence 1 more.
_MARIADB_COUNTERS = f"""
SELECT lower(variable_name), variable_value FROM information_schema.global_status WHERE variable_name IN ({_FIGURES})
UNION ALL
SELECT 'own_questions', 1 + coalesce(sum(select_commands + update_commands + other_commands), 0)
FROM information_schema.user_statistics WHERE user IN (%s, %s)
UNION ALL {_OWN_SESSIONS} UNION ALL {_MAX_CONNECTIONS}
"""  # noqa: S608 - constants
# MySQL only counts the statements of this session.
_MYSQL_COUNTERS = (
    "SHOW SESSION STATUS LIKE 'Questions'",
    f"SHOW GLOBAL STATUS WHERE Variable_name IN ({_FIGURES})",
    f"{_OWN_SESSIONS} UNION ALL {_MAX_CONNECTIONS}",
)
_INSERTS = "SELECT insert_priv = 'Y' FROM mysql.db WHERE db = %s AND user = %s AND host = %s"


class MariaDB(MariaDBDumps):
    type: Literal["postgresql", "mysql"] = "mysql"
    stop_signal: int = signal.SIGTERM
    scheme: str = "mysql"

    # Files.

    def fill(self, software: Software, folder: Path) -> None:
        copying.fill(Path(software.template), folder)

    def configure(self, software: Software, folder: Path, options: ServerOptions, *, home: str, inside: str) -> None:
        for name in (mariadb_conf.FILES, mariadb_conf.TEMPORARY):
            copying.ensure_folder(folder / RUN, name)
        settings = mariadb_conf.settings(software, folder, options, home=home, inside=inside)
        copying.put(folder / CONF, mariadb_conf.MAIN_FILE, mariadb_conf.render(settings, inside))
        copying.ensure_file(folder / CONF, mariadb_conf.REPLICATION_FILE)

    def argv(self, software: Software, options: ServerOptions, *, home: str, inside: str) -> list[str]:
        program = software.program if software.program.startswith("/") else f"{home}/{software.program}"
        return [program, f"--defaults-file={inside}/{CONF}/{mariadb_conf.MAIN_FILE}"]

    def usable_connections(self, options: ServerOptions) -> int:
        return mariadb_conf.usable_connections(options.memory_mb)

    def is_filled(self, folder: Path) -> bool:
        return (folder / DATA / "ibdata1").is_file() and (folder / DATA / OWN_DATABASE).exists()

    # Connections to a running server.

    def ping(self, access: Access) -> bool:
        """Tell whether the server is ready: sends a handshake or "too many connections"."""
        try:
            with copying.short_path(Path(access.folder) / RUN) as run, socket.socket(socket.AF_UNIX) as sock:
                sock.settimeout(PING_TIMEOUT_S)
                sock.connect(f"{run}/{mariadb_conf.SOCKET}")
                return len(sock.recv(64)) > 4
        except (OSError, ServerFailed):
            return False

    def set_admin_password(self, software: Software, access: Access) -> None:
        first = replace(access, password=templates.password_of(software.template))
        try:
            with connected(first, OWN_DATABASE) as server, server.cursor() as cursor:
                _set_password(cursor, ADMIN, ADMIN_HOST, access.password)
        except ServerFailed:
            with connected(access, OWN_DATABASE):
                pass  # The password was already replaced.

    def provision(self, access: Access, credentials: Credentials, replica_password: str | None) -> None:
        """Create missing users and databases; a read-only user stays read-only."""
        with connected(access, OWN_DATABASE) as server, server.cursor() as cursor:
            cursor.execute(f"CREATE DATABASE IF NOT EXISTS {quoted(credentials.database)} CHARACTER SET utf8mb4")
            _ensure_user(cursor, credentials.username, USER_HOST, credentials.password)
            if _may_insert(cursor, credentials) is None:
                cursor.execute(
                    f"GRANT ALL PRIVILEGES ON {_pattern(credentials)}.* TO %s@%s", (credentials.username, USER_HOST)
                )
            if replica_password is not None:
                _ensure_user(cursor, REPLICATOR, REPLICATOR_HOST, replica_password)
                cursor.execute("GRANT REPLICATION SLAVE ON *.* TO %s@%s", (REPLICATOR, REPLICATOR_HOST))

    def set_password(self, access: Access, credentials: Credentials) -> None:
        with connected(access, OWN_DATABASE) as server, server.cursor() as cursor:
            _set_password(cursor, credentials.username, USER_HOST, credentials.password)

    def set_read_only(self, access: Access, credentials: Credentials, on: bool) -> None:
        """Change privileges, and kill sessions, because those keep their privileges."""
        with connected(access, OWN_DATABASE) as server, server.cursor() as cursor:
            if _may_insert(cursor, credentials) is (not on):
                return
            account = (credentials.username, USER_HOST)
            if on:
                cursor.execute(f"REVOKE {_ADDING} ON {_pattern(credentials)}.* FROM %s@%s", account)
            else:
                cursor.execute(f"GRANT ALL PRIVILEGES ON {_pattern(credentials)}.* TO %s@%s", account)
            _end_sessions(cursor)

    def end_sessions(self, access: Access) -> None:
        with connected(access, OWN_DATABASE) as server, server.cursor() as cursor:
            _end_sessions(cursor)

    def version(self, access: Access) -> str:
        with connected(access, OWN_DATABASE) as server, server.cursor() as cursor:
            return str(_row(cursor, "SELECT version()")[0])

    def extensions(self, access: Access, credentials: Credentials) -> list[Extension]:
        return []

    def session(self, access: Access) -> StatisticsSession:
        return _Session(access)


class _Session:
    def __init__(self, access: Access) -> None:
        self._exit_stack = ExitStack()
        server = self._exit_stack.enter_context(connected(access, OWN_DATABASE))
        self._cursor = self._exit_stack.enter_context(server.cursor())
        self._cursor.execute("SHOW VARIABLES LIKE 'userstat'")
        self._counts_users = self._cursor.fetchone() is not None

    def counters(self) -> Counters:
        import pymysql

        try:
            return self._counters()
        except (pymysql.MySQLError, OSError) as error:
            raise ServerFailed(f"cannot read the server's statistics: {error}") from error

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
        return _figures(self._cursor, _MARIADB_COUNTERS, (*_OWN, *_OWN))

    def _of_mysql(self) -> dict[str, int]:
        own, status, sessions = _MYSQL_COUNTERS
        # The count includes this statement, but not the next one.
        own_questions = _figures(self._cursor, own)["questions"] + 1
        return {
            "own_questions": own_questions,
            **_figures(self._cursor, status),
            **_figures(self._cursor, sessions, _OWN),
        }

    def close(self) -> None:
        self._exit_stack.close()


def _figures(cursor: Cursor, query: str, values: tuple[str, ...] | None = None) -> dict[str, int]:
    cursor.execute(query, values)
    return {str(name).lower(): int(value) for name, value in cursor.fetchall()}


def _row(cursor: Cursor, query: str, values: tuple[str, ...] | None = None) -> tuple[Any, ...]:
    cursor.execute(query, values)
    row = cursor.fetchone()
    assert row is not None
    return tuple(row)


def _may_insert(cursor: Cursor, credentials: Credentials) -> bool | None:
    """Tell whether the user has the INSERT privilege; None without any privileges yet."""
    cursor.execute(_INSERTS, (_escaped(credentials.database), credentials.username, USER_HOST))
    row = cursor.fetchone()
    return None if row is None else bool(row[0])


def ensure_reader_account(access: Access, credentials: Credentials, name: str, password: str) -> None:
    """Create an account that can only read the tenant's database, over the socket. Safe to repeat."""
    with connected(access, OWN_DATABASE) as server, server.cursor() as cursor:
        _ensure_user(cursor, name, ADMIN_HOST, password)
        cursor.execute(f"GRANT SELECT, SHOW VIEW ON {_pattern(credentials)}.* TO %s@%s", (name, ADMIN_HOST))


def _ensure_user(cursor: Cursor, name: str, host: str, password: str) -> None:
    cursor.execute("CREATE USER IF NOT EXISTS %s@%s IDENTIFIED WITH mysql_native_password", (name, host))
    _set_password(cursor, name, host, password)


def _set_password(cursor: Cursor, name: str, host: str, password: str) -> None:
    """Set a password by its hash: statements may appear in logs and statistics."""
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


def _escaped(name: str) -> str:
    """Return a LIKE pattern that matches only this name."""
    return name.replace("\\", "\\\\").replace("_", "\\_").replace("%", "\\%")


def _pattern(credentials: Credentials) -> str:
    """Return the database pattern for GRANT and REVOKE, with % escaped as %%."""
    return quoted(_escaped(credentials.database)).replace("%", "%%")
