"""The files of a function's version, as its author wrote them, for an editor."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from moorage.core.kit.records import dataclass

# Folders of dependencies, which an editor does not show.
SKIPPED_FOLDERS = frozenset(("node_modules", "packages", "virtualenv", ".venv", "__pycache__"))
MAX_FILES = 200
MAX_TEXT_BYTES = 256 * 1024  # of one file
MAX_TOTAL_BYTES = 2 * 2**20


@dataclass(frozen=True, slots=True)
class SourceFile:
    path: str  # with slashes, relative to the root of the archive
    size_bytes: int
    text: str | None  # None for a binary or large file


@dataclass(frozen=True, slots=True)
class Sources:
    files: list[SourceFile]
    is_cut: bool  # there are more files than shown


def read(folder: Path) -> Sources:
    """Read the files of unpacked code, by path, up to the limits. Blocks."""
    files: list[SourceFile] = []
    left = MAX_TOTAL_BYTES
    for path in _files(folder):
        if len(files) == MAX_FILES:
            return Sources(files, is_cut=True)
        size = path.lstat().st_size
        text = _text(path, size) if size <= min(left, MAX_TEXT_BYTES) else None
        left -= size if text is not None else 0
        files.append(SourceFile(path.relative_to(folder).as_posix(), size, text))
    return Sources(files, is_cut=False)


def _files(folder: Path) -> Iterator[Path]:
    """Yield regular files, those of upper folders first; links are not followed."""
    for above, folders, names in os.walk(folder):
        folders[:] = sorted(name for name in folders if name not in SKIPPED_FOLDERS)
        for name in sorted(names):
            path = Path(above, name)
            if path.is_file() and not path.is_symlink():
                yield path


def _text(path: Path, size: int) -> str | None:
    with path.open("rb") as file:
        data = file.read(size)
    try:
        text = data.decode()
    except UnicodeDecodeError:
        return None
    return None if "\x00" in text else text
