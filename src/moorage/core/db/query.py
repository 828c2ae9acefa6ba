"""SQL statements, compiled once per dialect and run directly on the driver.

A `Query` is an SQLAlchemy Core statement and the class of its rows; a `Command` has no rows. Both are created when a
module is imported and compiled on their first run. Parameters are declared with `arg("name")` and passed by name:

    BY_NAME = Query(select(*columns(project)).where(project.c.org_id == arg("org_id")), Project)
    tx.find(BY_NAME, org_id=org_id)
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from operator import itemgetter
from typing import Any, Generic, TypeVar, cast

from sqlalchemy import BindParameter, Boolean, ColumnElement, Table, bindparam
from sqlalchemy.dialects import sqlite
from sqlalchemy.engine import Dialect
from sqlalchemy.sql.compiler import SQLCompiler
from sqlalchemy.sql.dml import Insert
from sqlalchemy.sql.elements import ClauseElement

from moorage.core.kit.records import dataclass

T = TypeVar("T")

# A statement, or a function of the dialect's name for the few that differ between dialects.
Source = ClauseElement | Callable[[str], ClauseElement]


@cache
def dialect(name: str) -> Dialect:
    if name == "sqlite":
        return sqlite.dialect(paramstyle="qmark")
    from sqlalchemy.dialects.postgresql.psycopg import PGDialect_psycopg

    return PGDialect_psycopg(paramstyle="pyformat")  # type: ignore[no-untyped-call]


def arg(name: str, type_: Any = None) -> BindParameter[Any]:
    """Declare a parameter; the underscore separates it from columns of an UPDATE."""
    return bindparam("_" + name, type_=type_, required=False)


def columns(table: Table, *names: str) -> list[ColumnElement[Any]]:
    """Return the named columns of a table, or all, in the order of the row class."""
    return [table.c[name] for name in names] if names else list(table.c)


def sets_of(table: Table) -> tuple[str, ...]:
    """Return the columns that an insert sets: all but `id`."""
    return tuple(column.name for column in table.c if column.name != "id")


# Parameters for the driver: positional for SQLite, named for PostgreSQL.
Bound = dict[str, Any] | list[Any] | tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class Compiled:
    """A statement ready for a driver."""

    sql: str
    constants: Mapping[str, Any]
    names: tuple[tuple[str, str], ...]  # (key in the SQL, name of the caller's parameter)
    booleans: tuple[int, ...]  # result columns that SQLite stores as 0 and 1

    order: tuple[str | None, ...] = ()  # for SQLite: the parameter of each position, or None for a constant
    values: tuple[Any, ...] = ()  # the constants at those positions

    take: Callable[[Mapping[str, Any]], tuple[Any, ...]] | None = None  # fast path of SQLite without constants

    def bind(self, params: Mapping[str, Any]) -> Bound:
        try:
            if self.take is not None:
                return self.take(params)
            if self.order:
                return [
                    value if name is None else params[name] for name, value in zip(self.order, self.values, strict=True)
                ]
            return {**self.constants, **{key: params[name] for key, name in self.names}}
        except KeyError as error:
            raise TypeError(f"the statement needs {error}: {self.sql}") from None


class Statement:
    def __init__(self, source: Source, *, sets: tuple[str, ...] = ()) -> None:
        """Create a statement; `sets` are columns set from parameters of the same name."""
        self._source = source
        self._sets = sets
        self._compiled: dict[str, Compiled] = {}

    def compiled(self, dialect_name: str) -> Compiled:
        compiled = self._compiled.get(dialect_name)
        if compiled is None:
            compiled = self._compiled[dialect_name] = self._compile(dialect_name)
        return compiled

    def _compile(self, name: str) -> Compiled:
        source = self._source if isinstance(self._source, ClauseElement) else self._source(name)
        compiled = cast(
            SQLCompiler,
            source.compile(
                dialect=dialect(name),
                column_keys=list(self._sets) if self._sets else None,
                compile_kwargs={"render_postcompile": True},
            ),
        )
        parameters = {key for key in compiled.params if key.startswith("_") or key in self._sets}
        constants = {key: value for key, value in compiled.params.items() if key not in parameters}
        result = [entry.type for entry in (compiled._result_columns or [])]
        booleans = tuple(i for i, kind in enumerate(result) if isinstance(kind, Boolean)) if name == "sqlite" else ()
        names = {key: key if key in self._sets else key.removeprefix("_") for key in sorted(parameters)}
        positions = compiled.positiontup or []
        is_plain = bool(positions) and set(positions) <= parameters
        return Compiled(
            sql=str(compiled),
            constants=constants,
            names=tuple(names.items()),
            booleans=booleans,
            order=tuple(names.get(key) for key in positions),
            values=tuple(constants.get(key) for key in positions),
            take=_taker([names[key] for key in positions]) if is_plain else None,
        )


def _taker(names: list[str]) -> Callable[[Mapping[str, Any]], tuple[Any, ...]]:
    """Return a function that takes the values of parameters in order."""
    if len(names) > 1:
        return itemgetter(*names)
    (only,) = names
    return lambda params: (params[only],)


class Query(Statement, Generic[T]):
    """A statement with rows; each is returned as `into(*row)`."""

    def __init__(self, source: Source, into: Callable[..., T], *, sets: tuple[str, ...] = ()) -> None:
        super().__init__(source, sets=sets)
        self.into = into


class Command(Statement):
    """A statement without rows."""


def scalar(value: Any) -> Any:
    """Serve as `into` of a query with one column."""
    return value


def pair(first: Any, second: Any) -> tuple[Any, Any]:
    """Serve as `into` of a query with two columns."""
    return (first, second)


def insert_for(dialect_name: str) -> Any:
    """Return the `insert` of a dialect, which has ON CONFLICT."""
    if dialect_name == "sqlite":
        return sqlite.insert
    # A process on SQLite does without the dialect, which takes 2 MB.
    from sqlalchemy.dialects import postgresql

    return postgresql.insert


def insert_or_ignore(table: Table, *, returning: str = "id") -> Callable[[str], ClauseElement]:
    """Return an INSERT that has no effect and returns no row if a unique key exists."""

    def source(name: str) -> ClauseElement:
        statement: Insert = insert_for(name)(table).on_conflict_do_nothing()
        return statement.returning(table.c[returning])

    return source
