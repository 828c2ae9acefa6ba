"""Finds saved files of a folder by their times and sizes, without a service of the kernel."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass, field
from pathlib import Path

INTERVAL_S = 0.06
MAX_CPU_SHARE = 0.03  # of the scans: a large folder is scanned less often
MAX_DEPTH = 12
IGNORED = frozenset((".git", ".hg", "__pycache__", ".mypy_cache", ".pytest_cache", ".ruff_cache", ".idea", ".vscode"))
# Only the time of the folder itself counts: an installer that adds or removes a package changes it.
UNREAD = frozenset(("node_modules", ".venv", "venv", "virtualenv", "packages", ".moorage"))
# Temporary and backup files of editors.
_ENDINGS = ("~", ".swp", ".swx", ".swo", ".tmp", ".pyc")

Stamps = dict[str, tuple[int, int, int]]


@dataclass(slots=True)
class FolderWatch:
    """Compares a folder with its state at the last call."""

    folder: Path
    interval_s: float = INTERVAL_S
    _stamps: Stamps = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._stamps = self._scan()

    def changes(self) -> list[str]:
        """Return the names of files that were added, saved or removed since the last call."""
        before, after = self._stamps, self._scan()
        if before == after:
            return []
        self._stamps = after
        names = before.keys() | after.keys()
        return sorted(name for name in names if before.get(name) != after.get(name))

    def saved_at(self, names: list[str]) -> float:
        """Return the time of the latest save among files, as seconds since the epoch."""
        times = [self._stamps[name][0] / 1e9 for name in names if name in self._stamps]
        return max(times, default=time.time())

    def _scan(self) -> Stamps:
        began = time.thread_time()
        stamps: Stamps = {}
        _add(str(self.folder), "", stamps, 0)
        self.interval_s = max(INTERVAL_S, (time.thread_time() - began) / MAX_CPU_SHARE)
        return stamps


def _add(path: str, prefix: str, stamps: Stamps, depth: int) -> None:
    try:
        entries = list(os.scandir(path))
    except OSError:
        return  # It was removed during the scan.
    for entry in entries:
        name = entry.name
        if name in IGNORED or name.endswith(_ENDINGS) or name.startswith(".#"):
            continue
        try:
            is_folder = entry.is_dir(follow_symlinks=False)
            about = entry.stat() if not is_folder or name in UNREAD else None
        except OSError:
            continue
        if about is not None:
            stamps[prefix + name] = (about.st_mtime_ns, 0 if is_folder else about.st_size, about.st_ino)
        elif depth < MAX_DEPTH:
            _add(entry.path, f"{prefix}{name}/", stamps, depth + 1)
