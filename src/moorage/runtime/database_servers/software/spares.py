"""Spare data folders: copies of templates, made before a server needs one.

Copying and syncing the thousand files of a template takes most of the time of a creation. A new server takes the spare
by a rename, and another one is made afterwards.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import threading
import time
from collections import defaultdict
from collections.abc import Container
from pathlib import Path

from moorage.core import disk
from moorage.core.kit import folders
from moorage.errors import DiskFull
from moorage.runtime.database_servers import copying
from moorage.runtime.database_servers.ports import DATA, Software
from moorage.runtime.database_servers.software import templates

NICENESS = 10  # A spare is made while servers of users work.
RETRY_S = 60.0  # after a failure
SPARE_BYTES = 256 * disk.MB  # room that is needed at least; the largest template has 160 MB


class Spares:
    """At most one spare per software. The methods block, and may be called by several threads."""

    def __init__(self, root: Path, reserve_mb: int) -> None:
        self._root = root
        self._reserve_mb = reserve_mb
        self._locks: defaultdict[str, threading.Lock] = defaultdict(threading.Lock)
        self._retry_at: dict[str, float] = {}

    def take(self, software: Software, target: Path) -> bool:
        """Move the spare to a path that does not exist yet; False if there is none. Waits for one in the making."""
        with self._locks[software.name]:
            try:
                self._path(software).rename(target)
            except OSError:  # None exists, or the folders are on different file systems.
                return False
        copying.sync(target.parent)
        return True

    def is_missing(self, software: Software) -> bool:
        return time.monotonic() >= self._retry_at.get(software.name, 0.0) and not self._path(software).exists()

    def make(self, software: Software) -> None:
        """Make a spare with low priority. The calling thread keeps that priority."""
        with contextlib.suppress(OSError):
            os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), NICENESS)
        with self._locks[software.name]:
            path = self._path(software)
            if path.exists():
                return
            part = path.with_name(f".{path.name}.part")
            try:
                disk.check_room(self._root, SPARE_BYTES, self._reserve_mb)
                self._root.mkdir(mode=copying.PRIVATE, parents=True, exist_ok=True)
                folders.remove(part)
                for older in self._root.glob(f"{software.name}@*"):  # of a template that was made anew
                    folders.remove(older)
                copying.copy(Path(software.template) / DATA, part)
                part.rename(path)
                copying.sync(self._root)
            except (OSError, DiskFull):
                self._retry_at[software.name] = time.monotonic() + RETRY_S

    def keep_only(self, names: Container[str]) -> None:
        """Remove the spares of other software, and unfinished ones."""
        for path in self._root.iterdir() if self._root.is_dir() else ():
            if path.name.startswith(".") or path.name.rpartition("@")[0] not in names:
                folders.remove(path)

    def _path(self, software: Software) -> Path:
        """Return the path of a spare; a template that was made anew has another password, and so another path."""
        digest = hashlib.sha256(templates.password_of(software.template).encode()).hexdigest()[:16]
        return self._root / f"{software.name}@{digest}"
