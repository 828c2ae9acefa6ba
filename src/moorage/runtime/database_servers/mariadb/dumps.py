"""Dumps of MariaDB and MySQL: a text of statements, compressed, that ends with a line which says that it is whole.

It is written by the platform's user, who sees all, and loaded with the rights of the database's own.
"""

from __future__ import annotations

import gzip
import os
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from moorage.runtime.database_servers.ports import ADMIN, RUN, Access, Names, ServerFailed, Software
from moorage.runtime.database_servers.tools import CHUNK, Toolbox, check_wanted, disk_errors_told

if TYPE_CHECKING:
    import pymysql

SOCKET = "mysqld.sock"
LEVEL = 3
END = b"-- Dump completed"
_TABLE = b"CREATE TABLE `"
_CODE, _CODE_ENDS = b"DELIMITER ;;", b"DELIMITER ;"
_TABLES = """
SELECT table_name FROM information_schema.tables
WHERE table_schema = %s AND table_type IN ('BASE TABLE', 'SYSTEM VERSIONED') ORDER BY 1
"""


@contextmanager
def connected(access: Access, database: str) -> Iterator[pymysql.Connection]:
    """Come into a server as the platform; raises ServerFailed for whatever goes wrong there."""
    import pymysql

    try:
        handle = os.open(Path(access.folder) / RUN, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    except FileNotFoundError:
        raise ServerFailed("its server is not there") from None
    try:
        connection = pymysql.connect(
            unix_socket=f"/proc/self/fd/{handle}/{SOCKET}",
            user=ADMIN,
            password=access.password,
            database=database,
            charset="utf8mb4",
            connect_timeout=20,
            ssl_disabled=True,  # It is a socket of this machine; to prepare TLS would take longer than all else.
            autocommit=True,
        )
        with connection:
            yield connection
    except pymysql.MySQLError as error:
        raise ServerFailed(f"the server refused: {error.args[-1] if error.args else error}") from error
    finally:
        os.close(handle)


class MariaDBDumps:
    """What a server of MariaDB or MySQL is backed up and restored with."""

    def dump(self, software: Software, access: Access, names: Names, target: Path) -> None:
        with disk_errors_told(), Toolbox(software, Path(access.folder)) as box, target.open("xb") as file:
            args = [
                *_entrance(box, access, ADMIN),
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
                names.database,
            ]
            with gzip.GzipFile(fileobj=file, mode="wb", compresslevel=LEVEL, mtime=0, filename="") as packed:
                box.read(_program(software, "dump"), args, {"MYSQL_PWD": access.password}, packed.write)
            file.flush()
            os.fsync(file.fileno())

    def check(self, software: Software, dump: Path) -> int:
        """Read a whole dump; return how many tables it makes, and raise ServerFailed for one that is cut or broken."""
        tables, is_code, last = 0, False, b""
        for line in _lines(dump):
            if line.startswith(_TABLE) and not is_code:
                tables += 1
            elif line.startswith(_CODE_ENDS):
                is_code = line.startswith(_CODE)
            if not line.isspace():
                last = line
        if not last.startswith(END):
            raise ServerFailed("the dump is incomplete: its last line is missing")
        return tables

    def load(self, software: Software, access: Access, names: Names, dump: Path) -> None:
        self.check(software, dump)
        with Toolbox(software, Path(access.folder)) as box:
            args = [*_entrance(box, access, names.username), "--binary-mode", "--max-allowed-packet=1G"]
            args += ["--", names.database]
            box.feed(_program(software, ""), args, {"MYSQL_PWD": names.password}, _chunks(dump))

    def contents(self, access: Access, names: Names) -> dict[str, int]:
        """Return every table of the database with how many rows it has. Every row is read for it."""
        counted = {}
        with connected(access, names.database) as connection, connection.cursor() as cursor:
            cursor.execute(_TABLES, (names.database,))
            for (table,) in cursor.fetchall():
                check_wanted()
                cursor.execute(f"SELECT count(*) FROM `{table.replace('`', '``')}`")  # noqa: S608 - it is quoted
                row = cursor.fetchone()
                counted[str(table)] = int(row[0]) if row else 0
        return counted


def _entrance(box: Toolbox, access: Access, user: str) -> list[str]:
    socket = f"{box.reach(Path(access.folder) / RUN)}/{SOCKET}"
    return ["--no-defaults", f"--socket={socket}", f"--user={user}", "--default-character-set=utf8mb4"]


def _program(software: Software, what: str) -> str:
    """Return the name of a tool; MySQL has only the older ones."""
    new, old = (f"mariadb-{what}", f"mysql{what}") if what else ("mariadb", "mysql")
    return new if (Path(software.tools) / new).exists() else old


def _lines(dump: Path) -> Iterator[bytes]:
    """Yield the lines of a dump, of very long ones only the beginning."""
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
                check_wanted()
                yield chunk
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise ServerFailed(f"the dump is broken: {error}") from error
