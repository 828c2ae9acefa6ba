"""The SQLite store as the source of a move: read in one transaction, and never written."""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Iterator
from pathlib import Path

from moorage.core.db.migrations import HEAD
from moorage.core.db.snapshots import store_path
from moorage.core.kit.records import dataclass
from moorage.platform.moving import values
from moorage.platform.moving.errors import CannotMove
from moorage.settings import Settings

REVISIONS = "alembic_version"
MAX_LISTED = 20


@dataclass(frozen=True)
class SourceTable:
    name: str
    columns: tuple[str, ...]
    key: tuple[str, ...]  # columns of the primary key
    rows: int
    last_id: int  # the highest id that a row of the table ever had; 0 without any


@contextlib.contextmanager
def opened(settings: Settings) -> Iterator[sqlite3.Connection]:
    """Open the store in a read transaction; raises CannotMove if it is absent, damaged or of another version."""
    path = store_path(settings)
    if not path.is_file() or not path.stat().st_size:
        raise CannotMove(f"there is no SQLite store in {settings.data}; is --data right?")
    connection = sqlite3.connect(f"file:{path}?mode=ro", uri=True, isolation_level=None)
    try:
        connection.text_factory = values.read_text
        connection.execute("BEGIN")
        _check_revision(connection, path)
        yield connection
    finally:
        connection.close()


def _check_revision(connection: sqlite3.Connection, path: Path) -> None:
    row = connection.execute("SELECT 1 FROM sqlite_master WHERE name = ?", (REVISIONS,)).fetchone()
    if row is None:
        raise CannotMove(f"{path} is no store of Moorage; is --data right?")
    revision = connection.execute("SELECT version_num FROM alembic_version").fetchone()
    if revision != (HEAD,):
        raise CannotMove(
            f"the store {path} is at revision {revision and revision[0]}, and this version needs {HEAD}: start and "
            "stop the platform once with this version, which migrates the store, and repeat the move"
        )


def check_intact(connection: sqlite3.Connection) -> None:
    """Raise CannotMove if a page is damaged or a row refers to a missing one."""
    problem = connection.execute("PRAGMA integrity_check(1)").fetchone()[0]
    if problem != "ok":
        raise CannotMove(f"the SQLite store is damaged: {problem}. Restore a backup first")
    orphans = [
        f"the row {row} of the table {table} refers to a missing row of {parent}"
        for table, row, parent, _ in connection.execute("PRAGMA foreign_key_check").fetchmany(MAX_LISTED)
    ]
    if orphans:
        raise CannotMove("PostgreSQL would refuse these rows: " + "; ".join(orphans))


def tables(connection: sqlite3.Connection) -> list[SourceTable]:
    """Return all tables of the store, except the table of its revision."""
    query = "SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite\\_%' ESCAPE '\\'"
    names = [name for (name,) in connection.execute(query) if name != REVISIONS]
    return [_describe(connection, name) for name in sorted(names)]


def _describe(connection: sqlite3.Connection, name: str) -> SourceTable:
    columns = connection.execute(f"PRAGMA table_info({_quoted(name)})").fetchall()
    (rows,) = connection.execute(_select("count(*)", name)).fetchone()
    last_id = 0
    if any(column[1] == "id" for column in columns):
        # Ids are never used again, so the highest one may belong to a deleted row.
        sequence = connection.execute("SELECT seq FROM sqlite_sequence WHERE name = ?", (name,)).fetchone()
        (highest,) = connection.execute(_select("max(id)", name)).fetchone()
        last_id = max(int(sequence[0]) if sequence else 0, highest if isinstance(highest, int) else 0)
    key = tuple(column[1] for column in columns if column[5])
    return SourceTable(name, tuple(column[1] for column in columns), key, rows, last_id)


def rows(connection: sqlite3.Connection, table: SourceTable) -> sqlite3.Cursor:
    """Return a cursor over all rows of a table."""
    return connection.execute(_select(", ".join(map(_quoted, table.columns)), table.name))


def _select(expressions: str, table: str) -> str:
    return f"SELECT {expressions} FROM {_quoted(table)}"  # noqa: S608 - names of the store's own schema


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'
