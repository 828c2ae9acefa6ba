"""Move the store from SQLite to PostgreSQL.

The rows are copied and compared in one transaction of PostgreSQL, so the target holds the whole store or nothing of it.
The SQLite file is only read.
"""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Iterator, Mapping

import psycopg

from moorage.core.db.migrations import HEAD
from moorage.core.kit.records import dataclass
from moorage.platform import store_checks
from moorage.platform.backups.archive import Progress, Report, chown, owner_of
from moorage.platform.moving import source, target, values
from moorage.platform.moving.errors import CannotMove
from moorage.platform.moving.source import MAX_LISTED, SourceTable
from moorage.platform.moving.target import Target
from moorage.platform.moving.values import BadColumn, Convert, Summary
from moorage.settings import Settings

BATCH = 1000
MAX_SHOWN_RELATIONS = 5


@dataclass(frozen=True)
class Moved:
    tables: int
    rows: int
    server: str
    was_complete: bool  # an earlier move copied everything, and was killed before it could say so


def move(settings: Settings, report: Report) -> Moved:
    """Copy the SQLite store of the data folder to the PostgreSQL of `database_url`.

    The caller holds the lock of the store. Raises CannotMove or CannotStart; PostgreSQL is unchanged then. Safe to
    repeat after a kill at any moment.
    """
    store_checks.check_not_moved(settings)
    server = store_checks.server_of(settings.database_url.get_secret_value())
    with source.opened(settings) as sqlite:
        report("checking the SQLite store")
        source.check_intact(sqlite)
        tables = source.tables(sqlite)
        report(f"connecting to PostgreSQL at {server}")
        with store_checks.explained(settings), target.opened(settings) as postgres:
            was_complete = _copy_all(sqlite, postgres, tables, report)
    with store_checks.explained(settings):
        target.analyze(settings)
    chown(store_checks.mark_moved(settings, server), owner_of(settings.data))
    return Moved(len(tables), sum(table.rows for table in tables), server, was_complete)


def _copy_all(sqlite: sqlite3.Connection, postgres: Target, tables: list[SourceTable], report: Report) -> bool:
    """Copy and compare all tables; return whether an earlier move had copied all of them."""
    postgres.check_usable()
    if others := postgres.other_relations():
        _compare_with_earlier(sqlite, postgres, tables, others, report)
        return True
    report(f"creating the tables of revision {HEAD}")
    postgres.create_tables()
    converters = _converters(postgres.column_types(), tables)
    postgres.empty([table.name for table in tables])
    with _explained_references(), postgres.without_foreign_keys():
        copied = _copy_rows(sqlite, postgres, tables, converters, report)
    for table in tables:
        postgres.set_sequence(table.name, table.last_id)
    if different := _different(postgres, copied, tables, report):
        raise CannotMove(
            f"PostgreSQL returns other rows than were copied, in the tables {', '.join(different)}; nothing was kept"
        )
    return False


def _compare_with_earlier(
    sqlite: sqlite3.Connection, postgres: Target, tables: list[SourceTable], others: list[str], report: Report
) -> None:
    """Raise CannotMove unless the database has exactly the rows of the source."""
    advice = "create an empty database and move to that one"
    if not postgres.is_store():
        shown = ", ".join(others[:MAX_SHOWN_RELATIONS])
        raise CannotMove(f"the database on PostgreSQL is not empty (it has {shown}); {advice}")
    report("PostgreSQL has the tables of a platform: comparing their rows with the SQLite store")
    converters = _converters(postgres.column_types(), tables)
    wanted = {table.name: Summary() for table in tables}
    for table in tables:
        for batch in _converted(sqlite, table, converters[table.name], []):
            for row in batch:
                wanted[table.name].add(row)
    if different := _different(postgres, wanted, tables, report):
        raise CannotMove(
            f"the database on PostgreSQL holds a platform with other rows than this one (in {different[0]}"
            f"{' and others' if len(different) > 1 else ''}); {advice}"
        )


def _converters(types: Mapping[str, Mapping[str, str]], tables: list[SourceTable]) -> dict[str, list[Convert]]:
    """Return the conversions of each table's columns; raises CannotMove if the stores have other tables."""
    names = {table.name for table in tables}
    if names != types.keys():
        raise CannotMove(f"the two stores have different tables: {', '.join(sorted(names ^ types.keys()))}")
    converters: dict[str, list[Convert]] = {}
    for table in tables:
        if set(table.columns) != types[table.name].keys():
            raise CannotMove(f"the table {table.name} has other columns in SQLite than in PostgreSQL")
        for column in table.columns:
            convert = values.converter(types[table.name][column])
            if convert is None:
                raise CannotMove(f"the column {table.name}.{column} has a type that cannot be moved")
            converters.setdefault(table.name, []).append(convert)
    return converters


def _copy_rows(
    sqlite: sqlite3.Connection,
    postgres: Target,
    tables: list[SourceTable],
    converters: Mapping[str, list[Convert]],
    report: Report,
) -> dict[str, Summary]:
    """Copy all tables; raises CannotMove with every value that PostgreSQL cannot store."""
    total = sum(table.rows for table in tables)
    report(f"copying {total} rows of {len(tables)} tables")
    progress = Progress(report, "copying", total, "rows", 1)
    copied: dict[str, Summary] = {}
    problems: list[str] = []
    for table in tables:
        summary = copied[table.name] = Summary()
        with _explained_copy(table), postgres.copying(table.name, table.columns) as copy:
            for batch in _converted(sqlite, table, converters[table.name], problems):
                for row in batch:
                    summary.add(row)
                    copy.write_row(row)
                progress.add(len(batch))
        if len(problems) >= MAX_LISTED:
            break
    if problems:
        raise CannotMove("PostgreSQL cannot store these values:\n" + "\n".join(f"  {each}" for each in problems))
    return copied


def _converted(
    sqlite: sqlite3.Connection, table: SourceTable, converters: list[Convert], problems: list[str]
) -> Iterator[list[values.Row]]:
    """Yield batches of rows for PostgreSQL; values that it cannot store are added to `problems`, without their rows."""
    cursor = source.rows(sqlite, table)
    while batch := cursor.fetchmany(BATCH):
        rows = []
        for raw in batch:
            try:
                rows.append(values.convert(raw, converters))
            except BadColumn as error:
                problems.append(f"{_place(table, raw)}: the column {table.columns[error.position]} {error}")
                if len(problems) >= MAX_LISTED:
                    return
        yield rows


def _place(table: SourceTable, row: values.Row) -> str:
    """Return the table and the primary key of a row."""
    named = dict(zip(table.columns, row, strict=True))
    return f"table {table.name}, row " + ", ".join(f"{name} = {named[name]!r}" for name in table.key or table.columns)


def _different(
    postgres: Target, expected: Mapping[str, Summary], tables: list[SourceTable], report: Report
) -> list[str]:
    """Return the tables whose rows in PostgreSQL differ from the rows of the source."""
    total = sum(table.rows for table in tables)
    report(f"comparing {total} rows")
    progress = Progress(report, "comparing", total, "rows", 1)
    different = []
    for table in tables:
        stored = Summary()
        for row in postgres.rows(table.name, table.columns):
            stored.add(row)
            progress.add(1)
        if stored != expected[table.name]:
            different.append(table.name)
    return different


@contextlib.contextmanager
def _explained_copy(table: SourceTable) -> Iterator[None]:
    """Name the table and the row that PostgreSQL refuses."""
    try:
        yield
    except (psycopg.DataError, psycopg.IntegrityError, psycopg.errors.ProgramLimitExceeded) as error:
        where = f" ({error.diag.context})" if error.diag.context else ""
        raise CannotMove(
            f"PostgreSQL refuses a row of the table {table.name}: {' '.join(str(error).split())}{where}"
        ) from error


@contextlib.contextmanager
def _explained_references() -> Iterator[None]:
    try:
        yield
    except psycopg.errors.ForeignKeyViolation as error:
        raise CannotMove(f"a row refers to a missing one: {' '.join(str(error).split())}") from error
