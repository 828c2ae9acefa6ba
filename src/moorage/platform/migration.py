"""Migrate an SQLite store, and write the first rows of a new one, in `moorage up` before the processes start.

A process that does this keeps the libraries for it in memory: 11 MB to migrate, 9 MB to encrypt. `moorage up` replaces
itself with the supervisor afterwards, so that nothing of them remains.
"""

from __future__ import annotations

import asyncio
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
    is_new = not path.exists()
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
            if is_new:
                _write_first_rows(settings)
    finally:
        lock.release()


def _write_first_rows(settings: Settings) -> None:
    """Write the sealing key of the audit log, and the demo account of a development platform.

    The control process writes them, too, if they are missing.
    """
    from moorage.core.audit import service as audit
    from moorage.core.db.sqlite import SqliteDatabase
    from moorage.platform import demo_token

    async def write() -> None:
        await db.write(audit.ensure_key)
        if not settings.is_production:
            await demo_token.ensure(db)

    db = SqliteDatabase(store_path(settings), keys.make_env(settings))
    try:
        asyncio.run(write())
    finally:
        db.close()


def upgrade(settings: Settings) -> None:
    """Migrate the store to the current revision, if it has another; the caller holds its lock."""
    path = store_path(settings)
    migrate.upgrade_sqlite(path, settings.folder("store") / "snapshots", keys.load_ring(settings))
    os.chmod(path, 0o600)
