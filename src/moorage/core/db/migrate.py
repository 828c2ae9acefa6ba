"""Migrates the database schema at startup, under a lock, after a snapshot."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Any

from moorage.core.db import new_store
from moorage.core.db.migrations import HEAD
from moorage.core.kit.crypto import KeyRing
from moorage.errors import CannotStart

ADVISORY_LOCK_KEY = 0x6D6F6F72  # an arbitrary key of PostgreSQL's advisory locks
CONNECT_TIMEOUT_S = 10


class NewerStore(CannotStart):
    """The database was migrated by a newer Moorage; an older one must not use it."""


class ForeignStore(CannotStart):
    """The file is a database of another program; Moorage must not add its tables."""

    def __init__(self, path: Path) -> None:
        super().__init__(
            f"{path} is an SQLite database, but not a store of Moorage: it has other tables. Move the file away, and "
            "restore the store from its snapshots or with `moorage restore`"
        )


def sqlite_revision(path: Path) -> str | None:
    """Return the revision of an SQLite file, or None if it has no tables."""
    if not path.exists() or path.stat().st_size == 0:
        return None
    connection = sqlite3.connect(path)
    try:
        tables = {name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
        if tables and "alembic_version" not in tables:
            raise ForeignStore(path)
        row = connection.execute("SELECT version_num FROM alembic_version").fetchone() if tables else None
    finally:
        connection.close()
    return str(row[0]) if row else None


def upgrade_sqlite(path: Path, snapshots: Path, ring: KeyRing | None = None) -> str | None:
    """Migrate an SQLite file to HEAD after a snapshot, or create its tables; return the revision it had.

    `ring` encrypts values that a revision moves to the vault; without it, such a revision refuses a database with such
    values.
    """
    before = sqlite_revision(path)
    if before == HEAD:
        return before
    if before is None:
        new_store.create(path)
        return before
    snapshots.mkdir(parents=True, exist_ok=True, mode=0o700)
    copy_sqlite(path, snapshots / f"before-{HEAD}-from-{before}.db")
    _upgrade(_sqlite_engine(path), before, ring)
    _shrink(path)
    return before


def run_migrations(path: Path) -> None:
    """Create the tables of a new SQLite file with all migrations."""
    _upgrade(_sqlite_engine(path), None)


def _shrink(path: Path) -> None:
    """Free disk space if a migration deleted most of the data."""
    connection = sqlite3.connect(path)
    try:
        (free,), (pages,) = (
            connection.execute(f"PRAGMA {name}").fetchone() for name in ("freelist_count", "page_count")
        )
        if 2 * free > pages:
            connection.execute("VACUUM")  # SQLite rolls back an interrupted VACUUM.
    finally:
        connection.close()


def _sqlite_engine(path: Path) -> Any:
    """Return an engine with transactional DDL: an interrupted migration has no effect."""
    from sqlalchemy import create_engine, event

    engine = create_engine(f"sqlite:///{path}", connect_args={"isolation_level": None})
    event.listen(engine, "begin", lambda connection: connection.exec_driver_sql("BEGIN IMMEDIATE"))
    return engine


def upgrade_postgres(url: str, ring: KeyRing | None = None) -> str | None:
    """Migrate a PostgreSQL database to HEAD; concurrent processes wait."""
    from sqlalchemy import text

    engine = postgres_engine(url)
    with engine.connect() as connection:
        # Without Alembic, which a store at HEAD does not need.
        exists = connection.execute(text("SELECT to_regclass('alembic_version')")).scalar() is not None
        before = connection.execute(text("SELECT version_num FROM alembic_version")).scalar() if exists else None
    if before != HEAD:
        _upgrade(engine, before, ring)
    return before


def postgres_engine(url: str) -> Any:
    from sqlalchemy import create_engine

    # Without a timeout, a server that drops packets would block the start for TCP's own, much longer timeout.
    arguments = {} if "connect_timeout" in url else {"connect_timeout": CONNECT_TIMEOUT_S}
    return create_engine("postgresql+psycopg://" + url.partition("://")[2], connect_args=arguments)


def lock_schema(connection: Any) -> None:
    """Let other processes that want to migrate the PostgreSQL database wait for the end of this transaction."""
    from sqlalchemy import text

    connection.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": ADVISORY_LOCK_KEY})


def _upgrade(engine: Any, before: str | None, ring: KeyRing | None = None) -> None:
    from alembic.script import ScriptDirectory

    known = {script.revision for script in ScriptDirectory.from_config(configuration()).walk_revisions()}
    if before is not None and before not in known:
        raise NewerStore(f"the store is at revision {before}, which this version does not know; start a newer Moorage")
    with engine.begin() as connection:
        if engine.dialect.name == "postgresql":
            lock_schema(connection)
        upgrade_connection(connection, ring)
    engine.dispose()


def upgrade_connection(connection: Any, ring: KeyRing | None = None) -> None:
    """Migrate to HEAD within the transaction of a connection."""
    from alembic import command

    config = configuration()
    config.attributes["connection"] = connection
    config.attributes["ring"] = ring
    command.upgrade(config, "head")


def configuration() -> Any:
    from alembic.config import Config

    config = Config()
    config.set_main_option("script_location", str(Path(__file__).parent / "migrations"))
    return config


def copy_sqlite(source: Path, target: Path) -> None:
    """Copy a database in use by SQLite's backup API, which gives a consistent copy."""
    partial = target.with_suffix(".partial")
    reading, writing = sqlite3.connect(f"file:{source}?mode=ro", uri=True), sqlite3.connect(partial)
    try:
        reading.backup(writing)
        problem = writing.execute("PRAGMA integrity_check").fetchone()[0]
        if problem != "ok":
            raise sqlite3.DatabaseError(f"the copy of {source.name} is damaged: {problem}")
    finally:
        reading.close()
        writing.close()
    partial.chmod(0o600)
    partial.replace(target)
