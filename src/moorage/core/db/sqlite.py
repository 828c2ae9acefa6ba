"""The database in an SQLite file, with group commit and reader threads.

Every unit of work is acknowledged after an fsync. Up to 64 waiting units share one fsync: each has its own savepoint,
so a unit that raises is rolled back alone, and all are acknowledged after the COMMIT.
"""

from __future__ import annotations

import asyncio
import contextlib
import sqlite3
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import field
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any, Literal, TypeVar

from moorage.core.db.commits import Commits
from moorage.core.db.query import Bound
from moorage.core.db.store import Unit
from moorage.core.db.tx import Tx, UniqueClash
from moorage.core.env import Env
from moorage.core.kit.records import dataclass
from moorage.errors import CannotStart, DiskFull

T = TypeVar("T")

OLDEST_SQLITE = (3, 35, 0)  # the first with RETURNING
MAX_GROUP_UNITS = 64  # Larger groups did not shorten the wait per unit when measured with 64 clients.
READER_THREADS = 2
MAX_KEPT_RESULTS = 1024  # About 1 MB.
MAX_KEPT_ROWS = 2
FULL_DISK_CODES = (sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR_SHMSIZE)  # The latter: the WAL index cannot grow.


class TooOldSqlite(CannotStart):
    """The SQLite library of this Python lacks required features."""


def connect(path: Path, *, read_only: bool = False) -> sqlite3.Connection:
    """Open the database file with the settings that make commits durable."""
    if sqlite3.sqlite_version_info < OLDEST_SQLITE:
        raise TooOldSqlite(f"SQLite {sqlite3.sqlite_version} is too old: Moorage needs 3.35 or newer")
    connection = sqlite3.connect(path, isolation_level=None, check_same_thread=False, cached_statements=1024)
    connection.execute("PRAGMA busy_timeout=10000")
    connection.execute("PRAGMA foreign_keys=ON")
    connection.execute("PRAGMA cache_size=-8000")
    connection.execute("PRAGMA mmap_size=134217728")
    if read_only:
        connection.execute("PRAGMA query_only=ON")
    else:
        connection.execute("PRAGMA journal_mode=WAL")
        connection.execute("PRAGMA synchronous=FULL")
        connection.execute("PRAGMA journal_size_limit=67108864")
    return connection


class SqliteDriver:
    dialect = "sqlite"

    def __init__(self, connection: sqlite3.Connection) -> None:
        self.connection = connection
        self._cursor = connection.cursor()  # Reads fetch all rows at once, so they can share a cursor.

    def rows(self, sql: str, params: Bound) -> list[tuple[Any, ...]]:
        try:
            return self._cursor.execute(sql, params).fetchall()
        except sqlite3.IntegrityError as error:
            raise _translate_error(error) from error

    def run(self, sql: str, params: Bound) -> int:
        try:
            return self.connection.execute(sql, params).rowcount
        except sqlite3.IntegrityError as error:
            raise _translate_error(error) from error

    def many(self, sql: str, params: list[Bound]) -> None:
        try:
            self.connection.executemany(sql, params)
        except sqlite3.IntegrityError as error:
            raise _translate_error(error) from error

    @contextlib.contextmanager
    def savepoint(self) -> Iterator[None]:
        self.connection.execute("SAVEPOINT inner_unit")
        try:
            yield
        except BaseException:
            self.connection.execute("ROLLBACK TO inner_unit")
            self.connection.execute("RELEASE inner_unit")
            raise
        self.connection.execute("RELEASE inner_unit")


class SnapshotDriver(SqliteDriver):
    """Reads within the event loop; keeps results until any connection commits a change.

    Nearly every request looks up its credential, and most look-ups are repeated before the next commit.
    """

    def __init__(self, connection: sqlite3.Connection) -> None:
        super().__init__(connection)
        self._results: dict[tuple[str, Bound], list[tuple[Any, ...]]] = {}
        self._version = 0  # of the database file, as this connection sees it

    def begin(self) -> None:
        """Begin a snapshot, and drop the results if it differs from the last one."""
        self.connection.execute("BEGIN")
        ((version,),) = self._cursor.execute("PRAGMA data_version").fetchall()
        if version != self._version:
            self._results.clear()
            self._version = version

    def end(self) -> None:
        self.connection.execute("COMMIT")

    def rows(self, sql: str, params: Bound) -> list[tuple[Any, ...]]:
        if type(params) is not tuple:
            return super().rows(sql, params)
        key = (sql, params)
        rows = self._results.get(key)
        if rows is None:
            rows = super().rows(sql, params)
            if len(rows) <= MAX_KEPT_ROWS:
                if len(self._results) >= MAX_KEPT_RESULTS:
                    self._results.clear()
                self._results[key] = rows
        return rows


def _to_disk_full(error: BaseException) -> BaseException:
    """Return DiskFull for an error of a full disk, and any other error unchanged."""
    code = error.sqlite_errorcode if isinstance(error, sqlite3.Error) and hasattr(error, "sqlite_errorcode") else None
    if code not in FULL_DISK_CODES:
        return error
    full = DiskFull()
    full.__cause__ = error
    return full


def _translate_error(error: sqlite3.IntegrityError) -> Exception:
    return UniqueClash(str(error)) if "UNIQUE" in str(error) else error


@dataclass(slots=True)
class _PendingUnit:
    unit: Callable[[Tx], Any]
    loop: asyncio.AbstractEventLoop
    future: asyncio.Future[Any]
    after: list[Callable[[], None]] = field(default_factory=list)
    result: Any = None
    error: BaseException | None = None

    def complete(self) -> None:
        for call in self.after:
            call()
        if self.future.cancelled():
            return
        if self.error is not None:
            self.future.set_exception(self.error)
        else:
            self.future.set_result(self.result)


class SqliteDatabase:
    """The database of a control process, its only writer: see `db.lock`."""

    dialect: Literal["sqlite"] = "sqlite"

    def __init__(self, path: Path, env: Env, *, group: int = MAX_GROUP_UNITS) -> None:
        self.path = path
        self.env = env
        self._commits = Commits()
        self.commits: Commits | None = self._commits
        self._group = group
        self._queue: SimpleQueue[_PendingUnit | None] = SimpleQueue()
        self._writer_connection = connect(path)
        self._inline = SnapshotDriver(connect(path, read_only=True))
        self._is_peeking = False
        self._local = threading.local()
        self._opened: list[sqlite3.Connection] = []
        self._readers = ThreadPoolExecutor(READER_THREADS, thread_name_prefix="store-read")
        self._writer = threading.Thread(target=self._write_loop, name="store-write", daemon=True)
        self._writer.start()

    async def write(self, unit: Unit[T]) -> T:
        loop = asyncio.get_running_loop()
        future: asyncio.Future[T] = loop.create_future()
        self._queue.put(_PendingUnit(unit, loop, future))
        # Shielded: a cancelled caller cannot roll back a unit that may already be committed.
        return await asyncio.shield(future)

    async def read(self, unit: Unit[T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._readers, self._read, unit)

    async def peek(self, unit: Unit[T]) -> T:
        return self.peek_now(unit)

    def peek_now(self, unit: Unit[T]) -> T:
        """Read within the event loop; reads of one iteration share a snapshot.

        The snapshot ends before the event loop learns of a later commit, which takes another iteration.
        """
        if not self._is_peeking:
            asyncio.get_running_loop().call_soon(self._end_peek)
            self._inline.begin()
            self._is_peeking = True
        return unit(Tx(self._inline, self.env, self.env.clock.now()))

    def _end_peek(self) -> None:
        if self._is_peeking:
            self._is_peeking = False
            self._inline.end()

    def close(self) -> None:
        self._is_peeking = False
        self._queue.put(None)
        self._writer.join()
        self._readers.shutdown()
        for connection in (*self._opened, self._inline.connection, self._writer_connection):
            connection.close()

    def _read(self, unit: Unit[T]) -> T:
        driver: SqliteDriver | None = getattr(self._local, "driver", None)
        if driver is None:
            connection = connect(self.path, read_only=True)
            self._opened.append(connection)
            driver = self._local.driver = SqliteDriver(connection)
        driver.connection.execute("BEGIN")
        try:
            return unit(Tx(driver, self.env, self.env.clock.now()))
        finally:
            driver.connection.execute("COMMIT")

    def _write_loop(self) -> None:
        driver = SqliteDriver(self._writer_connection)
        while (first := self._queue.get()) is not None:
            group = [first, *self._take_waiting()]
            changes = self._writer_connection.total_changes
            try:
                self._commit(driver, group)
                if self._writer_connection.total_changes != changes:
                    self._commits.add()
            except sqlite3.Error as error:
                # The COMMIT failed, such as on a full disk: no unit of the group is durable, so all of them fail.
                with contextlib.suppress(sqlite3.Error):
                    self._writer_connection.execute("ROLLBACK")
                for pending in group:
                    pending.error, pending.after = _to_disk_full(error), []
            _deliver(group)

    def _take_waiting(self) -> list[_PendingUnit]:
        units: list[_PendingUnit] = []
        while len(units) < self._group - 1:
            try:
                item = self._queue.get_nowait()
            except Empty:
                break
            if item is None:
                self._queue.put(None)
                break
            units.append(item)
        return units

    def _commit(self, driver: SqliteDriver, group: list[_PendingUnit]) -> None:
        execute = self._writer_connection.execute
        execute("BEGIN IMMEDIATE")
        for pending in group:
            execute("SAVEPOINT unit")
            tx = Tx(driver, self.env, self.env.clock.now())
            try:
                pending.result = pending.unit(tx)
                pending.after = tx.after
            except BaseException as error:
                pending.error = _to_disk_full(error)
                if not self._writer_connection.in_transaction:
                    # A full disk may roll back the whole transaction, including the units before this one.
                    if isinstance(error, sqlite3.Error):
                        raise
                    raise sqlite3.OperationalError("the transaction was rolled back") from error
                execute("ROLLBACK TO unit")
            execute("RELEASE unit")
        execute("COMMIT")


def _deliver(group: list[_PendingUnit]) -> None:
    """Wake each event loop once for all its units."""
    by_loop: dict[asyncio.AbstractEventLoop, list[_PendingUnit]] = {}
    for pending in group:
        by_loop.setdefault(pending.loop, []).append(pending)
    for loop, units in by_loop.items():
        with contextlib.suppress(RuntimeError):  # The event loop is closed.
            loop.call_soon_threadsafe(_complete, units)


def _complete(group: list[_PendingUnit]) -> None:
    for pending in group:
        pending.complete()
