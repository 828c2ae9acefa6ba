"""The transaction that a unit of work gets, and the one way to change a status.

A unit of work is a sync function of a `Tx`: it cannot wait for anything, so no transaction ever spans I/O.
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
    """What a store runs statements with; one per dialect."""

    dialect: str

    def rows(self, sql: str, params: Bound) -> list[tuple[Any, ...]]: ...

    def run(self, sql: str, params: Bound) -> int: ...

    def many(self, sql: str, params: list[Bound]) -> None: ...

    def savepoint(self) -> AbstractContextManager[None]: ...


class Tx:
    """One transaction. `now` stands still inside it."""

    __slots__ = ("_driver", "after", "dialect", "env", "now", "trace_id")

    def __init__(self, driver: Driver, env: Env, now: int) -> None:
        self._driver = driver
        self.dialect = driver.dialect
        self.env = env
        self.now = now
        self.trace_id: str | None = None  # of the request or job it belongs to; jobs added here carry it on
        self.after: list[Callable[[], None]] = []

    @property
    def trusted_now(self) -> int:
        """The moment by which rows are old enough to be deleted: see `Clock.trusted_now`."""
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
        """Return the first row; for queries that always have one, such as INSERT … RETURNING and counts."""
        return self.all(query, **params)[0]

    def run(self, statement: Statement, /, **params: Any) -> int:
        """Run a statement and return how many rows it touched."""
        compiled = statement.compiled(self.dialect)
        return self._driver.run(compiled.sql, compiled.bind(params))

    def run_many(self, statement: Statement, params: list[dict[str, Any]]) -> None:
        compiled = statement.compiled(self.dialect)
        self._driver.many(compiled.sql, [compiled.bind(each) for each in params])

    def savepoint(self) -> AbstractContextManager[None]:
        """Undo what the block did where it raises, and only that."""
        return self._driver.savepoint()

    def after_commit(self, call: Callable[[], None]) -> None:
        """Call something once the transaction is durable; for wake-ups, never for work that must happen."""
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
    """Move a row to another status, and set further columns with it.

    The stored status decides, not the one in hand: of two racing callers one wins and the other gets IllegalMove.
    The machine's name is the table's.
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
