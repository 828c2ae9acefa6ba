"""Folders of one database: `s1`, `s2` … of its servers, folders in which a restore works, and their markers.

The platform uses them on its own machine, and the agent of a database on its volume.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any

from moorage.core.kit import folders
from moorage.core.kit.records import dataclass
from moorage.runtime.database_servers import copying
from moorage.runtime.database_servers.ports import DATA, IDENTITY_FILE, ServerFailed, ServerKind, Software

SUPERSEDED = "superseded.json"  # marks a folder that no server uses any more
RESTORED = "restore.json"  # marks a restored folder with the job that made it
WORK = "backups-tmp"  # temporary files of jobs, next to the folders of servers
MAX_MARKER_BYTES = 4096
_SERVER_FOLDER = re.compile(r"s[0-9]{1,9}")


@dataclass(frozen=True, slots=True)
class Restored:
    """A restored and checked folder, and the folder that it replaces."""

    folder: str
    replaces: str

    @property
    def is_valid(self) -> bool:
        """Tell whether both are names of server folders; a marker and an agent are untrusted."""
        names = (self.folder, self.replaces)
        return self.folder != self.replaces and all(_SERVER_FOLDER.fullmatch(each) is not None for each in names)


def checked_name(name: str) -> str:
    """Return the name of an entry of a folder; raises ServerFailed for a path."""
    if not name or "/" in name or "\0" in name or name in (".", ".."):
        raise ServerFailed(f"{name!r} is no name of a folder")
    return name


def make(
    kind: ServerKind,
    software: Software,
    target: Path,
    database_id: int,
    *,
    own: Callable[[Path], None] = lambda _: None,  # changes the owner of the files
    take_spare: Callable[[Software, Path], object] = lambda *_: None,
) -> None:
    """Create a server's folder from the template, replacing a previous one. Blocks."""
    temporary = target.with_name(f".{target.name}.new")
    folders.remove(temporary)
    temporary.mkdir(mode=0o700)
    take_spare(software, temporary / DATA)
    kind.fill(software, temporary)
    seal(temporary, database_id)
    own(temporary)
    folders.remove(target)
    temporary.rename(target)


def seal(folder: Path, database_id: int) -> None:
    """Write the identity file, which marks a folder as complete."""
    (folder / IDENTITY_FILE).write_text(json.dumps({"database": database_id}))


def is_complete(kind: ServerKind, folder: Path, database_id: int) -> bool:
    """Tell whether a folder has all files of a server of this database."""
    identity = read_marker(folder, IDENTITY_FILE) or {}
    return identity.get("database") == database_id and kind.is_filled(folder)


def mark_superseded(folder: Path, now: int) -> None:
    """Write the marker with the time since when no server uses the folder."""
    if folder.is_dir() and read_marker(folder, SUPERSEDED) is None:
        copying.put(folder, SUPERSEDED, json.dumps({"at": now}), is_kept=True)


def read_marker(folder: Path, name: str) -> dict[str, Any] | None:
    """Return a marker file; untrusted, because the server's user can change it."""
    try:
        marker = json.loads(copying.read(folder, name, MAX_MARKER_BYTES))
    except (OSError, ValueError, RecursionError):
        return None
    return marker if isinstance(marker, dict) else None


def find_restored(root: Path, job_id: int) -> Restored | None:
    """Return the complete folder that a restore has made; skips markers with other names than of server folders."""
    for path in root.glob(f"s*/{RESTORED}"):
        marker = read_marker(path.parent, RESTORED) or {}
        restored = Restored(path.parent.name, str(marker.get("replaces")))
        if marker.get("job") == job_id and restored.is_valid and (root / restored.replaces).is_dir():
            return restored
    return None


def finish_restored(root: Path, building: str, job_id: int, replaces: str) -> Restored:
    """Write the marker of a complete folder, and rename it to its final name."""
    copying.put(
        root / checked_name(building), RESTORED, json.dumps({"job": job_id, "replaces": replaces}), is_kept=True
    )
    restored = Restored(next_folder(root), replaces)
    (root / building).rename(root / restored.folder)
    return restored


def next_folder(root: Path) -> str:
    """Return a name that no existing folder of a database has."""
    numbers = [int(path.name[1:]) for path in root.glob("s*") if path.name[1:].isdecimal()] if root.is_dir() else []
    return f"s{max(numbers, default=0) + 1}"


def sweep(root: Path, used: Collection[str], superseded: int, abandoned: int) -> None:
    """Delete replaced folders and leftovers of dead jobs that are older than these times."""
    for folder in superseded_before(root, superseded):
        if folder.name not in used:
            folders.remove(folder)
    for leftover in leftovers(root, abandoned):
        folders.remove(leftover)


def superseded_before(root: Path, before: int) -> list[Path]:
    """Return the folders of a database that no server uses since `before`."""
    superseded = []
    for marker in root.glob(f"s*/{SUPERSEDED}"):
        at = (read_marker(marker.parent, SUPERSEDED) or {}).get("at")
        if isinstance(at, int) and at <= before:
            superseded.append(marker.parent)
    return superseded


def leftovers(root: Path, before: int) -> list[Path]:
    """Return temporary files and folders of dead jobs."""
    patterns = (f"{WORK}/*", "restore-*", "drill-*", ".restore-*.new", ".drill-*.new")
    return [path for each in patterns for path in root.glob(each) if path.lstat().st_mtime * 1000 < before]
