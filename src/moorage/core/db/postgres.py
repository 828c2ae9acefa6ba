"""The database on a PostgreSQL server, with a connection pool and threads.

PostgreSQL itself groups commits of concurrent transactions. A unit of work that fails by a deadlock, a serialization
failure, or a unique key that was free when it looked is run again: its only effects are rows.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Literal, TypeVar

import psycopg
from psycopg import errors
from psycopg.errors import DeadlockDetected, SerializationFailure, UniqueViolation
from psycopg_pool import ConnectionPool

from moorage.core.db.commits import Commits
from moorage.core.db.query import Bound
from moorage.core.db.store import Unit
from moorage.core.db.tx import Tx, UniqueClash
from moorage.core.env import Env
from moorage.errors import DiskFull

T = TypeVar("T")

MAX_UNIT_ATTEMPTS = 8
Connection = psycopg.Connection[tuple[Any, ...]]


class PostgresDriver:
    dialect = "postgresql"

    def __init__(self, connection: Connection) -> None:
        self.connection = connection

    def rows(self, sql: str, params: Bound) -> list[tuple[Any, ...]]:
        with _translate_errors():
            cursor = self.connection.execute(sql, params)
            return cursor.fetchall() if cursor.description else []

    def run(self, sql: str, params: Bound) -> int:
        with _translate_errors():
            return self.connection.execute(sql, params).rowcount

    def many(self, sql: str, params: list[Bound]) -> None:
        with _translate_errors(), self.connection.cursor() as cursor:
            cursor.executemany(sql, params)

    @contextlib.contextmanager
    def savepoint(self) -> Iterator[None]:
        with self.connection.transaction():
            yield


@contextlib.contextmanager
def _translate_errors() -> Iterator[None]:
    try:
        yield
    except UniqueViolation as error:
        raise UniqueClash(str(error)) from error


class PostgresDatabase:
    dialect: Literal["postgresql"] = "postgresql"

    def __init__(self, url: str, env: Env, *, connections: int = 8) -> None:
        self.url = url
        self.env = env
        self.commits: Commits | None = None
        self._pool: ConnectionPool[Connection] = ConnectionPool(
            url, min_size=1, max_size=connections, open=True, timeout=30, kwargs={"autocommit": True}
        )
        self._threads = ThreadPoolExecutor(connections, thread_name_prefix="store")

    async def write(self, unit: Unit[T]) -> T:
        loop = asyncio.get_running_loop()
        result, after = await asyncio.shield(loop.run_in_executor(self._threads, self._run, unit))
        for call in after:
            call()
        return result

    async def read(self, unit: Unit[T]) -> T:
        result, _ = await asyncio.get_running_loop().run_in_executor(self._threads, self._run, unit)
        return result

    peek = read

    def close(self) -> None:
        self._threads.shutdown()
        self._pool.close()

    def _run(self, unit: Unit[T]) -> tuple[T, list[Any]]:
        for left in range(MAX_UNIT_ATTEMPTS - 1, -1, -1):
            try:
                with self._pool.connection() as connection, connection.transaction():
                    tx = Tx(PostgresDriver(connection), self.env, self.env.clock.now())
                    result = unit(tx)
                return result, tx.after
            except (DeadlockDetected, SerializationFailure, UniqueClash):
                if not left:
                    raise
            except errors.DiskFull as error:
                raise DiskFull from error
        raise AssertionError("unreachable")
