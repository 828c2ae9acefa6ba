"""Snapshots of the SQLite database in `store/snapshots`, made while it is in use."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

from moorage.core.db import migrate
from moorage.settings import Settings

STORE = "moorage.db"


def store_path(settings: Settings) -> Path:
    return settings.folder("store") / STORE


def make_nightly(settings: Settings, now_ms: int) -> Path:
    """Make a snapshot named after the time, and delete all but the newest ones."""
    made = copy_store(settings, f"{datetime.fromtimestamp(now_ms / 1000, UTC):%Y%m%dT%H%M%SZ}")
    # Snapshots with a later name were made while the clock was ahead. They are deleted first.
    nightly = sorted(made.parent.glob("[0-9]*.db"), key=lambda path: (path.name <= made.name, path.name))
    for old in nightly[: -settings.snapshots_to_keep]:
        old.unlink()
    return made


def copy_store(settings: Settings, name: str) -> Path:
    """Copy the store into its snapshots folder, and check the integrity of the copy."""
    folder = settings.folder("store") / "snapshots"
    folder.mkdir(exist_ok=True, mode=0o700)
    migrate.copy_sqlite(store_path(settings), folder / f"{name}.db")
    return folder / f"{name}.db"
