"""Migrate an SQLite store, in `moorage up` before the processes start.

A process that migrates keeps the libraries for it in memory, 11 MB. `moorage up` replaces itself with the supervisor
afterwards, so that nothing of them remains.
"""

from __future__ import annotations

import os
import sqlite3

from moorage.core.db import migrate
from moorage.core.db.lock import FolderLock
from moorage.core.db.migrations import HEAD
from moorage.core.db.snapshots import store_path
from moorage.platform import keys, store_checks
from moorage.settings import Settings


def migrate_ahead(settings: Settings) -> None:
    """Migrate a store that needs it. The control process reports one that is damaged."""
    path = store_path(settings)
    try:
        if migrate.sqlite_revision(path) == HEAD:
            return
        store_checks.check_sqlite(path)
    except (migrate.ForeignStore, store_checks.DamagedStore, sqlite3.Error, OSError):
        return
    lock = FolderLock(settings.folder("store"))
    try:
        with store_checks.explained(settings):
            upgrade(settings)
    finally:
        lock.release()


def upgrade(settings: Settings) -> None:
    """Migrate the store to the current revision, if it has another; the caller holds its lock."""
    path = store_path(settings)
    migrate.upgrade_sqlite(path, settings.folder("store") / "snapshots", keys.load_ring(settings))
    os.chmod(path, 0o600)
