"""Cache of installed dependencies, one entry per organization and install inputs.

Entries are copies that the platform makes after the install sandbox has exited; the cache folder is never mounted in a
sandbox.
"""

from __future__ import annotations

import contextlib
import os
import re
import secrets
import shutil
import time
from pathlib import Path

from moorage.core.kit import folders
from moorage.settings import Settings

MAX_BYTES = 2 * 2**30
MB = 2**20
IN_USE_S = 60  # A more recently used entry may just be being copied.
PARENT = "build-cache"
# The same parent holds the caches of builds; their names have no dot.
FOLDER = "functions.v2"
# Version 1 had no organization in its keys, and was directly in the parent folder.
_FORMER = re.compile(r"[0-9a-f]{64}|\.[0-9a-f]{16}|functions\.v[0-9]+")


class InstallCache:
    def __init__(self, settings: Settings) -> None:
        self._folder = settings.folder(PARENT) / FOLDER
        self._reserve = settings.disk_reserve_mb * MB

    def take(self, key: str, target: Path) -> bool:
        """Copy an entry to a new folder; return whether the entry exists."""
        entry = self._folder / key
        if not entry.is_dir():
            return False
        os.utime(entry)
        shutil.copytree(entry, target, symlinks=True)
        return True

    def keep(self, key: str, source: Path) -> None:
        """Copy a folder into the cache, then evict the least recently used entries."""
        self._folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        if shutil.disk_usage(self._folder).free - folders.used_bytes(source) < self._reserve:
            return
        fresh = self._folder / f".{secrets.token_hex(8)}"
        # An unreadable file only prevents caching; the deployment succeeds.
        with contextlib.suppress(OSError):
            shutil.copytree(source, fresh, symlinks=True)
            fresh.rename(self._folder / key)
        folders.remove(fresh)
        self._trim()

    def _trim(self) -> None:
        used = 0
        for entry in sorted(self._folder.iterdir(), key=_used_at, reverse=True):
            used += folders.used_bytes(entry)
            if used > MAX_BYTES and time.time() - _used_at(entry) > IN_USE_S:
                folders.remove(entry)


def remove_former(settings: Settings) -> int:
    """Remove entries of earlier formats; return how many. Idempotent."""
    parent = settings.folder(PARENT)
    names = os.listdir(parent) if parent.is_dir() else []
    former = [name for name in names if _FORMER.fullmatch(name) and name != FOLDER]
    for name in former:
        folders.remove(parent / name)
    return len(former)


def _used_at(path: Path) -> float:
    try:
        return path.stat().st_mtime
    except FileNotFoundError:  # removed by another process
        return 0.0
