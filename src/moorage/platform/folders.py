"""The data folder and what is in it, for those who start the platform: without the store, which is slow to load."""

from __future__ import annotations

from moorage.db.lock import FolderLock
from moorage.settings import Settings

FOLDERS = (
    "store",
    "artifacts",
    "git",
    "sites",
    "disabled",
    "releases",
    "apps",
    "app-releases",
    "builds",
    "code",
    "spool",
    "run",
    "logs",
    "databases",
    "engines",
    "volumes",
    "trash",
    "keys",
    "uploads",
)
READABLE = (
    "sites",
    "disabled",
    "releases",
    "apps",
)  # by the gateway, which may run as another user; everything else is ours alone


def make(settings: Settings) -> None:
    settings.data.mkdir(parents=True, exist_ok=True, mode=0o700)
    for name in FOLDERS:
        settings.folder(name).mkdir(exist_ok=True, mode=0o755 if name in READABLE else 0o700)


def check_not_running(settings: Settings) -> None:
    """Refuse where a platform runs on this folder, before anything of its is touched."""
    if settings.uses_postgres:
        return
    FolderLock(settings.folder("store")).release()
