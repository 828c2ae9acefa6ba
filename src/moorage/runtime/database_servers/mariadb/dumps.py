"""MariaDB and MySQL dumps: compressed SQL; its last line marks it as complete.

The superuser writes a dump; loading it uses the privileges of the database's user.
"""

from __future__ import annotations

import gzip
import os
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from moorage.runtime.database_servers import copying
from moorage.runtime.database_servers.ports import ADMIN, RUN, Access, Credentials, ServerFailed, Software
from moorage.runtime.database_servers.tools import CHUNK, Toolbox, raise_if_cancelled, wrap_disk_errors

if TYPE_CHECKING:
    import pymysql

SOCKET = "mysqld.sock"
COMPRESSION_LEVEL = 3
LOADING = ("--binary-mode", "--max-allowed-packet=1G", "--local-infile=0")  # No dump makes the client read other files.
END = b"-- Dump completed"
_TABLE = b"CREATE TABLE `"
_ROUTINE_START, _DELIMITER = b"DELIMITER ;;", b"DELIMITER ;"
# The program looks for a delimiter that is not in an event, and does not end if `;;` is.
_ENDLESS_EVENTS = """
SELECT event_name FROM information_schema.events
WHERE event_schema = %s AND concat_ws(' ', event_name, event_definition, event_comment) LIKE '%%;;%%'
"""
_TABLES = """
SELECT table_name FROM information_schema.tables
WHERE table_schema = %s AND table_type IN ('BASE TABLE', 'SYSTEM VERSIONED') ORDER BY 1
"""


@contextmanager
def connected(
    access: Access, database: str, *, user: str = ADMIN, password: str | None = None
) -> Iterator[pymysql.Connection]:
    """Connect to a server, as ADMIN by default; all database errors become ServerFailed."""
    import pymysql

    try:
        with copying.short_path(Path(access.folder) / RUN) as run:
            connection = pymysql.connect(
                unix_socket=f"{run}/{SOCKET}",
                user=user,
                password=access.password if password is None else password,
                database=database,
                charset="utf8mb4",
                connect_timeout=20,
                ssl_disabled=True,  # A Unix socket needs no TLS, and setting it up would take the longest.
                autocommit=True,
            )
            with connection:
                yield connection
    except pymysql.MySQLError as error:
        raise ServerFailed(f"the server refused: {error.args[-1] if error.args else error}") from error


class MariaDBDumps:
    """Dump and restore operations of MariaDB and MySQL."""

    def dump(self, software: Software, access: Access, credentials: Credentials, target: Path) -> None:
        with connected(access, credentials.database) as connection, connection.cursor() as cursor:
            cursor.execute(_ENDLESS_EVENTS, (credentials.database,))
            if (event := cursor.fetchone()) is not None:
                raise ServerFailed(
                    f"the event {event[0]} contains `;;`, and {_program(software, 'dump')} cannot write it"
                )
        with wrap_disk_errors(), Toolbox(software, Path(access.folder)) as box, target.open("xb") as file:
            args = [
                *connection_options(box, access, ADMIN),
                "--single-transaction",
                "--quick",
                "--routines",
                "--triggers",
                "--events",
                "--hex-blob",
                "--no-tablespaces",
                "--max-allowed-packet=1G",
                *(["--set-gtid-purged=OFF", "--column-statistics=0"] if software.product == "MySQL" else []),
                "--",
                credentials.database,
            ]
            with gzip.GzipFile(
                fileobj=file, mode="wb", compresslevel=COMPRESSION_LEVEL, mtime=0, filename=""
            ) as packed:
                box.read(_program(software, "dump"), args, {"MYSQL_PWD": access.password}, packed.write)
            file.flush()
            os.fsync(file.fileno())

    def check(self, software: Software, dump: Path) -> int:
        tables, is_routine, last = 0, False, b""
        for line in _lines(dump):
            if line.startswith(_TABLE) and not is_routine:
                tables += 1
            elif line.startswith(_DELIMITER):
                is_routine = line.startswith(_ROUTINE_START)
            if not line.isspace():
                last = line
        if not last.startswith(END):
            raise ServerFailed("the dump is incomplete: its last line is missing")
        return tables

    def load(self, software: Software, access: Access, credentials: Credentials, dump: Path) -> None:
        self.check(software, dump)
        with Toolbox(software, Path(access.folder)) as box:
            args = [*connection_options(box, access, credentials.username), *LOADING, "--", credentials.database]
            box.feed(_program(software, ""), args, {"MYSQL_PWD": credentials.password}, _chunks(dump))

    def count_rows(self, access: Access, credentials: Credentials) -> dict[str, int]:
        """Count rows as the user: a view that replaces a table meanwhile could call functions as the superuser."""
        row_counts, login = {}, {"user": credentials.username, "password": credentials.password}
        with connected(access, credentials.database, **login) as connection, connection.cursor() as cursor:
            cursor.execute(_TABLES, (credentials.database,))
            for (table,) in cursor.fetchall():
                raise_if_cancelled()
                cursor.execute(f"SELECT count(*) FROM `{table.replace('`', '``')}`")  # noqa: S608 - it is quoted
                row = cursor.fetchone()
                row_counts[str(table)] = int(row[0]) if row else 0
        return row_counts


def connection_options(box: Toolbox, access: Access, user: str) -> list[str]:
    """Return the arguments with which a tool connects to a server."""
    socket = f"{box.reach(access.folder)}/{RUN}/{SOCKET}"
    return ["--no-defaults", f"--socket={socket}", f"--user={user}", "--default-character-set=utf8mb4"]


def _program(software: Software, suffix: str) -> str:
    """Return the program name of a tool; MySQL has only the `mysql` credentials."""
    new, old = (f"mariadb-{suffix}", f"mysql{suffix}") if suffix else ("mariadb", "mysql")
    return new if (Path(software.tools) / new).exists() else old


def _lines(dump: Path) -> Iterator[bytes]:
    """Yield the lines of a dump; very long lines are truncated."""
    rest, is_cut = b"", False
    for chunk in _chunks(dump):
        *whole, rest = (rest + chunk).split(b"\n")
        for line in whole:
            if not is_cut:
                yield line + b"\n"
            is_cut = False
        if len(rest) > CHUNK and not is_cut:
            yield rest
            is_cut = True
        rest = b"" if is_cut else rest
    if rest:
        yield rest


def _chunks(dump: Path) -> Iterator[bytes]:
    try:
        with gzip.open(dump, "rb") as packed:
            while chunk := packed.read(CHUNK):
                raise_if_cancelled()
                yield chunk
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise ServerFailed(f"the dump is broken: {error}") from error
