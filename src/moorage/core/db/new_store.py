"""Creates a new SQLite store from one script, which takes a sixtieth of the CPU time of all migrations.

`make docs` writes the script from a store that the migrations made.
"""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

SCRIPT = Path(__file__).parent / "migrations" / "new_store.sql"


def create(path: Path) -> None:
    """Create the tables in a file without any; an interrupted call leaves it without tables."""
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.executescript(f"BEGIN IMMEDIATE;\n{SCRIPT.read_text()}COMMIT;\n")


def script_of(path: Path) -> str:
    """Return the script that creates the tables, indexes and revision of a store without other rows."""
    with closing(sqlite3.connect(path)) as connection:
        cursor = connection.execute("SELECT name, sql FROM sqlite_master WHERE sql IS NOT NULL ORDER BY rowid")
        # SQLite creates its own tables by itself.
        texts = [sql for name, sql in cursor.fetchall() if not name.startswith("sqlite_")]
        (revision,) = connection.execute("SELECT version_num FROM alembic_version").fetchone()
    statements = ["\n".join(map(str.rstrip, text.splitlines())) for text in texts]
    statements.append(f"INSERT INTO alembic_version VALUES ('{revision}')")  # noqa: S608  # a revision of this code
    return "".join(f"{statement};\n" for statement in statements)
