"""Statements of users on PostgreSQL.

The extended protocol accepts one statement only, and values stay in the server's own text form. Statements run as the
tenant's user: a separate role for reading would need `pg_read_all_data`, which also reads the password verifiers in
`pg_authid`, or grants on every table, which would be part of every dump.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from moorage.runtime.database_servers import copying
from moorage.runtime.database_servers.ports import RUN, Access, Credentials, ServerFailed
from moorage.runtime.database_servers.postgres.dumps import connected
from moorage.runtime.database_servers.queries import postgres_catalog as catalog
from moorage.runtime.database_servers.queries.model import (
    MAX_ROWS,
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
    timed_out,
)
from moorage.runtime.database_servers.queries.postgres_wire import (
    ConnectionLost,
    CopyRequested,
    Wire,
    WireColumn,
    WireError,
)
from moorage.runtime.database_servers.queries.statements import READS, check_first_word, first_word

if TYPE_CHECKING:
    from psycopg.pq.abc import PGconn

CONNECT_TIMEOUT_S = 5
_NO_SLOT, _CANCELLED = "53300", "57014"
_ENDED = ("57P01", "57P05")  # by pg_terminate_backend()
# Overrides settings of the database, which its owner can change, so that values have one form.
_SESSION = (
    f"SET statement_timeout = {int(TIMEOUT_S * 1000)}; SET lock_timeout = 0; SET client_encoding = 'UTF8'; "
    "SET DateStyle = 'ISO, YMD'; SET IntervalStyle = 'postgres'; SET TimeZone = 'UTC'; SET bytea_output = 'hex'; "
    "SET extra_float_digits = 1; SET client_min_messages = 'error'"
)
# A transaction with a snapshot cannot become read-write any more, neither by SET nor by set_config().
_BEGIN_READING = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY; SELECT 1"
_BEGIN_WRITING = "BEGIN READ WRITE"
_TYPES = "SELECT format_type(o, m) FROM unnest($1::oid[], $2::int[]) WITH ORDINALITY AS t (o, m, n) ORDER BY n"
_KILL = "SELECT pg_terminate_backend(%s)"
_NO_COPY = "COPY is not available here: use a client such as psql"
_BOOL, _BYTEA, _JSON, _FLOATS = 16, 17, (114, 3802), (700, 701)
_INTEGERS = (21, 23, 26)  # int2, int4, oid: exact in every JSON parser
_TIMES = (1082, 1114, 1184)  # date, timestamp, timestamptz
_TIMESTAMPTZ = 1184


class PostgreSQLQueries:
    def run(self, access: Access, credentials: Credentials, sql: str, *, may_write: bool, watchdog: Watchdog) -> Result:
        word = first_word(sql, is_mysql=False)
        if word == "copy":
            raise StatementFailed(_NO_COPY)
        check_first_word(word, READS, may_write=may_write)
        with _session(access, credentials, watchdog) as session:
            return session.run(sql, may_write=may_write)

    def tables(self, access: Access, credentials: Credentials, watchdog: Watchdog) -> list[TableSummary]:
        with _session(access, credentials, watchdog) as session:
            rows = session.read(catalog.TABLES.format(most=MAX_TABLES))
        return [catalog.summary_of(row) for row in rows]

    def find_table(
        self, access: Access, credentials: Credentials, schema: str, name: str, watchdog: Watchdog
    ) -> TableDetail | None:
        with _session(access, credentials, watchdog) as session:
            found = session.read(catalog.TABLE, schema, name)
            if not found:
                return None
            columns = session.read(catalog.COLUMNS, found[0][0] or "")
            indexes = session.read(catalog.INDEXES, found[0][0] or "")
        return catalog.detail_of(found[0][1:], columns, indexes)


def read_catalog(access: Access, credentials: Credentials, query: str) -> list[list[str | None]]:
    """Return the rows of a catalog query, as the tenant's user; raises ServerFailed."""
    try:
        with _session(access, credentials, Watchdog()) as session:
            return session.read(query)
    except StatementFailed as error:
        raise ServerFailed(error.message) from error


@contextmanager
def _session(access: Access, credentials: Credentials, watchdog: Watchdog) -> Iterator[_Session]:
    """Connect as the tenant's user. Any error ends the session on the server as well."""
    with copying.short_path(Path(access.folder) / RUN) as run, watchdog:
        names = {"host": run, "port": str(access.port), "dbname": credentials.database}
        conn = _connect({**names, "user": credentials.username, "password": credentials.password})
        wire = Wire(conn.socket)
        pid = conn.backend_pid
        try:
            watchdog.watch(lambda: _kill(access, pid))
            wire.command(_SESSION)
            yield _Session(wire)
        except WireError as error:
            raise _failure(error, watchdog) from error
        except ConnectionLost as error:
            if watchdog.has_fired:
                raise timed_out() from error
            raise StatementFailed("the server closed the connection while the statement ran") from error
        except CopyRequested as error:
            raise StatementFailed(_NO_COPY) from error
        except StatementFailed:  # a result that is too large: the statement still runs
            watchdog.fire()
            raise
        finally:
            wire.close()
            conn.finish()


def _connect(parameters: dict[str, str]) -> PGconn:
    from psycopg import pq

    options = {**parameters, "connect_timeout": str(CONNECT_TIMEOUT_S), "client_encoding": "UTF8"}
    conninfo = " ".join(f"{name}={_in_conninfo(value)}" for name, value in options.items())
    conn = pq.PGconn.connect(conninfo.encode())
    if conn.status == pq.ConnStatus.OK:
        return conn
    message = conn.get_error_message()
    conn.finish()
    if "too many" in message or "remaining connection slots" in message:
        raise StatementFailed("the database has no free connection: close some, and try again", state=_NO_SLOT)
    raise ServerFailed(f"cannot connect to the server: {' '.join(message.split())}")


def _in_conninfo(value: str) -> str:
    return "'" + value.replace("\\", "\\\\").replace("'", "\\'") + "'"


def _kill(access: Access, pid: int) -> None:
    with connected(access, "postgres") as server:
        server.execute(_KILL, (pid,))


class _Session:
    def __init__(self, wire: Wire) -> None:
        self._wire = wire

    def run(self, sql: str, *, may_write: bool) -> Result:
        """Run one statement in a transaction; one that may not write is rolled back."""
        reading = _Reading()
        self._wire.command(_BEGIN_WRITING if may_write else _BEGIN_READING)
        # One row more than the answer has shows that there are more. A write runs to its end.
        self._wire.execute(sql, (), reading, most=0 if may_write else MAX_ROWS + 1)
        self._wire.command("COMMIT" if may_write else "ROLLBACK")
        return reading.finish(self._type_names(reading.columns))

    def read(self, sql: str, *values: str) -> list[list[str | None]]:
        """Return the rows of a query of the platform, as texts."""
        texts = _Texts()
        self._wire.command("BEGIN READ ONLY; SET LOCAL search_path = pg_catalog")
        self._wire.execute(sql, values, texts)
        self._wire.command("ROLLBACK")
        return texts.rows

    def _type_names(self, columns: Sequence[WireColumn]) -> list[str]:
        if not columns:
            return []
        oids = "{" + ",".join(str(each.oid) for each in columns) + "}"
        modifiers = "{" + ",".join(str(each.modifier) for each in columns) + "}"
        return [row[0] or "unknown" for row in self.read(_TYPES, oids, modifiers)]


class _Texts(CatalogRows):
    """Rows of a query of the platform."""

    def describe(self, columns: Sequence[WireColumn]) -> None: ...

    def take(self, row: Sequence[bytes | None]) -> None:
        self.add([_text(value) for value in row])

    def complete(self, tag: str) -> None: ...


class _Reading:
    """The result of a user's statement up to the limits of an answer."""

    def __init__(self) -> None:
        self._result = Result()
        self._collector = RowCollector(self._result)
        self._changed = 0
        self.columns: Sequence[WireColumn] = ()

    def describe(self, columns: Sequence[WireColumn]) -> None:
        self.columns = columns

    def take(self, row: Sequence[bytes | None]) -> None:
        if not self._result.truncated:
            values = [_value(column.oid, _text(value)) for column, value in zip(self.columns, row, strict=True)]
            self._collector.add(values, sum(len(value) for value in row if value is not None))

    def complete(self, tag: str) -> None:
        last = tag.rpartition(" ")[2]
        self._changed = int(last) if last.isdecimal() else 0

    def finish(self, type_names: Sequence[str]) -> Result:
        result = self._result
        result.columns = [
            ResultColumn(column.name, name, _format(column.oid))
            for column, name in zip(self.columns, type_names, strict=True)
        ]
        result.row_count = len(result.rows) if self.columns else self._changed
        return result


def _text(value: bytes | None) -> str | None:
    return None if value is None else value.decode(errors="replace")


def _format(oid: int) -> Format:
    if oid in _INTEGERS or oid in _FLOATS:
        return "number"
    if oid in _JSON:
        return "json"
    if oid in _TIMES:
        return "datetime"
    return "boolean" if oid == _BOOL else "hex" if oid == _BYTEA else "text"


def _value(oid: int, text: str | None) -> Any:
    """Return the JSON value of a server's text; numbers that JSON parsers would round stay texts."""
    if text is None:
        return None
    if oid in _INTEGERS:
        return int(text)
    if oid == _BOOL:
        return text == "t"
    if oid in _FLOATS:
        return text if text.strip("-").isalpha() else float(text)  # NaN and Infinity
    if oid in _JSON:
        return msgspec.Raw(text.encode())
    if oid in _TIMES:
        return _iso(oid, text)
    return text


def _iso(oid: int, text: str) -> str:
    """Return ISO 8601 with `T`, and the offset of the UTC session as `Z`."""
    if not text[:1].isdigit() or text.endswith("BC"):
        return text  # infinity, or before the first year of ISO 8601
    iso = text.replace(" ", "T", 1)
    return iso.removesuffix("+00") + "Z" if oid == _TIMESTAMPTZ else iso


def _failure(error: WireError, watchdog: Watchdog) -> StatementFailed:
    fields = error.fields
    message, state, position = str(error), fields.get("C"), fields.get("P")
    if (state == _CANCELLED and "statement timeout" in message) or (watchdog.has_fired and state in _ENDED):
        return timed_out()
    details = [each.rstrip(".") for each in (message, fields.get("D"), fields.get("H")) if each]
    return StatementFailed(". ".join(details), state=state, position=int(position) if position else None)
