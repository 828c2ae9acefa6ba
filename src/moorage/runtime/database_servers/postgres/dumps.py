"""Dumps of PostgreSQL: written by the platform's user, who sees all, and loaded with the rights of the database's own.

A dump holds code that users wrote, and some of it runs while it is loaded: in checks, defaults and indexes. Whoever
loads it is therefore the one who wrote it.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from moorage.runtime.database_servers import copying
from moorage.runtime.database_servers.ports import ADMIN, CONF, RUN, Access, Names, ServerFailed, Software
from moorage.runtime.database_servers.postgres import configuration as postgres_conf
from moorage.runtime.database_servers.tools import Toolbox, check_wanted, disk_errors_told

if TYPE_CHECKING:
    import psycopg

LOCK_WAIT = "120s"  # how long somebody may keep a dump from reading a table
LET_IN_S = 10.0
LOOK_S = 0.02
LEVEL = "3"  # of compression; higher ones take far longer for little
_EVERYBODY = "local all all scram-sha-256\n"
_TABLE = re.compile(r"\d+; 1259 \d+ TABLE ")
_EXTENSION = re.compile(r"\d+; (?:3079 \d+ EXTENSION|0 0 COMMENT) - (?:EXTENSION )?(?P<name>.*?) *$")
_PUBLIC = re.compile(r"\d+; 2615 \d+ SCHEMA - public ")
# Tables of the database itself: neither the server's, nor part of an extension, nor of a session.
_TABLES = """
SELECT n.nspname, c.relname FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE c.relkind IN ('r', 'p') AND c.relpersistence <> 't'
  AND n.nspname NOT IN ('pg_catalog', 'information_schema') AND n.nspname NOT LIKE 'pg\\_toast%'
  AND NOT EXISTS (SELECT 1 FROM pg_depend d
                  WHERE d.classid = 'pg_class'::regclass AND d.objid = c.oid AND d.deptype = 'e')
ORDER BY 1, 2
"""


def environment(box: Toolbox, access: Access, user: str, password: str, database: str) -> dict[str, str]:
    """Return what leads a tool into a server."""
    return {
        "PGHOST": box.reach(Path(access.folder) / RUN),
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
    """Come into a server, as the platform unless another is named; raises ServerFailed for whatever goes wrong."""
    import psycopg

    try:
        handle = os.open(Path(access.folder) / RUN, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    except FileNotFoundError:
        raise ServerFailed("its server is not there") from None
    try:
        with psycopg.connect(
            host=f"/proc/self/fd/{handle}",
            port=access.port,
            user=user,
            password=access.password if password is None else password,
            dbname=database,
            connect_timeout=20,
            autocommit=True,
        ) as connection:
            yield connection
    except psycopg.Error as error:
        raise ServerFailed(f"the server refused: {' '.join(str(error).split())}") from error
    finally:
        os.close(handle)


class PostgreSQLDumps:
    """What a server of PostgreSQL is backed up and restored with."""

    def dump(self, software: Software, access: Access, names: Names, target: Path) -> None:
        args = ["--format=custom", f"--compress={LEVEL}", f"--lock-wait-timeout={LOCK_WAIT}", "--no-password"]
        with disk_errors_told(), Toolbox(software, Path(access.folder)) as box, target.open("xb") as file:
            env = environment(box, access, ADMIN, access.password, names.database)
            # To standard output some versions write the table of contents twice, and the second one where none is read.
            with box.lent(file) as path:
                box.run("pg_dump", [*args, "--no-sync", f"--file={path}"], env)
            os.fsync(file.fileno())

    def check(self, software: Software, dump: Path) -> int:
        """Read a whole dump; return how many tables it has, and raise ServerFailed for one that is cut or broken."""
        with Toolbox(software, dump) as box, dump.open("rb") as file:
            # The contents alone stand at the beginning, and can be read of a dump that was cut short behind them.
            box.run("pg_restore", ["--file=/dev/null"], {}, reads=file)
        return sum(_TABLE.match(line) is not None for line in _contents_of(software, dump))

    def load(self, software: Software, access: Access, names: Names, dump: Path) -> None:
        wanted = self._prepare(software, access, names, dump)
        _let_users_in(access, names)
        args = ["--exit-on-error", "--no-owner", "--no-password", f"--dbname={_escaped(names.database)}"]
        with Toolbox(software, Path(access.folder)) as box, dump.open("rb") as file, _memory(wanted) as chosen:
            env = environment(box, access, names.username, names.password, names.database)
            args.append(f"--use-list={box.reach_file(chosen)}")
            box.run("pg_restore", args, env, reads=file)

    def contents(self, access: Access, names: Names) -> dict[str, int]:
        """Return every table of the database with how many rows it has. Every row is read for it."""
        from psycopg import sql

        counted = {}
        with connected(access, names.database) as connection:
            connection.execute("SET row_security = off")
            for schema, table in connection.execute(_TABLES).fetchall():
                check_wanted()
                count = sql.SQL("SELECT count(*) FROM {}").format(sql.Identifier(schema, table))
                row = connection.execute(count).fetchone()
                counted[f"{schema}.{table}"] = int(row[0]) if row else 0
        return counted

    def _prepare(self, software: Software, access: Access, names: Names, dump: Path) -> str:
        """Return the entries of a dump that its user can load; what only the platform can do is done here."""
        from psycopg import sql

        listed = _contents_of(software, dump)
        with connected(access, names.database) as connection:
            there = {name for (name,) in connection.execute("SELECT extname FROM pg_extension").fetchall()}
            if any(_PUBLIC.match(line) for line in listed):
                owner = sql.SQL("ALTER SCHEMA public OWNER TO {}").format(sql.Identifier(names.username))
                connection.execute(owner)
        return "".join(f"{line}\n" for line in listed if not _is_there(line, there))


def _contents_of(software: Software, dump: Path) -> list[str]:
    with Toolbox(software, dump) as box, dump.open("rb") as file:
        listed = box.lines("pg_restore", ["--list"], {}, file)
    return [line for line in listed if line and not line.startswith(";")]


def _is_there(line: str, extensions: set[str]) -> bool:
    found = _EXTENSION.match(line)
    return _PUBLIC.match(line) is not None or (found is not None and found["name"] in extensions)


def _escaped(name: str) -> str:
    """Keep a name that looks like a connection string from being read as one."""
    quoted = name.replace("\\", "\\\\").replace("'", "\\'")
    return f"dbname='{quoted}'"


def _let_users_in(access: Access, names: Names) -> None:
    """Let the user come through the socket, until the server is started again: its rules are written anew then.

    Only the platform can reach that socket.
    """
    copying.put(Path(access.folder) / CONF, postgres_conf.RULES_FILE, _EVERYBODY + postgres_conf.rules(has_tls=False))
    with connected(access, names.database) as connection:
        connection.execute("SELECT pg_reload_conf()")
    deadline = time.monotonic() + LET_IN_S
    while not _is_let_in(access, names):
        if time.monotonic() > deadline:
            raise ServerFailed("the server does not let its user in")
        time.sleep(LOOK_S)


def _is_let_in(access: Access, names: Names) -> bool:
    try:
        with connected(access, names.database, user=names.username, password=names.password):
            return True
    except ServerFailed:
        return False


@contextmanager
def _memory(text: str) -> Iterator[int]:
    """Hold a text where a tool can read it as a file."""
    handle = os.memfd_create("list", os.MFD_CLOEXEC)
    try:
        os.fchmod(handle, 0o644)
        os.write(handle, text.encode())
        os.lseek(handle, 0, os.SEEK_SET)
        yield handle
    finally:
        os.close(handle)
