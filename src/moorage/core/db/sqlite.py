"""The store in one file: a writer thread with group commit, and readers beside it.

Every unit waits for an fsync before it is acknowledged. Up to 64 units that wait at the same time share one: each has
a savepoint of its own, so one that raises is undone alone, and all are acknowledged when the COMMIT is durable.
"""

from __future__ import annotations

import asyncio
import contextlib
import sqlite3
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any, Literal, TypeVar

from moorage.core.db.query import Bound
from moorage.core.db.store import Unit
from moorage.core.db.tx import Tx, UniqueClash
from moorage.core.env import Env
from moorage.errors import CannotStart, DiskFull

T = TypeVar("T")

OLDEST_SQLITE = (3, 35, 0)  # RETURNING
GROUP = 64  # More than this no longer shortened the wait per unit when measured with 64 clients.
READERS = 2
FULL = (sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR_SHMSIZE)  # The latter where the index of the log cannot grow.


class TooOldSqlite(CannotStart):
    """This Python brings an SQLite that lacks what the store needs."""


def connect(path: Path, *, read_only: bool = False) -> sqlite3.Connection:
    """Open the store's file with the settings that durability depends on."""
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
        self._cursor = connection.cursor()  # every read takes all of its rows at once, so one cursor serves them all

    def rows(self, sql: str, params: Bound) -> list[tuple[Any, ...]]:
        try:
            return self._cursor.execute(sql, params).fetchall()
        except sqlite3.IntegrityError as error:
            raise _translated(error) from error

    def run(self, sql: str, params: Bound) -> int:
        try:
            return self.connection.execute(sql, params).rowcount
        except sqlite3.IntegrityError as error:
            raise _translated(error) from error

    def many(self, sql: str, params: list[Bound]) -> None:
        try:
            self.connection.executemany(sql, params)
        except sqlite3.IntegrityError as error:
            raise _translated(error) from error

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


def _as_full(error: BaseException) -> BaseException:
    """Return DiskFull for an error that comes of a full disk, any other as it is."""
    code = error.sqlite_errorcode if isinstance(error, sqlite3.Error) and hasattr(error, "sqlite_errorcode") else None
    if code not in FULL:
        return error
    full = DiskFull()
    full.__cause__ = error
    return full


def _translated(error: sqlite3.IntegrityError) -> Exception:
    return UniqueClash(str(error)) if "UNIQUE" in str(error) else error


@dataclass(slots=True)
class _Waiting:
    unit: Callable[[Tx], Any]
    loop: asyncio.AbstractEventLoop
    future: asyncio.Future[Any]
    after: list[Callable[[], None]] = field(default_factory=list)
    result: Any = None
    error: BaseException | None = None

    def settle(self) -> None:
        for call in self.after:
            call()
        if self.future.cancelled():
            return
        if self.error is not None:
            self.future.set_exception(self.error)
        else:
            self.future.set_result(self.result)


class SqliteDatabase:
    """The store of a control process. Only one process may open it for writing: see `db.lock`."""

    dialect: Literal["sqlite"] = "sqlite"

    def __init__(self, path: Path, env: Env, *, group: int = GROUP) -> None:
        self.path = path
        self.env = env
        self._group = group
        self._queue: SimpleQueue[_Waiting | None] = SimpleQueue()
        self._writer_connection = connect(path)
        self._inline = SqliteDriver(connect(path, read_only=True))
        self._is_peeking = False
        self._local = threading.local()
        self._opened: list[sqlite3.Connection] = []
        self._readers = ThreadPoolExecutor(READERS, thread_name_prefix="store-read")
        self._writer = threading.Thread(target=self._write_loop, name="store-write", daemon=True)
        self._writer.start()

    async def write(self, unit: Unit[T]) -> T:
        loop = asyncio.get_running_loop()
        future: asyncio.Future[T] = loop.create_future()
        self._queue.put(_Waiting(unit, loop, future))
        # A caller that goes away does not undo the unit: it is shielded because it may already be on disk.
        return await asyncio.shield(future)

    async def read(self, unit: Unit[T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._readers, self._read, unit)

    async def peek(self, unit: Unit[T]) -> T:
        return self.peek_now(unit)

    def peek_now(self, unit: Unit[T]) -> T:
        """Read within the event loop. Reads of one turn of the loop share a snapshot, and what it costs to take it.

        The snapshot ends before anybody can hear of a later commit: that too takes a turn.
        """
        if not self._is_peeking:
            asyncio.get_running_loop().call_soon(self._end_peek)
            self._inline.connection.execute("BEGIN")
            self._is_peeking = True
        return unit(Tx(self._inline, self.env, self.env.clock.now()))

    def _end_peek(self) -> None:
        if self._is_peeking:
            self._is_peeking = False
            self._inline.connection.execute("COMMIT")

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
            group = [first, *self._more()]
            try:
                self._commit(driver, group)
            except sqlite3.Error as error:
                # The COMMIT itself failed (a full disk): nothing of the group is durable, so nobody is told it is.
                with contextlib.suppress(sqlite3.Error):
                    self._writer_connection.execute("ROLLBACK")
                for waiting in group:
                    waiting.error, waiting.after = _as_full(error), []
            _deliver(group)

    def _more(self) -> list[_Waiting]:
        more: list[_Waiting] = []
        while len(more) < self._group - 1:
            try:
                item = self._queue.get_nowait()
            except Empty:
                break
            if item is None:
                self._queue.put(None)
                break
            more.append(item)
        return more

    def _commit(self, driver: SqliteDriver, group: list[_Waiting]) -> None:
        execute = self._writer_connection.execute
        execute("BEGIN IMMEDIATE")
        for waiting in group:
            execute("SAVEPOINT unit")
            tx = Tx(driver, self.env, self.env.clock.now())
            try:
                waiting.result = waiting.unit(tx)
                waiting.after = tx.after
            except BaseException as error:
                waiting.error = _as_full(error)
                if not self._writer_connection.in_transaction:
                    # A full disk may undo the whole transaction, with the units before this one.
                    if isinstance(error, sqlite3.Error):
                        raise
                    raise sqlite3.OperationalError("the transaction was rolled back") from error
                execute("ROLLBACK TO unit")
            execute("RELEASE unit")
        execute("COMMIT")


def _deliver(group: list[_Waiting]) -> None:
    """Wake each event loop once for all of its units."""
    by_loop: dict[asyncio.AbstractEventLoop, list[_Waiting]] = {}
    for waiting in group:
        by_loop.setdefault(waiting.loop, []).append(waiting)
    for loop, mine in by_loop.items():
        with contextlib.suppress(RuntimeError):  # The loop was closed: nobody waits any more.
            loop.call_soon_threadsafe(_settle, mine)


def _settle(group: list[_Waiting]) -> None:
    for waiting in group:
        waiting.settle()
