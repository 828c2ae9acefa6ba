"""Open the data folder and the store, with checks that prevent data loss."""

from __future__ import annotations

from collections.abc import Iterable
from importlib import import_module
from pathlib import Path

from sqlalchemy import Table

import moorage
from moorage.core.audit import service as audit
from moorage.core.db import migrate
from moorage.core.db.lock import FolderLock
from moorage.core.db.schema import metadata
from moorage.core.db.snapshots import store_path
from moorage.core.db.sqlite import SqliteDatabase
from moorage.core.db.store import Database
from moorage.core.db.tx import Tx
from moorage.core.env import Env
from moorage.core.http.idempotency import keys as idempotency
from moorage.core.kit.crypto import CannotDecrypt
from moorage.core.kit.records import dataclass
from moorage.errors import CannotStart
from moorage.platform import folders, keys, migration, store_checks
from moorage.settings import Settings


@dataclass
class Opened:
    """An open store, with the lock on its folder (SQLite only)."""

    db: Database
    lock: FolderLock | None

    def close(self) -> None:
        self.db.close()
        if self.lock is not None:
            self.lock.release()


def make_env(settings: Settings) -> Env:
    return keys.make_env(settings)


def open_store(settings: Settings, *, exclusive: bool = True) -> Opened:
    """Open, migrate and return the store; raises CannotStart."""
    folders.make(settings)
    with store_checks.explained(settings):
        return _open_postgres(settings) if settings.uses_postgres else _open_sqlite(settings, exclusive=exclusive)


def _open_postgres(settings: Settings) -> Opened:
    from moorage.core.db.postgres import PostgresDatabase

    url = settings.database_url.get_secret_value()
    migrate.upgrade_postgres(url, keys.load_ring(settings))
    return Opened(PostgresDatabase(url, make_env(settings), connections=max(8, 2 * settings.workers)), None)


def _open_sqlite(settings: Settings, *, exclusive: bool) -> Opened:
    path = store_path(settings)
    lock = FolderLock(settings.folder("store")) if exclusive else None
    try:
        store_checks.check_store_is_there(settings)
        store_checks.check_sqlite(path)
        migration.upgrade(settings)
        store_checks.check_tables(path, {table.name: set(table.c.keys()) for table in all_tables()})
        (settings.data / "instance").touch(mode=0o600)
        return Opened(SqliteDatabase(path, make_env(settings)), lock)
    except BaseException:
        if lock is not None:
            lock.release()
        raise


def all_tables() -> Iterable[Table]:
    """Return the tables of all products. Executes the modules that declare them, which may be executed on first use."""
    root = Path(moorage.__file__).parent
    others = ("moorage.accounts.identity.organizations.freed_names", "moorage.products.domains.grants")
    for path in root.rglob("tables.py"):
        if path.is_relative_to(root / "cli"):  # prints tables on a terminal
            continue
        _ = import_module(".".join(("moorage", *path.relative_to(root).with_suffix("").parts))).__doc__
    for name in others:
        _ = import_module(name).__doc__
    return metadata.tables.values()


def prepare(tx: Tx) -> None:
    """Write the rows that every store needs, and check the master key. Safe to repeat.

    SQLite has one owner, so requests in progress ended with the previous owner. With PostgreSQL the claims of other
    processes may be live; they expire unless renewed.
    """
    if tx.dialect == "sqlite":
        idempotency.release(tx)
    try:
        audit.ensure_key(tx)
    except CannotDecrypt as error:
        raise CannotStart(
            f"{keys.source(tx.env.settings)}: does not fit this store: {error}. Start with the key that its secrets "
            "were encrypted under; several may be given, separated by commas in MOORAGE_MASTER_KEY or on lines of the "
            "file."
        ) from error
