"""PostgreSQL: how a server of it is filled, started and spoken to."""

from __future__ import annotations

import signal
import socket
import struct
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from moorage.runtime.database_servers import copying
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
from moorage.runtime.database_servers.postgres import configuration as postgres_conf
from moorage.runtime.database_servers.postgres.dumps import PostgreSQLDumps, connected
from moorage.runtime.database_servers.software import templates

if TYPE_CHECKING:
    from psycopg import Connection
    from psycopg.sql import Composed

OWN_DATABASE = "postgres"  # where the platform looks around; users cannot enter it
STANDBY_FILE, RECOVERY_FILE = "standby.signal", "recovery.signal"
PING_S = 5.0
ASK_MS = 10_000
_PROTOCOL = 3 << 16
_NOT_YET = b"57P03"  # It starts, recovers, or is about to end.

_LACKS = """
SELECT NOT EXISTS (SELECT FROM pg_roles WHERE rolname = %(user)s),
       NOT EXISTS (SELECT FROM pg_roles WHERE rolname = %(replicator)s),
       NOT EXISTS (SELECT FROM pg_database WHERE datname = %(database)s),
       EXISTS (SELECT FROM pg_database WHERE datname = 'template1')
"""
# Renaming a database that is there and empty takes a moment, where making one takes the most of making a server. Nobody
# misses it: nothing but the platform makes databases here.
_BECOME = """
ALTER DATABASE template1 IS_TEMPLATE false;
ALTER DATABASE template1 RENAME TO {0};
COMMENT ON DATABASE {0} IS NULL;
"""
_MAKE = "CREATE DATABASE {0} TEMPLATE template0 ENCODING 'UTF8'"
_OWNS_PUBLIC = """
SELECT EXISTS (SELECT FROM pg_namespace WHERE nspname = 'public' AND pg_get_userbyid(nspowner) = %s)
"""
_IS_READ_ONLY = """
SELECT EXISTS (SELECT FROM pg_db_role_setting
               WHERE setdatabase = (SELECT oid FROM pg_database WHERE datname = %s)
                 AND setrole = (SELECT oid FROM pg_roles WHERE rolname = %s)
                 AND 'default_transaction_read_only=on' = ANY (setconfig))
"""
_END = """
SELECT pg_terminate_backend(pid) FROM pg_stat_activity
WHERE backend_type = 'client backend' AND usename NOT IN (%s, %s)
"""
_COUNTERS = """
SELECT (SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'client backend' AND usename NOT IN (%s, %s)),
       (SELECT sum(CASE name WHEN 'max_connections' THEN setting::int ELSE -setting::int END) FROM pg_settings
        WHERE name IN ('max_connections', 'superuser_reserved_connections', 'reserved_connections')),
       {queries}, sum(blks_hit), sum(blks_read)
FROM pg_stat_database WHERE datname NOT IN ('postgres', 'template0', 'template1')
"""
# What the platform itself asks does not count.
_STATEMENTS = f"""
(SELECT coalesce(sum(calls), 0) FROM pg_stat_statements(false)
 WHERE userid <> (SELECT oid FROM pg_roles WHERE rolname = '{ADMIN}'))
"""  # noqa: S608 - a constant
_TRANSACTIONS = "sum(xact_commit + xact_rollback)"


class PostgreSQL(PostgreSQLDumps):
    type: Literal["postgresql", "mysql"] = "postgresql"
    stop_signal: int = signal.SIGINT  # Ends sessions, writes everything down, and ends.
    scheme: str = "postgresql"

    # Files.

    def fill(self, software: Software, folder: Path) -> None:
        copying.fill(Path(software.template), folder)

    def configure(self, software: Software, folder: Path, shape: Shape, *, home: str, place: str) -> None:
        conf = folder / CONF
        told = postgres_conf.settings(software, shape, place)
        copying.put(conf, postgres_conf.MAIN_FILE, postgres_conf.render(told))
        copying.put(conf, postgres_conf.RULES_FILE, postgres_conf.rules(has_tls=shape.has_tls))
        copying.put(conf, postgres_conf.NAMES_FILE, "")
        copying.ensure_file(conf, postgres_conf.REPLICATION_FILE)
        if shape.primary is not None:
            copying.put(conf, postgres_conf.SECRET_FILE, postgres_conf.password_line(shape))
        _say_how_to_begin(folder / DATA, shape)

    def argv(self, software: Software, shape: Shape, *, home: str, place: str) -> list[str]:
        program = software.program if software.program.startswith("/") else f"{home}/{software.program}"
        return [program, "-c", f"config_file={place}/{CONF}/{postgres_conf.MAIN_FILE}"]

    def usable_connections(self, shape: Shape) -> int:
        return postgres_conf.usable_connections(shape.memory_mb)

    def is_filled(self, folder: Path) -> bool:
        return (folder / DATA / "PG_VERSION").is_file() and (folder / DATA / "global" / "pg_control").is_file()

    # Speaking to a server that runs.

    def ping(self, access: Access) -> bool:
        """Tell whether it would ask for a password: that takes no time, and nothing of it is logged."""
        try:
            with copying.short_path(Path(access.folder) / RUN) as run, socket.socket(socket.AF_UNIX) as sock:
                sock.settimeout(PING_S)
                sock.connect(f"{run}/.s.PGSQL.{access.port}")
                sock.sendall(_startup(user=ADMIN, database=OWN_DATABASE))
                answer = sock.recv(4096)
        except OSError:
            return False
        return answer.startswith(b"R") or (answer.startswith(b"E") and _NOT_YET not in answer)

    def take_over(self, software: Software, access: Access) -> None:
        first = replace(access, password=templates.password_of(software.template))
        try:
            with connected(first, OWN_DATABASE) as server:
                server.execute(_set_password(server, ADMIN, access.password))
        except ServerFailed:
            with connected(access, OWN_DATABASE):
                pass  # It has been taken over before.

    def provision(self, access: Access, names: Names, replica_password: str | None) -> None:
        asked = {"user": names.username, "replicator": REPLICATOR, "database": names.database}
        with connected(access, OWN_DATABASE) as server:
            lacks_user, lacks_replicator, lacks_database, has_blank = _row(server, _LACKS, asked)
            _ensure_role(server, names.username, names.password, is_new=lacks_user)
            if replica_password is not None:
                _ensure_role(server, REPLICATOR, replica_password, is_new=lacks_replicator, replicates=True)
            if lacks_database:
                server.execute(_sql(_BECOME if has_blank else _MAKE, names))
            server.execute(_sql("ALTER DATABASE {0} OWNER TO {1}; REVOKE ALL ON DATABASE {0} FROM PUBLIC", names))
            server.execute("REVOKE ALL ON DATABASE postgres FROM PUBLIC")
        with connected(access, names.database) as server:
            server.execute("DROP EXTENSION IF EXISTS pg_stat_statements")
            if _row(server, _OWNS_PUBLIC, (ADMIN,))[0]:  # Since 15 it is whoever owns the database.
                server.execute(_sql("ALTER SCHEMA public OWNER TO {1}", names))

    def set_password(self, access: Access, names: Names) -> None:
        with connected(access, OWN_DATABASE) as server:
            server.execute(_set_password(server, names.username, names.password))

    def set_read_only(self, access: Access, names: Names, on: bool) -> None:
        """Let the user's transactions be read-only unless they say otherwise, from now on and for every session.

        A user can begin one that writes, `BEGIN READ WRITE`: this is how data is deleted. Who writes on regardless is
        stopped by nothing here, so whoever watches the size has to look again.
        """
        with connected(access, OWN_DATABASE) as server:
            if _row(server, _IS_READ_ONLY, (names.database, names.username))[0] == on:
                return
            how = "SET default_transaction_read_only = on" if on else "RESET default_transaction_read_only"
            server.execute(_sql("ALTER ROLE {1} IN DATABASE {0} " + how, names))
            server.execute(_END, (ADMIN, REPLICATOR))

    def end_sessions(self, access: Access) -> None:
        with connected(access, OWN_DATABASE) as server:
            server.execute(_END, (ADMIN, REPLICATOR))

    def version(self, access: Access) -> str:
        with connected(access, OWN_DATABASE) as server:
            return str(_row(server, "SELECT version()")[0])

    def session(self, access: Access) -> Session:
        return _Session(access)


class _Session:
    """A connection of the platform that is kept."""

    def __init__(self, access: Access) -> None:
        self._kept = ExitStack()
        self._server = self._kept.enter_context(connected(access, OWN_DATABASE))
        self._server.execute(f"SET statement_timeout = {ASK_MS}")
        has_statements = _row(self._server, "SELECT to_regproc('pg_stat_statements') IS NOT NULL")[0]
        self._query = _COUNTERS.format(queries=_STATEMENTS if has_statements else _TRANSACTIONS)

    def counters(self) -> Counters:
        import psycopg

        try:
            row = _row(self._server, self._query, (ADMIN, REPLICATOR))
        except psycopg.Error as error:
            raise ServerFailed(f"the server does not say how it is: {' '.join(str(error).split())}") from error
        connections, most, *growing = (None if value is None else int(value) for value in row)
        return Counters(connections or 0, most or 0, *growing)

    def close(self) -> None:
        self._kept.close()


def _say_how_to_begin(data: Path, shape: Shape) -> None:
    """Tell by files whether a server follows another one, replays a log, or just begins.

    A replica that is to follow nobody any more replays what it has, and then begins a history of its own: on the old
    one nobody could tell its changes from those that its primary still made.
    """
    was_replica = (data / STANDBY_FILE).exists()
    replays = shape.recovery is not None or (was_replica and shape.primary is None)
    wanted = STANDBY_FILE if shape.primary is not None else RECOVERY_FILE if replays else None
    if wanted is not None:
        copying.put(data, wanted, "", is_kept=True)
    for name in {STANDBY_FILE, RECOVERY_FILE} - {wanted}:
        copying.drop(data, name)


def _startup(**said: str) -> bytes:
    """Return what a client says first."""
    words = b"".join(f"{name}\0{value}\0".encode() for name, value in said.items()) + b"\0"
    return struct.pack("!ii", len(words) + 8, _PROTOCOL) + words


def _row(server: Connection[Any], query: str, values: Any = None) -> tuple[Any, ...]:
    found = server.execute(query, values).fetchone()
    assert found is not None
    return tuple(found)


def _sql(statement: str, names: Names) -> Composed:
    """Return a statement with the names of a database (0) and its user (1) in it."""
    from psycopg import sql

    return sql.SQL(statement).format(sql.Identifier(names.database), sql.Identifier(names.username))


def _ensure_role(server: Connection[Any], name: str, password: str, *, is_new: bool, replicates: bool = False) -> None:
    from psycopg import sql

    rights = "LOGIN NOSUPERUSER NOCREATEDB NOCREATEROLE NOBYPASSRLS " + (
        "REPLICATION" if replicates else "NOREPLICATION"
    )
    verb = sql.SQL("CREATE" if is_new else "ALTER")
    named = sql.SQL("{} ROLE {} {}; ").format(verb, sql.Identifier(name), sql.SQL(rights))
    server.execute(named + _set_password(server, name, password))


def _set_password(server: Connection[Any], role: str, password: str) -> Composed:
    """Return a statement without the password itself: what a server is told can be seen in more than one place."""
    from psycopg import sql

    verifier = server.pgconn.encrypt_password(password.encode(), role.encode(), b"scram-sha-256").decode()
    return sql.SQL("ALTER ROLE {} PASSWORD {}").format(sql.Identifier(role), sql.Literal(verifier))
