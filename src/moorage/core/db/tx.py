"""Transactions, and status transitions of rows.

A unit of work is a sync function of a `Tx`. It cannot await anything, so no transaction spans I/O.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from functools import lru_cache
from typing import Any, Protocol, TypeVar

from sqlalchemy import update
from sqlalchemy.sql.elements import ClauseElement

from moorage.core.db.query import Bound, Command, Query, Statement, arg
from moorage.core.db.schema import metadata
from moorage.core.env import Env
from moorage.core.kit.machine import Machine, S
from moorage.errors import IllegalMove

T = TypeVar("T")


class UniqueClash(Exception):
    """A unique key is taken."""


class Driver(Protocol):
    """Runs SQL statements on a connection; one implementation per dialect."""

    dialect: str

    def rows(self, sql: str, params: Bound) -> list[tuple[Any, ...]]: ...

    def run(self, sql: str, params: Bound) -> int: ...

    def many(self, sql: str, params: list[Bound]) -> None: ...

    def savepoint(self) -> AbstractContextManager[None]: ...


class Tx:
    """One transaction. `now` is constant within it."""

    __slots__ = ("_driver", "after", "dialect", "env", "now", "trace_id")

    def __init__(self, driver: Driver, env: Env, now: int) -> None:
        self._driver = driver
        self.dialect = driver.dialect
        self.env = env
        self.now = now
        self.trace_id: str | None = None  # of the request or job; inherited by jobs that are added here
        self.after: list[Callable[[], None]] = []

    @property
    def trusted_now(self) -> int:
        """Return the time for retention periods: see `Clock.trusted_now`."""
        return self.now - self.env.clock.distrusted_ms

    def all(self, query: Query[T], /, **params: Any) -> list[T]:
        compiled = query.compiled(self.dialect)
        rows: Iterable[tuple[Any, ...]] = self._driver.rows(compiled.sql, compiled.bind(params))
        if compiled.booleans:
            rows = (_with_booleans(row, compiled.booleans) for row in rows)
        into = query.into
        return [into(*row) for row in rows]

    def find(self, query: Query[T], /, **params: Any) -> T | None:
        compiled = query.compiled(self.dialect)
        rows = self._driver.rows(compiled.sql, compiled.bind(params))
        if not rows:
            return None
        row = _with_booleans(rows[0], compiled.booleans) if compiled.booleans else rows[0]
        return query.into(*row)

    def one(self, query: Query[T], /, **params: Any) -> T:
        """Return the first row of a query that always has one, such as a count."""
        return self.all(query, **params)[0]

    def run(self, statement: Statement, /, **params: Any) -> int:
        """Run a statement and return the number of affected rows."""
        compiled = statement.compiled(self.dialect)
        return self._driver.run(compiled.sql, compiled.bind(params))

    def run_many(self, statement: Statement, params: list[dict[str, Any]]) -> None:
        compiled = statement.compiled(self.dialect)
        self._driver.many(compiled.sql, [compiled.bind(each) for each in params])

    def savepoint(self) -> AbstractContextManager[None]:
        """Roll back only the effects of the block if it raises."""
        return self._driver.savepoint()

    def after_commit(self, call: Callable[[], None]) -> None:
        """Call a function after the commit. A crash loses it, so use it for wake-ups only."""
        self.after.append(call)


def _with_booleans(row: tuple[Any, ...], at: tuple[int, ...]) -> tuple[Any, ...]:
    values = list(row)
    for index in at:
        if values[index] is not None:
            values[index] = bool(values[index])
    return tuple(values)


class HasId(Protocol):
    @property
    def id(self) -> int: ...


def move(tx: Tx, machine: Machine[S], row: HasId, *, to: S, **also: Any) -> None:
    """Change the status of a row and set further columns; raises IllegalMove.

    Compares the stored status, not the one of `row`: of two concurrent callers one wins and the other gets
    IllegalMove. The machine has the name of the table.
    """
    command = _move_command(machine.name, tuple(sorted(machine.sources(to))), tuple(sorted(also)))
    if tx.run(command, to=to, row_id=row.id, now=tx.now, **also) == 0:
        raise IllegalMove(machine.name, getattr(row, "status", None), to)


@lru_cache(maxsize=512)
def _move_command(name: str, sources: tuple[str, ...], also: tuple[str, ...]) -> Command:
    table = metadata.tables[name]
    values: dict[str, ClauseElement] = {"status": arg("to"), **{column: arg(column) for column in also}}
    if "updated_at" in table.c and "updated_at" not in also:
        values["updated_at"] = arg("now")
    where = (table.c.id == arg("row_id")) & table.c.status.in_(sources)
    return Command(update(table).where(where).values(values))
