"""PostgreSQL servers: files, configuration and administration."""

from __future__ import annotations

import signal
import socket
import struct
from collections.abc import Mapping
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
    Credentials,
    Extension,
    ServerFailed,
    ServerOptions,
    Software,
    StatisticsSession,
)
from moorage.runtime.database_servers.postgres import configuration as postgres_conf
from moorage.runtime.database_servers.postgres.dumps import PostgreSQLDumps, connected
from moorage.runtime.database_servers.queries.postgres import read_catalog
from moorage.runtime.database_servers.software import templates

if TYPE_CHECKING:
    from psycopg import Connection
    from psycopg.sql import Composed

OWN_DATABASE = "postgres"  # for the platform's connections; users cannot connect to it
STANDBY_FILE, RECOVERY_FILE = "standby.signal", "recovery.signal"
PING_TIMEOUT_S = 5.0
COUNTERS_TIMEOUT_MS = 10_000
_PROTOCOL = 3 << 16
_CANNOT_CONNECT_NOW = b"57P03"  # SQLSTATE while the server starts, recovers or shuts down

_LACKS = """
SELECT NOT EXISTS (SELECT FROM pg_roles WHERE rolname = %(user)s),
       NOT EXISTS (SELECT FROM pg_roles WHERE rolname = %(replicator)s),
       NOT EXISTS (SELECT FROM pg_database WHERE datname = %(database)s),
       EXISTS (SELECT FROM pg_database WHERE datname = 'template1')
"""
# Renaming the empty template1 is instant, while CREATE DATABASE takes most of the time of provisioning a server.
# template1 is not needed: only the platform creates databases here.
_RENAME_TEMPLATE1 = """
ALTER DATABASE template1 IS_TEMPLATE false;
ALTER DATABASE template1 RENAME TO {0};
COMMENT ON DATABASE {0} IS NULL;
"""
_CREATE = "CREATE DATABASE {0} TEMPLATE template0 ENCODING 'UTF8'"
_OWNS_PUBLIC = """
SELECT EXISTS (SELECT FROM pg_namespace WHERE nspname = 'public' AND pg_get_userbyid(nspowner) = %s)
"""
_IS_READ_ONLY = """
SELECT EXISTS (SELECT FROM pg_db_role_setting
               WHERE setdatabase = (SELECT oid FROM pg_database WHERE datname = %s)
                 AND setrole = (SELECT oid FROM pg_roles WHERE rolname = %s)
                 AND 'default_transaction_read_only=on' = ANY (setconfig))
"""
_TERMINATE = """
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
# Without the statements of the platform.
_STATEMENTS = f"""
(SELECT coalesce(sum(calls), 0) FROM public.pg_stat_statements(false)
 WHERE userid <> (SELECT oid FROM pg_roles WHERE rolname = '{ADMIN}'))
"""  # noqa: S608 - a constant
_TRANSACTIONS = "sum(xact_commit + xact_rollback)"
# The extension of the template. One that the user created is theirs.
_HAS_OWN_EXTENSION = """
SELECT EXISTS (SELECT FROM pg_extension WHERE extname = 'pg_stat_statements' AND pg_get_userbyid(extowner) = %s)
"""
_EXTENSIONS = """
SELECT e.name, coalesce(e.comment, ''), e.default_version, e.installed_version, v.trusted OR NOT v.superuser
FROM pg_catalog.pg_available_extensions e JOIN pg_catalog.pg_available_extension_versions v
  ON v.name = e.name AND v.version = e.default_version ORDER BY e.name
"""
_NEEDS_SUPERUSER = "It needs superuser rights, which users do not have"
# Extensions that users ask for and that may be missing.
_MISSING: Mapping[str, tuple[str, str]] = {
    "pg_cron": ("job scheduler", "There is no package of it for this server; use a cronjob of the platform"),
    "postgis": ("geometry and geography types", "There is no package of it for this server"),
    "uuid-ossp": (
        "generate universally unique identifiers (UUIDs)",
        "It needs a library that this machine lacks (Debian, Ubuntu: apt install libossp-uuid16, then `moorage engines "
        "install`); `gen_random_uuid()` needs no extension",
    ),
    "vector": (
        "vector data type and access methods",
        "It is not installed: the operator can add it to PostgreSQL 16 with `moorage engines install`, on x86-64 only "
        "to a CPU with AVX2; there is no package of it for PostgreSQL 14",
    ),
}


class PostgreSQL(PostgreSQLDumps):
    type: Literal["postgresql", "mysql"] = "postgresql"
    stop_signal: int = signal.SIGINT  # fast shutdown: terminates sessions and writes a checkpoint
    scheme: str = "postgresql"

    # Files.

    def fill(self, software: Software, folder: Path) -> None:
        copying.fill(Path(software.template), folder)

    def configure(self, software: Software, folder: Path, options: ServerOptions, *, home: str, inside: str) -> None:
        conf = folder / CONF
        settings = postgres_conf.settings(software, options, inside)
        copying.put(conf, postgres_conf.MAIN_FILE, postgres_conf.render(settings))
        copying.put(
            conf, postgres_conf.RULES_FILE, postgres_conf.rules(has_tls=options.has_tls, is_in_pod=bool(options.host))
        )
        copying.put(conf, postgres_conf.NAMES_FILE, "")
        copying.ensure_file(conf, postgres_conf.REPLICATION_FILE)
        if options.primary is not None:
            copying.put(conf, postgres_conf.SECRET_FILE, postgres_conf.password_line(options))
        _write_signal_files(folder / DATA, options)

    def argv(self, software: Software, options: ServerOptions, *, home: str, inside: str) -> list[str]:
        program = software.program if software.program.startswith("/") else f"{home}/{software.program}"
        return [program, "-c", f"config_file={inside}/{CONF}/{postgres_conf.MAIN_FILE}"]

    def usable_connections(self, options: ServerOptions) -> int:
        return postgres_conf.usable_connections(options.memory_mb)

    def is_filled(self, folder: Path) -> bool:
        return (folder / DATA / "PG_VERSION").is_file() and (folder / DATA / "global" / "pg_control").is_file()

    # Connections to a running server.

    def ping(self, access: Access) -> bool:
        """Tell whether the server requests a password; this is fast and not logged."""
        try:
            with copying.short_path(Path(access.folder) / RUN) as run, socket.socket(socket.AF_UNIX) as sock:
                sock.settimeout(PING_TIMEOUT_S)
                sock.connect(f"{run}/.s.PGSQL.{access.port}")
                sock.sendall(_startup(user=ADMIN, database=OWN_DATABASE))
                response = sock.recv(4096)
        except (OSError, ServerFailed):
            return False
        return response.startswith(b"R") or (response.startswith(b"E") and _CANNOT_CONNECT_NOW not in response)

    def set_admin_password(self, software: Software, access: Access) -> None:
        first = replace(access, password=templates.password_of(software.template))
        try:
            with connected(first, OWN_DATABASE) as server:
                server.execute(_set_password(server, ADMIN, access.password))
        except ServerFailed:
            with connected(access, OWN_DATABASE):
                pass  # The password was already replaced.

    def provision(self, access: Access, credentials: Credentials, replica_password: str | None) -> None:
        parameters = {"user": credentials.username, "replicator": REPLICATOR, "database": credentials.database}
        with connected(access, OWN_DATABASE) as server:
            lacks_user, lacks_replicator, lacks_database, has_template1 = _row(server, _LACKS, parameters)
            _ensure_role(server, credentials.username, credentials.password, is_new=lacks_user)
            if replica_password is not None:
                _ensure_role(server, REPLICATOR, replica_password, is_new=lacks_replicator, replicates=True)
            if lacks_database:
                server.execute(_sql(_RENAME_TEMPLATE1 if has_template1 else _CREATE, credentials))
            server.execute(_sql("ALTER DATABASE {0} OWNER TO {1}; REVOKE ALL ON DATABASE {0} FROM PUBLIC", credentials))
            server.execute("REVOKE ALL ON DATABASE postgres FROM PUBLIC")
        with connected(access, credentials.database) as server:
            if _row(server, _HAS_OWN_EXTENSION, (ADMIN,))[0]:
                server.execute("DROP EXTENSION pg_stat_statements")
            if _row(server, _OWNS_PUBLIC, (ADMIN,))[0]:  # Since 15 the database's owner owns it.
                server.execute(_sql("ALTER SCHEMA public OWNER TO {1}", credentials))

    def set_password(self, access: Access, credentials: Credentials) -> None:
        with connected(access, OWN_DATABASE) as server:
            server.execute(_set_password(server, credentials.username, credentials.password))

    def set_read_only(self, access: Access, credentials: Credentials, on: bool) -> None:
        """Set the default of the user's transactions, and terminate the user's sessions.

        A user can still delete data with `BEGIN READ WRITE`, and could add data with it, so the caller has to measure
        the size again.
        """
        with connected(access, OWN_DATABASE) as server:
            if _row(server, _IS_READ_ONLY, (credentials.database, credentials.username))[0] == on:
                return
            change = "SET default_transaction_read_only = on" if on else "RESET default_transaction_read_only"
            server.execute(_sql("ALTER ROLE {1} IN DATABASE {0} " + change, credentials))
            server.execute(_TERMINATE, (ADMIN, REPLICATOR))

    def end_sessions(self, access: Access) -> None:
        with connected(access, OWN_DATABASE) as server:
            server.execute(_TERMINATE, (ADMIN, REPLICATOR))

    def version(self, access: Access) -> str:
        with connected(access, OWN_DATABASE) as server:
            return str(_row(server, "SELECT version()")[0])

    def extensions(self, access: Access, credentials: Credentials) -> list[Extension]:
        extensions = [
            Extension(
                name or "", text or "", default, installed, None if installed or is_allowed == "t" else _NEEDS_SUPERUSER
            )
            for name, text, default, installed, is_allowed in read_catalog(access, credentials, _EXTENSIONS)
        ]
        present = {extension.name for extension in extensions}
        missing = [Extension(name, text, None, None, why) for name, (text, why) in _MISSING.items()]
        extensions += [each for each in missing if each.name not in present]
        return sorted(extensions, key=lambda each: each.name)

    def session(self, access: Access) -> StatisticsSession:
        return _Session(access)


class _Session:
    def __init__(self, access: Access) -> None:
        self._exit_stack = ExitStack()
        self._server = self._exit_stack.enter_context(connected(access, OWN_DATABASE))
        self._server.execute(f"SET statement_timeout = {COUNTERS_TIMEOUT_MS}")
        has_statements = _row(self._server, "SELECT to_regproc('public.pg_stat_statements') IS NOT NULL")[0]
        self._query = _COUNTERS.format(queries=_STATEMENTS if has_statements else _TRANSACTIONS)

    def counters(self) -> Counters:
        import psycopg

        try:
            row = _row(self._server, self._query, (ADMIN, REPLICATOR))
        except psycopg.Error as error:
            raise ServerFailed(f"cannot read the server's statistics: {' '.join(str(error).split())}") from error
        connections, max_connections, *cumulative = (None if value is None else int(value) for value in row)
        return Counters(connections or 0, max_connections or 0, *cumulative)

    def close(self) -> None:
        self._exit_stack.close()


def _write_signal_files(data: Path, options: ServerOptions) -> None:
    """Write standby.signal for a replica, recovery.signal for a recovery, or neither.

    A former replica recovers with its WAL and starts a new timeline: on the old timeline its changes would collide with
    those that its primary still made.
    """
    was_replica = (data / STANDBY_FILE).exists()
    replays = options.recovery is not None or (was_replica and options.primary is None)
    signal_file = STANDBY_FILE if options.primary is not None else RECOVERY_FILE if replays else None
    if signal_file is not None:
        copying.put(data, signal_file, "", is_kept=True)
    for name in {STANDBY_FILE, RECOVERY_FILE} - {signal_file}:
        copying.drop(data, name)


def _startup(**parameters: str) -> bytes:
    """Return the startup message of the PostgreSQL protocol."""
    body = b"".join(f"{name}\0{value}\0".encode() for name, value in parameters.items()) + b"\0"
    return struct.pack("!ii", len(body) + 8, _PROTOCOL) + body


def _row(server: Connection[Any], query: str, values: Any = None) -> tuple[Any, ...]:
    row = server.execute(query, values).fetchone()
    assert row is not None
    return tuple(row)


def _sql(statement: str, credentials: Credentials) -> Composed:
    """Insert the quoted names of the database ({0}) and its user ({1})."""
    from psycopg import sql

    return sql.SQL(statement).format(sql.Identifier(credentials.database), sql.Identifier(credentials.username))


def _ensure_role(server: Connection[Any], name: str, password: str, *, is_new: bool, replicates: bool = False) -> None:
    from psycopg import sql

    rights = "LOGIN NOSUPERUSER NOCREATEDB NOCREATEROLE NOBYPASSRLS " + (
        "REPLICATION" if replicates else "NOREPLICATION"
    )
    verb = sql.SQL("CREATE" if is_new else "ALTER")
    named = sql.SQL("{} ROLE {} {}; ").format(verb, sql.Identifier(name), sql.SQL(rights))
    server.execute(named + _set_password(server, name, password))


def _set_password(server: Connection[Any], role: str, password: str) -> Composed:
    """Return a statement with the SCRAM verifier: statements may be logged."""
    from psycopg import sql

    verifier = server.pgconn.encrypt_password(password.encode(), role.encode(), b"scram-sha-256").decode()
    return sql.SQL("ALTER ROLE {} PASSWORD {}").format(sql.Identifier(role), sql.Literal(verifier))
