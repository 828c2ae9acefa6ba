"""Replace the content of a data folder by a backup.

The archive is checked completely before any change, unpacked beside the current data, and swapped in by renames, so a
failed restore changes nothing. The previous content is moved to the trash, never deleted.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import sqlite3
from datetime import UTC, datetime
from pathlib import Path

from moorage.core.db.snapshots import store_path
from moorage.platform.backups import database_copies
from moorage.platform.backups.archive import (
    FOLDERS,
    MARKER,
    STORE_FILE,
    CannotRestore,
    Manifest,
    Report,
    Unpacker,
    chown,
    is_filled,
    owner_of,
    scan,
    sync_folder,
)
from moorage.platform.backups.backup import locked
from moorage.settings import Settings


def restore(
    settings: Settings, source: Path, *, force: bool, running: bool, report: Report
) -> tuple[Manifest, Path | None]:
    """Restore a backup; return its manifest and the trash folder of the old content.

    Raises CannotRestore, DataFolderInUse or OSError; the data folder is unchanged then.
    """
    _check_can_restore(settings, source, force=force, running=running)
    report(f"checking {source}")
    manifest = scan(source, report=report)
    _check_fits(settings, source, manifest)
    settings.data.mkdir(parents=True, exist_ok=True, mode=0o700)
    with locked(settings.folder("store")):
        _check_can_restore(settings, source, force=force, running=running)
        staged = settings.data / "restore.partial"
        shutil.rmtree(staged, ignore_errors=True)
        staged.mkdir(mode=0o700)
        try:
            return manifest, _replace(settings, source, staged, report)
        finally:
            shutil.rmtree(staged, ignore_errors=True)


def _check_can_restore(settings: Settings, source: Path, *, force: bool, running: bool) -> None:
    if running:
        raise CannotRestore(f"a Moorage runs on {settings.data}: stop it first")
    if database_copies.running(settings)[0]:
        raise CannotRestore(
            f"database servers run on {settings.data}, and they keep running when the platform stops: stop them with "
            f"pkill -TERM -f -- '-m moorage[.a-z]*shim {settings.folder('run')}/{database_copies.DATABASES}/'"
        )
    if not source.is_file():
        raise CannotRestore(f"there is no backup {source}")
    if holds_data(settings) and not force:
        raise CannotRestore(
            f"{settings.data} holds data already: choose another --data, or use --force, which moves that data to "
            f"{settings.folder('trash')}"
        )


def _check_fits(settings: Settings, source: Path, manifest: Manifest) -> None:
    if manifest.has_store == settings.uses_postgres:
        raise CannotRestore(
            f"{source} holds the store as a file, but MOORAGE_DATABASE_URL names another one: restore without it"
            if manifest.has_store
            else f"{source} was made with --files-only: set MOORAGE_DATABASE_URL to the PostgreSQL it belongs to"
        )
    existing = next(folder for folder in (settings.data, *settings.data.parents) if folder.exists())
    free = shutil.disk_usage(existing).free
    if free < manifest.size:
        needed = (manifest.size - free) // 2**20 + 1
        raise CannotRestore(f"{source} unpacks to more than is free under {existing}: free another {needed} MB")


def holds_data(settings: Settings) -> bool:
    path = store_path(settings)
    has_store = path.exists() and path.stat().st_size > 0
    return (
        has_store
        or (settings.data / MARKER).exists()
        or any(is_filled(settings.folder(name)) for name in ("artifacts", "databases", "volumes", "keys"))
    )


def _replace(settings: Settings, source: Path, staged: Path, report: Report) -> Path | None:
    """Unpack beside the current data, check the store, and swap."""
    owner = owner_of(settings.data)
    manifest = scan(source, report=report, unpacker=Unpacker(staged, owner))
    with contextlib.ExitStack() as stack:
        if manifest.has_store:
            _check_store(staged / STORE_FILE)
            stack.enter_context(locked(staged / "store"))  # The lock moves along: no platform starts half-way.
        os.sync()
        had_data = holds_data(settings)
        trash = settings.folder("trash") / f"{datetime.now(UTC):%Y%m%dT%H%M%S.%fZ}"
        for folder in (trash.parent, trash):
            folder.mkdir(exist_ok=True, mode=0o700)
            chown(folder, owner)
        try:
            _swap(settings.data, staged, trash)
        except OSError:
            trash.rmdir()
            raise
    if had_data:
        return trash
    shutil.rmtree(trash)  # Only empty folders.
    return None


def _swap(data: Path, staged: Path, trash: Path) -> None:
    """Rename everything, or nothing.

    The old store is moved first and the new one last, and the marker exists all the time: after a power failure in
    between, a starting platform finds a marker without a store and refuses.
    """
    moves = [(staged / MARKER, data / MARKER)] if not (data / MARKER).exists() else []
    if not (staged / MARKER).exists():
        moves = [(data / MARKER, trash / MARKER)]
    moves.append((data / "store", trash / "store"))
    for name in FOLDERS[1:]:
        moves += [(data / name, trash / name), (staged / name, data / name)]
    moves.append((staged / "store", data / "store"))
    with contextlib.ExitStack() as undo:
        for old, new in moves:
            if old.exists():
                old.rename(new)
                undo.callback(new.rename, old)
        undo.pop_all()
    for folder in (trash, data):
        sync_folder(folder)


def _check_store(path: Path) -> None:
    connection = sqlite3.connect(f"file:{path}?immutable=1", uri=True)
    try:
        problem = connection.execute("PRAGMA integrity_check").fetchone()[0]
    except sqlite3.DatabaseError as error:
        problem = str(error)
    finally:
        connection.close()
    if problem != "ok":
        raise CannotRestore(f"the store in the backup is damaged ({problem}). Use another one; nothing was changed.")
