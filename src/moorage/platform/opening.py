"""Opening the data folder and the store in it, with the checks that keep data from being lost."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from moorage.audit import service as audit
from moorage.db import migrate
from moorage.db.lock import FolderLock
from moorage.db.sqlite import SqliteDatabase
from moorage.db.store import Database
from moorage.db.tx import Tx
from moorage.env import Env
from moorage.errors import CannotStart
from moorage.http import idempotency
from moorage.kit.clock import SystemClock
from moorage.kit.crypto import CannotDecrypt
from moorage.platform import folders, keys
from moorage.settings import Settings

STORE = "moorage.db"


class MissingStore(CannotStart):
    """There is data, but the store that knows about it is gone."""

    def __init__(self, folder: Path) -> None:
        super().__init__(
            f"{folder} holds data, but its store is missing or empty ({folder / 'store' / STORE}). Starting would "
            f"forget everything. Restore it from {folder / 'store' / 'snapshots'} or with `moorage restore`; to start "
            "over on purpose, move the folder away."
        )


@dataclass
class Opened:
    """A store that is open, and the lock that makes it ours (SQLite only)."""

    db: Database
    lock: FolderLock | None

    def close(self) -> None:
        self.db.close()
        if self.lock is not None:
            self.lock.release()


def store_path(settings: Settings) -> Path:
    return settings.folder("store") / STORE


def make_env(settings: Settings) -> Env:
    return Env.make(settings, SystemClock(), keys.load_ring(settings), keys.load_session_secret(settings))


def check_store_is_there(settings: Settings) -> None:
    """Refuse to start on an empty store where data exists."""
    path = store_path(settings)
    if path.exists() and path.stat().st_size > 0:
        return
    marked = (settings.data / "instance").exists()
    held = any(next(settings.folder(name).iterdir(), None) for name in ("artifacts", "databases", "git"))
    if marked or held:
        raise MissingStore(settings.data)


def open_store(settings: Settings, *, exclusive: bool = True) -> Opened:
    """Open, migrate and return the store; raises where another process owns it or data would be forgotten."""
    folders.make(settings)
    if settings.uses_postgres:
        from moorage.db.postgres import PostgresDatabase

        url = settings.database_url.get_secret_value()
        migrate.upgrade_postgres(url, keys.load_ring(settings))
        return Opened(PostgresDatabase(url, make_env(settings), connections=max(8, 2 * settings.workers)), None)
    lock = FolderLock(settings.folder("store")) if exclusive else None
    try:
        check_store_is_there(settings)
        migrate.upgrade_sqlite(store_path(settings), settings.folder("store") / "snapshots", keys.load_ring(settings))
        os.chmod(store_path(settings), 0o600)
        (settings.data / "instance").touch(mode=0o600)
        return Opened(SqliteDatabase(store_path(settings), make_env(settings)), lock)
    except BaseException:
        if lock is not None:
            lock.release()
        raise


def prepare(tx: Tx) -> None:
    """Write what every store needs before it serves, and see that our keys fit it. Safe to repeat.

    SQLite has one owner, so requests that were at work died with the owner before. PostgreSQL may have other owners,
    whose claims expire unless they are renewed.
    """
    if tx.dialect == "sqlite":
        idempotency.release(tx)
    try:
        audit.ensure_key(tx)
    except CannotDecrypt as error:
        raise CannotStart(
            f"MOORAGE_MASTER_KEY: does not fit this store: {error}. Start with the key that its secrets were "
            "encrypted under; several may be given, separated by commas."
        ) from error
