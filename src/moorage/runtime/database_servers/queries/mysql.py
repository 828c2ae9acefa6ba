"""Statements of users on MariaDB and MySQL."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from moorage.runtime.database_servers import copying
from moorage.runtime.database_servers.mariadb.configuration import SOCKET
from moorage.runtime.database_servers.mariadb.dumps import connected
from moorage.runtime.database_servers.mariadb.server import OWN_DATABASE, ensure_reader_account
from moorage.runtime.database_servers.ports import READER, RUN, Access, Credentials, ServerFailed
from moorage.runtime.database_servers.queries import mysql_catalog as catalog
from moorage.runtime.database_servers.queries.model import (
    MAX_ROW_BYTES,
    MAX_TABLES,
    TIMEOUT_S,
    CatalogRows,
    Format,
    Result,
    ResultColumn,
    RowCollector,
    StatementFailed,
    TableDetail,
    TableSummary,
    Watchdog,
    hex_text,
    reader_password,
    row_too_large,
    timed_out,
)
from moorage.runtime.database_servers.queries.mysql_types import BINARY_CHARSET, FLOATS, type_of
from moorage.runtime.database_servers.queries.statements import MYSQL_READS, check_first_word, first_word

if TYPE_CHECKING:
    import pymysql
    from pymysql.cursors import SSCursor

CONNECT_TIMEOUT_S = 5
READ_TIMEOUT_S = TIMEOUT_S + 5  # after the watchdog
_REFUSED_LOGINS = (1044, 1045, 1049, 1130, 1698)
_TOO_MANY = (1040, 1203, 1226)
_TIMED_OUT = (1969, 3024)  # max_statement_time of MariaDB, max_execution_time of MySQL
_ENDED = (1317, 1927, 2006, 2013)  # by KILL
_UNKNOWN_VARIABLE = 1193
_SESSION = (
    "SET SESSION time_zone = '+00:00'",
    "SET SESSION sql_select_limit = DEFAULT",
)
_TIMEOUTS = (
    f"SET SESSION max_statement_time = {TIMEOUT_S:.0f}",
    f"SET SESSION max_execution_time = {int(TIMEOUT_S * 1000)}",
)
_BEGIN_READING, _BEGIN_WRITING = "START TRANSACTION READ ONLY", "START TRANSACTION READ WRITE"


class CannotLogIn(Exception):
    """The server refused an account: it does not exist yet, or has another password."""


class MySQLQueries:
    def run(self, access: Access, credentials: Credentials, sql: str, *, may_write: bool, watchdog: Watchdog) -> Result:
        word = first_word(sql, is_mysql=True)
        check_first_word(word, MYSQL_READS, may_write=may_write)
        with _session(access, credentials, may_write=may_write, watchdog=watchdog) as connection:
            return _run(connection, sql, may_write=may_write, watchdog=watchdog)

    def tables(self, access: Access, credentials: Credentials, watchdog: Watchdog) -> list[TableSummary]:
        with _session(access, credentials, may_write=False, watchdog=watchdog) as connection:
            return [
                catalog.summary_of(row)
                for row in _rows(connection, catalog.TABLES.format(most=MAX_TABLES), credentials.database)
            ]

    def find_table(
        self, access: Access, credentials: Credentials, schema: str, name: str, watchdog: Watchdog
    ) -> TableDetail | None:
        if schema != credentials.database:
            return None
        with _session(access, credentials, may_write=False, watchdog=watchdog) as connection:
            found = _rows(connection, catalog.TABLE, schema, name)
            if not found:
                return None
            columns = _rows(connection, catalog.COLUMNS, schema, name)
            indexes = _rows(connection, catalog.INDEXES, schema, name)
        return catalog.detail_of(found[0], columns, indexes)


@contextmanager
def _session(
    access: Access, credentials: Credentials, *, may_write: bool, watchdog: Watchdog
) -> Iterator[pymysql.Connection]:
    """Connect as the tenant's user to write, else as READER, which is created on first use."""
    import pymysql

    user, password = (credentials.username, credentials.password) if may_write else (READER, reader_password(access))
    with copying.short_path(Path(access.folder) / RUN) as run, watchdog:
        try:
            try:
                connection = _connect(f"{run}/{SOCKET}", user, password, credentials.database)
            except CannotLogIn:
                if may_write:
                    raise
                ensure_reader_account(access, credentials, READER, reader_password(access))
                connection = _connect(f"{run}/{SOCKET}", user, password, credentials.database)
        except CannotLogIn as error:
            raise ServerFailed(f"the server refused: {error}") from error
        try:
            thread = connection.thread_id()
            watchdog.watch(lambda: _kill(access, thread))
            _prepare(connection)
            yield connection
        except pymysql.MySQLError as error:
            raise _failure(error, watchdog) from error
        except StatementFailed:  # a result that is too large: the statement still runs
            watchdog.fire()
            raise
        finally:
            connection._force_close()  # Closing an unread result in order would read it to its end.


def _connect(socket: str, user: str, password: str, database: str) -> pymysql.Connection:
    import pymysql

    class Limited(pymysql.Connection):  # type: ignore[misc]  # has no types
        """A connection that reads no row larger than MAX_ROW_BYTES into memory."""

        def _read_bytes(self, num_bytes: int) -> bytes:
            if num_bytes > MAX_ROW_BYTES:
                raise row_too_large()
            data: bytes = super()._read_bytes(num_bytes)
            return data

    try:
        return Limited(
            unix_socket=socket,
            user=user,
            password=password,
            database=database,
            charset="utf8mb4",
            connect_timeout=CONNECT_TIMEOUT_S,
            read_timeout=READ_TIMEOUT_S,
            write_timeout=READ_TIMEOUT_S,
            ssl_disabled=True,
            autocommit=True,
            local_infile=False,
            conv={},
        )
    except pymysql.MySQLError as error:
        number = error.args[0] if error.args else 0
        if number in _REFUSED_LOGINS:
            raise CannotLogIn(str(error.args[-1])) from error
        if number in _TOO_MANY:
            message = "the database has no free connection: close some, and try again"
            raise StatementFailed(message, state=str(number)) from error
        raise ServerFailed(f"cannot connect to the server: {error.args[-1] if error.args else error}") from error


def _kill(access: Access, thread: int) -> None:
    with connected(access, OWN_DATABASE) as server, server.cursor() as cursor:
        cursor.execute("KILL %s", (thread,))


def _prepare(connection: pymysql.Connection) -> None:
    """Set the time zone and the timeout, whose name depends on the server."""
    import pymysql

    with connection.cursor() as cursor:
        for statement in _SESSION:
            cursor.execute(statement)
        for statement in _TIMEOUTS:
            try:
                cursor.execute(statement)
            except pymysql.MySQLError as error:
                if error.args[0] != _UNKNOWN_VARIABLE:
                    raise


def _run(connection: pymysql.Connection, sql: str, *, may_write: bool, watchdog: Watchdog) -> Result:
    from pymysql.cursors import SSCursor

    _execute(connection, _BEGIN_WRITING if may_write else _BEGIN_READING)
    result, cursor = Result(), SSCursor(connection)
    try:
        cursor.execute(sql)
        if cursor.description is None:
            result.row_count = max(cursor.rowcount, 0)
        else:
            _read(cursor, result, reads_all=may_write)
    except RuntimeError as error:  # LOAD DATA LOCAL, which asks the client for a file
        raise StatementFailed("LOAD DATA LOCAL is not available here") from error
    finally:
        _abandon(cursor)
    if result.truncated and not may_write:
        watchdog.fire()
    else:
        _execute(connection, "COMMIT" if may_write else "ROLLBACK")
    return result


def _abandon(cursor: SSCursor) -> None:
    """Leave the rest of a result unread: the session ends, and the cursor would read it to the end when closed."""
    result = cursor._result
    if result is not None:
        result.unbuffered_active = False


def _read(cursor: SSCursor, result: Result, *, reads_all: bool) -> None:
    """Read the rows up to the limits; with `reads_all`, skip the rest."""
    fields = cursor._result.fields  # `description` lacks the character set
    kinds = [type_of(field.type_code, is_binary=field.charsetnr == BINARY_CHARSET) for field in fields]
    result.columns = [ResultColumn(field.name, *kind) for field, kind in zip(fields, kinds, strict=True)]
    collector = RowCollector(result)
    while (row := cursor.fetchone()) is not None:
        values = [_value(kind, value) for kind, value in zip(kinds, row, strict=True)]
        if not collector.add(values, sum(len(value) for value in row if value is not None)):
            break
    while reads_all and result.truncated and cursor.fetchone() is not None:
        pass
    result.row_count = len(result.rows)


def _value(kind: tuple[str, Format], value: str | bytes | None) -> Any:
    """Return the JSON value of a server's text; numbers that JSON parsers would round stay texts."""
    type_, format_ = kind
    if value is None:
        return None
    if isinstance(value, bytes):
        return hex_text(value)
    match format_:
        case "number":
            return float(value) if type_ in FLOATS else int(value)
        case "json":
            return msgspec.Raw(value.encode())
        case "datetime" if type_ != "date":
            return value.replace(" ", "T", 1) + ("Z" if type_ == "timestamp" else "")  # The session is in UTC.
    return value


def _execute(connection: pymysql.Connection, statement: str) -> None:
    with connection.cursor() as cursor:
        cursor.execute(statement)


def _rows(connection: pymysql.Connection, query: str, *values: str) -> Sequence[Sequence[Any]]:
    from pymysql.cursors import SSCursor

    catalog_rows, cursor = CatalogRows(), SSCursor(connection)
    try:
        cursor.execute(query, values)
        while (row := cursor.fetchone()) is not None:
            catalog_rows.add(row)
    finally:
        _abandon(cursor)
    return catalog_rows.rows


def _failure(error: Exception, watchdog: Watchdog) -> StatementFailed:
    number = error.args[0] if error.args else 0
    if number in _TIMED_OUT or (watchdog.has_fired and number in _ENDED):
        return timed_out()
    return StatementFailed(str(error.args[-1]) if error.args else str(error), state=str(number) if number else None)
