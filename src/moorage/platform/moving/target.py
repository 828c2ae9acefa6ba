"""The PostgreSQL database as the target of a move: tables, types, sequences and rows in one transaction.

The tables are created by the migrations in the same transaction as the copy. A move that is killed therefore leaves the
database as it was, and the next one begins anew.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any

import psycopg
from psycopg import sql

from moorage.core.db import migrate
from moorage.core.db.migrations import HEAD
from moorage.core.kit.records import dataclass
from moorage.platform.moving.errors import CannotMove
from moorage.platform.moving.source import REVISIONS
from moorage.settings import Settings

Connection = psycopg.Connection[tuple[Any, ...]]

OTHER_RELATIONS = """
SELECT c.relname FROM pg_class c
WHERE c.relnamespace = current_schema()::regnamespace AND c.relkind IN ('r', 'p', 'v', 'm', 'f', 'S')
  AND NOT EXISTS (SELECT 1 FROM pg_depend d WHERE d.objid = c.oid AND d.deptype = 'e')
ORDER BY c.relkind, c.relname
"""
COLUMN_TYPES = """
SELECT c.table_name, c.column_name, c.data_type FROM information_schema.columns c
JOIN information_schema.tables t ON t.table_schema = c.table_schema AND t.table_name = c.table_name
WHERE c.table_schema = current_schema() AND t.table_type = 'BASE TABLE'
"""
FOREIGN_KEYS = """
SELECT r.relname, k.conname, pg_get_constraintdef(k.oid) FROM pg_constraint k JOIN pg_class r ON r.oid = k.conrelid
WHERE k.contype = 'f' AND k.connamespace = current_schema()::regnamespace ORDER BY 1, 2
"""


@dataclass(frozen=True)
class ForeignKey:
    table: str
    name: str
    definition: str


class Target:
    """A database in an open transaction; everything here is part of it."""

    def __init__(self, connection: Connection, alchemy: Any) -> None:
        self.connection = connection
        self._alchemy = alchemy

    def check_usable(self) -> None:
        """Raise CannotMove unless the database is in UTF-8 and the user may create tables."""
        ((encoding, schema),) = self._rows("SELECT current_setting('server_encoding'), current_schema()")
        if encoding != "UTF8":
            raise CannotMove(
                f"the database on PostgreSQL has the encoding {encoding}, and texts need UTF8: create another one with "
                "createdb --encoding=UTF8 --template=template0"
            )
        if schema is None:
            raise CannotMove("the user of the URL has no schema to create tables in; give it the right to create them")

    def other_relations(self) -> list[str]:
        """Return the names of tables, views and sequences in the schema, which an empty database does not have."""
        return [name for (name,) in self._rows(OTHER_RELATIONS)]

    def is_store(self) -> bool:
        """Return whether the database has the tables of a platform of this version."""
        if REVISIONS not in self.other_relations():
            return False
        return self._rows("SELECT version_num FROM alembic_version") == [(HEAD,)]

    def create_tables(self) -> None:
        """Create the tables by the migrations."""
        migrate.upgrade_connection(self._alchemy)

    def column_types(self) -> dict[str, dict[str, str]]:
        """Return the type of each column, by table."""
        types: dict[str, dict[str, str]] = {}
        for table, column, type_ in self._rows(COLUMN_TYPES):
            types.setdefault(table, {})[column] = type_
        types.pop(REVISIONS, None)
        return types

    @contextlib.contextmanager
    def without_foreign_keys(self) -> Iterator[None]:
        """Check references after the copy and not row by row, so that tables are copied in any order."""
        keys = [ForeignKey(*row) for row in self._rows(FOREIGN_KEYS)]
        for key in keys:
            self._run("ALTER TABLE {} DROP CONSTRAINT {}", key.table, key.name)
        yield
        for key in keys:
            statement = sql.SQL("ALTER TABLE {} ADD CONSTRAINT {} ").format(*map(sql.Identifier, (key.table, key.name)))
            self.connection.execute(statement + sql.SQL(key.definition))

    def empty(self, tables: Sequence[str]) -> None:
        """Delete rows that migrations inserted: all rows come from the source."""
        self.connection.execute(sql.SQL("TRUNCATE {}").format(sql.SQL(", ").join(map(sql.Identifier, tables))))

    @contextlib.contextmanager
    def copying(self, table: str, columns: Sequence[str]) -> Iterator[psycopg.Copy]:
        """Insert rows with COPY."""
        names = sql.SQL(", ").join(map(sql.Identifier, columns))
        statement = sql.SQL("COPY {} ({}) FROM STDIN").format(sql.Identifier(table), names)
        with self.connection.cursor() as cursor, cursor.copy(statement) as copy:
            yield copy

    def rows(self, table: str, columns: Sequence[str]) -> Iterator[tuple[Any, ...]]:
        """Yield all rows of a table, in batches of the server's cursor."""
        names = sql.SQL(", ").join(map(sql.Identifier, columns))
        with self.connection.cursor(name="moorage_move") as cursor:
            cursor.itersize = 2000
            cursor.execute(sql.SQL("SELECT {} FROM {}").format(names, sql.Identifier(table)))
            yield from cursor

    def set_sequence(self, table: str, last_id: int) -> None:
        """Let the next row of a table have an id above `last_id`."""
        ((sequence,),) = self.connection.execute(
            "SELECT pg_get_serial_sequence(quote_ident(%s), 'id')", (table,)
        ).fetchall()
        if sequence is not None and last_id:
            self.connection.execute("SELECT setval(%s::regclass, %s)", (sequence, last_id))

    def _rows(self, query: str) -> list[tuple[Any, ...]]:
        return self.connection.execute(query).fetchall()  # type: ignore[arg-type,unused-ignore]

    def _run(self, statement: str, *names: str) -> None:
        self.connection.execute(sql.SQL(statement).format(*map(sql.Identifier, names)))


@contextlib.contextmanager
def opened(settings: Settings) -> Iterator[Target]:
    """Open the database in one transaction, which is committed at the end and rolled back if the block raises."""
    engine = migrate.postgres_engine(settings.database_url.get_secret_value())
    try:
        with engine.begin() as alchemy:
            migrate.lock_schema(alchemy)
            yield Target(alchemy.connection.driver_connection, alchemy)
    finally:
        engine.dispose()


def analyze(settings: Settings) -> None:
    """Give the query planner its statistics, which a copy does not update."""
    with psycopg.connect(settings.database_url.get_secret_value(), autocommit=True) as connection:
        connection.execute("ANALYZE")
