"""Statements of users: limits, results, errors, and the account that reads.

A statement that may not write begins with a word that reads, such as SELECT, and runs alone in a read-only transaction
that is always rolled back; on MariaDB and MySQL as READER, an account without the right to write. One of these alone
has gaps: a function can write, `SET` can lift a read-only transaction, and MariaDB commits before many statements.
"""

from __future__ import annotations

import hashlib
import hmac
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import field
from types import TracebackType
from typing import Any, Literal, Protocol

from moorage.core.kit.records import dataclass
from moorage.runtime.database_servers.ports import Access, Credentials, ServerFailed

TIMEOUT_S = 10.0
KILL_AFTER_S = TIMEOUT_S + 0.5  # The server's own timeout comes first: its error keeps the connection usable.
MAX_ROWS = 1_000
MAX_ANSWER_BYTES = 4 * 2**20
MAX_ROW_BYTES = 8 * 2**20  # A larger row is not read into memory.
MAX_TABLES = 5_000
MAX_CATALOG_BYTES = 16 * 2**20  # of a catalog query of the platform; enough for MAX_TABLES with long comments
MAX_CATALOG_CHARS = 1_000  # of a comment, a type, a default or an index expression; the rest is cut
VALUE_BYTES = 64  # memory of a value beyond its text

Format = Literal["text", "number", "boolean", "json", "hex", "datetime"]


class StatementFailed(Exception):
    """The server refused a statement, or a limit ended it; the message is for users."""

    def __init__(self, message: str, *, state: str | None = None, position: int | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.state = state  # SQLSTATE, or the error number of MariaDB and MySQL
        self.position = position  # of the error in the statement, in characters from 1


@dataclass(frozen=True, slots=True)
class ResultColumn:
    name: str
    type: str  # as the server calls it
    format: Format  # of the values in the answer


@dataclass(slots=True)
class Result:
    columns: list[ResultColumn] = field(default_factory=list)
    rows: list[list[Any]] = field(default_factory=list)
    row_count: int = 0  # rows in `rows`; of a statement without a result: changed rows
    truncated: bool = False


@dataclass(frozen=True, slots=True)
class TableSummary:
    schema: str
    name: str
    kind: str  # table, view, materialized view, partitioned table, foreign table or sequence
    row_estimate: int | None
    size_bytes: int | None
    comment: str | None


@dataclass(frozen=True, slots=True)
class TableColumn:
    name: str
    type: str
    nullable: bool
    default: str | None
    is_primary_key: bool
    comment: str | None


@dataclass(frozen=True, slots=True)
class TableIndex:
    name: str
    columns: list[str]  # names, or expressions
    unique: bool
    primary: bool
    method: str
    size_bytes: int | None


@dataclass(frozen=True, slots=True)
class TableDetail:
    summary: TableSummary
    columns: list[TableColumn]
    indexes: list[TableIndex]
    select_sql: str  # a statement that reads its first rows


class QueryRunner(Protocol):
    """Statements on one kind of server. All methods block; `watchdog` ends a statement that is too slow."""

    def run(
        self, access: Access, credentials: Credentials, sql: str, *, may_write: bool, watchdog: Watchdog
    ) -> Result: ...

    def tables(self, access: Access, credentials: Credentials, watchdog: Watchdog) -> list[TableSummary]:
        """Return the tables and views by schema and name, at most MAX_TABLES."""
        ...

    def find_table(
        self, access: Access, credentials: Credentials, schema: str, name: str, watchdog: Watchdog
    ) -> TableDetail | None: ...


class Watchdog:
    """Ends the session of a statement once: after KILL_AFTER_S, or when the request is cancelled.

    A client that disconnects does not end its statement, and a statement can ignore a cancel request: PL/pgSQL traps
    `query_canceled`. So the platform's superuser ends the session.
    """

    def __init__(self, within_s: float = KILL_AFTER_S) -> None:
        self._lock = threading.Lock()
        self._kill: Callable[[], None] | None = None
        self._timer: threading.Timer | None = None
        self._within_s = within_s
        self.has_fired = False

    def watch(self, kill: Callable[[], None]) -> Watchdog:
        """Start the time of a session that `kill` ends."""
        with self._lock:
            self._kill = kill
            is_late = self.has_fired
        if is_late:
            self._end()
            return self
        self._timer = threading.Timer(self._within_s, self.fire)
        self._timer.daemon = True
        self._timer.start()
        return self

    def fire(self) -> None:
        """End the session now. Safe to repeat, and before `watch`."""
        with self._lock:
            self.has_fired = True
        self._end()

    def _end(self) -> None:
        with self._lock:
            kill, self._kill = self._kill, None
        if kill is not None:
            with suppress(ServerFailed, OSError):  # The server is gone, and the session with it.
                kill()

    def __enter__(self) -> Watchdog:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with self._lock:
            self._kill = None
        if self._timer is not None:
            self._timer.cancel()


class RowCollector:
    """Collects rows until a limit of the answer is reached."""

    def __init__(self, result: Result) -> None:
        self._result = result
        self._bytes = 0

    def add(self, row: Sequence[Any], size: int) -> bool:
        """Add a row; return False if it does not fit, which marks the result as truncated."""
        self._bytes += size + 4 * len(row)
        if len(self._result.rows) >= MAX_ROWS or self._bytes > MAX_ANSWER_BYTES:
            self._result.truncated = True
            return False
        self._result.rows.append(list(row))
        return True


class CatalogRows:
    """Rows of a catalog query of the platform, up to MAX_CATALOG_BYTES: the tenant decides on their number and size."""

    def __init__(self) -> None:
        self.rows: list[list[str | None]] = []
        self._bytes = 0

    def add(self, row: Sequence[str | None]) -> None:
        """Add a row; raises StatementFailed above the limit."""
        self._bytes += sum(VALUE_BYTES + len(value or "") for value in row)
        if self._bytes > MAX_CATALOG_BYTES:
            raise StatementFailed(f"the catalog of the database is larger than {MAX_CATALOG_BYTES // 2**20} MB")
        self.rows.append(list(row))


def timed_out() -> StatementFailed:
    return StatementFailed(f"the statement ran longer than {TIMEOUT_S:.0f} s and was cancelled")


def row_too_large() -> StatementFailed:
    return StatementFailed(f"a row of the result is larger than {MAX_ROW_BYTES // 2**20} MB; select fewer columns")


def reader_password(access: Access) -> str:
    """Return the password of READER, which follows from that of the platform's superuser."""
    return hmac.digest(access.password.encode(), b"moorage reader", hashlib.sha256).hex()


def hex_text(data: bytes) -> str:
    return "\\x" + data.hex()
