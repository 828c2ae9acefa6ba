"""Writing folders as archives that depend on nothing but names, bytes and executable bits.

Equal folders have equal archives, whoever made them and when, so the digest of one names its content.
"""

from __future__ import annotations

import shutil
import stat
import zipfile
from pathlib import Path

from moorage.kit import folders

# No time of a file is kept, and no tool can write an earlier one.
MOMENT = (1980, 1, 1, 0, 0, 0)
_CHUNK = 2**20


def pack(folder: Path, target: Path) -> None:
    """Write a folder of plain files and folders as an archive; a folder stands in it only where it is empty."""
    names = {Path(entry.path).relative_to(folder).as_posix(): Path(entry.path) for entry in folders.walk(folder)}
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, path in sorted(names.items()):
            if path.is_dir():
                if not any(path.iterdir()):
                    archive.writestr(_entry(name + "/", stat.S_IFDIR | 0o755), b"")
                continue
            is_program = path.stat().st_mode & stat.S_IXUSR
            entry = _entry(name, stat.S_IFREG | (0o755 if is_program else 0o644))
            with path.open("rb") as source, archive.open(entry, "w") as out:
                shutil.copyfileobj(source, out, _CHUNK)


def _entry(name: str, mode: int) -> zipfile.ZipInfo:
    entry = zipfile.ZipInfo(name, MOMENT)
    entry.create_system = 3  # Unix, wherever this runs: it is what the mode is written for.
    entry.external_attr = mode << 16
    entry.compress_type = zipfile.ZIP_DEFLATED
    return entry
