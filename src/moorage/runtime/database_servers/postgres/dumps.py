"""PostgreSQL dumps: written by the superuser, loaded as the database's user.

A dump contains code of the tenant that runs during a load, in checks, defaults and indexes, so it must not run with
more privileges than the tenant has.
"""

from __future__ import annotations

import os
import re
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from moorage.runtime.database_servers import copying
from moorage.runtime.database_servers.ports import ADMIN, CONF, RUN, Access, Credentials, ServerFailed, Software
from moorage.runtime.database_servers.postgres import configuration as postgres_conf
from moorage.runtime.database_servers.tools import Toolbox, raise_if_cancelled, wrap_disk_errors

if TYPE_CHECKING:
    import psycopg
    from psycopg.sql import Composed

LOCK_TIMEOUT = "120s"  # for the read lock on a table
RELOAD_TIMEOUT_S = 10.0
LOGIN_POLL_INTERVAL_S = 0.02
COMPRESSION_LEVEL = "3"  # Higher levels take much longer and save little.
# Overrides the setting of the database, which its owner can change: the superuser must not call a function of the
# tenant that has the name of one of the system.
_SEARCH_PATH = "-c search_path=pg_catalog"
_ALLOW_ALL_LOCAL = "local all all scram-sha-256\n"
_TABLE = re.compile(r"\d+; 1259 \d+ TABLE ")
_EXTENSION = re.compile(r"\d+; (?:3079 \d+ EXTENSION|0 0 COMMENT) - (?:EXTENSION )?(?P<name>\S+) *$")
_PUBLIC = re.compile(r"\d+; 2615 \d+ SCHEMA - public ")
# Tables of the tenant: no system tables, tables of extensions or temporary tables; with the smallest stored column.
_TABLES = """
SELECT n.nspname, c.relname, c.relkind = 'p',
       (SELECT a.attname FROM pg_attribute a
        WHERE a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped AND a.attgenerated = ''
        ORDER BY a.attlen < 0, a.attlen LIMIT 1)
FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE c.relkind IN ('r', 'p') AND c.relpersistence <> 't'
  AND n.nspname NOT IN ('pg_catalog', 'information_schema') AND n.nspname NOT LIKE 'pg\\_toast%'
  AND NOT EXISTS (SELECT 1 FROM pg_depend d
                  WHERE d.classid = 'pg_class'::regclass AND d.objid = c.oid AND d.deptype = 'e')
ORDER BY 1, 2
"""


def environment(box: Toolbox, access: Access, user: str, password: str, database: str) -> dict[str, str]:
    """Return the libpq environment with which a tool connects to a server."""
    return {
        "PGHOST": f"{box.reach(access.folder)}/{RUN}",
        "PGPORT": str(access.port),
        "PGUSER": user,
        "PGPASSWORD": password,
        "PGDATABASE": database,
        "PGPASSFILE": "/dev/null",
        "PGSERVICEFILE": "/dev/null",
        "PGCONNECT_TIMEOUT": "20",
    }


@contextmanager
def connected(
    access: Access, database: str, *, user: str = ADMIN, password: str | None = None
) -> Iterator[psycopg.Connection[Any]]:
    """Connect to a server, as ADMIN by default; errors become ServerFailed."""
    import psycopg

    secret = access.password if password is None else password
    try:
        with (
            copying.short_path(Path(access.folder) / RUN) as run,
            psycopg.connect(
                host=run,
                port=access.port,
                user=user,
                password=secret,
                dbname=database,
                connect_timeout=20,
                autocommit=True,
                options=_SEARCH_PATH if user == ADMIN else "",
            ) as connection,
        ):
            yield connection
    except psycopg.Error as error:
        raise ServerFailed(f"the server refused: {' '.join(str(error).split())}") from error


class PostgreSQLDumps:
    """Dump and restore operations of PostgreSQL."""

    def dump(self, software: Software, access: Access, credentials: Credentials, target: Path) -> None:
        compress, lock_timeout = f"--compress={COMPRESSION_LEVEL}", f"--lock-wait-timeout={LOCK_TIMEOUT}"
        args = ["--format=custom", compress, lock_timeout, "--no-password"]
        with wrap_disk_errors(), Toolbox(software, Path(access.folder)) as box, target.open("xb") as file:
            env = environment(box, access, ADMIN, access.password, credentials.database)
            # Some versions write a second table of contents at the end when the output is a pipe.
            with box.lent(file) as path:
                box.run("pg_dump", [*args, "--no-sync", f"--file={path}"], env)
            os.fsync(file.fileno())

    def check(self, software: Software, dump: Path) -> int:
        with Toolbox(software, dump) as box, dump.open("rb") as file:
            # The table of contents is at the start and readable in a truncated dump, so restore to /dev/null first.
            box.run("pg_restore", ["--file=/dev/null"], {}, reads=file)
        return sum(_TABLE.match(line) is not None for line in _list_entries(software, dump))

    def load(self, software: Software, access: Access, credentials: Credentials, dump: Path) -> None:
        entries = self._prepare(software, access, credentials, dump)
        _allow_local_logins(access, credentials)
        args = ["--exit-on-error", "--no-owner", "--no-password", f"--dbname={_escaped(credentials.database)}"]
        with Toolbox(software, Path(access.folder)) as box, dump.open("rb") as file, _file_of(entries) as listed:
            env = environment(box, access, credentials.username, credentials.password, credentials.database)
            args.append(f"--use-list={box.reach(listed)}")
            box.run("pg_restore", args, env, reads=file)

    def count_rows(self, access: Access, credentials: Credentials) -> dict[str, int]:
        """Count rows with COPY: planning a query would call functions of the tenant as the superuser.

        The planner evaluates expressions of indexes, extended statistics and partition keys. COPY plans nothing, reads
        no other table, and refuses a view that replaced a table meanwhile. Partitions have the rows of their parent.
        """
        row_counts = {}
        with connected(access, credentials.database) as connection:
            for schema, table, is_parent, column in connection.execute(_TABLES).fetchall():
                raise_if_cancelled()
                copy = _copy_to_null(schema, table, column)
                row_counts[f"{schema}.{table}"] = 0 if is_parent else connection.execute(copy).rowcount
        return row_counts

    def _prepare(self, software: Software, access: Access, credentials: Credentials, dump: Path) -> str:
        """Return the entries that the user can load; does the superuser's part."""
        from psycopg import sql

        lines = _list_entries(software, dump)
        with connected(access, credentials.database) as connection:
            extensions = {name for (name,) in connection.execute("SELECT extname FROM pg_extension").fetchall()}
            if any(_PUBLIC.match(line) for line in lines):
                owner = sql.SQL("ALTER SCHEMA public OWNER TO {}").format(sql.Identifier(credentials.username))
                connection.execute(owner)
        return "".join(f"{line}\n" for line in lines if not _exists(line, extensions))


def _copy_to_null(schema: str, table: str, column: str | None) -> Composed:
    """Return a statement that reads all rows of a table in the server; a table may have no stored column."""
    from psycopg import sql

    columns = sql.SQL("") if column is None else sql.SQL("({})").format(sql.Identifier(column))
    return sql.SQL("COPY {} {} TO '/dev/null'").format(sql.Identifier(schema, table), columns)


def _list_entries(software: Software, dump: Path) -> list[str]:
    with Toolbox(software, dump) as box, dump.open("rb") as file:
        lines = box.lines("pg_restore", ["--list"], {}, file)
    return [line for line in lines if line and not line.startswith(";")]


def _exists(line: str, extensions: set[str]) -> bool:
    match = _EXTENSION.match(line)
    return _PUBLIC.match(line) is not None or (match is not None and match["name"] in extensions)


def _escaped(name: str) -> str:
    """Return a conninfo, because a name with `=` would be parsed as one."""
    quoted = name.replace("\\", "\\\\").replace("'", "\\'")
    return f"dbname='{quoted}'"


def _allow_local_logins(access: Access, credentials: Credentials) -> None:
    """Allow the user to log in through the Unix socket, until the next start.

    Only the platform can reach that socket.
    """
    rules = _ALLOW_ALL_LOCAL + postgres_conf.rules(has_tls=False)
    copying.put(Path(access.folder) / CONF, postgres_conf.RULES_FILE, rules)
    with connected(access, credentials.database) as connection:
        connection.execute("SELECT pg_reload_conf()")
    deadline = time.monotonic() + RELOAD_TIMEOUT_S
    while not _can_log_in(access, credentials):
        if time.monotonic() > deadline:
            raise ServerFailed("the server does not accept its user's login")
        time.sleep(LOGIN_POLL_INTERVAL_S)


def _can_log_in(access: Access, credentials: Credentials) -> bool:
    try:
        with connected(access, credentials.database, user=credentials.username, password=credentials.password):
            return True
    except ServerFailed:
        return False


@contextmanager
def _file_of(text: str) -> Iterator[str]:
    """Yield the path of a temporary file with this text, which all users may read."""
    with tempfile.NamedTemporaryFile("w", prefix="moorage-list-") as file:
        os.fchmod(file.fileno(), 0o644)
        file.write(text)
        file.flush()
        yield file.name
