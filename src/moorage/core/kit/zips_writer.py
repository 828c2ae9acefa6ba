"""Writing folders as archives that depend on nothing but names, bytes and executable bits.

Equal folders have equal archives, whoever made them and when, so the digest of one names its content.
"""

from __future__ import annotations

import contextlib
import mmap
import os
import stat
import zipfile
from collections.abc import Iterator
from pathlib import Path

from moorage.core.kit import folders

# No time of a file is kept, and no tool can write an earlier one.
MOMENT = (1980, 1, 1, 0, 0, 0)
LEVEL = 1  # The dependencies of an app can be 300 MB: more takes three times as long, for a tenth of the size.
_LARGE = 8 * 2**20


def pack(folder: Path, target: Path) -> None:
    """Write a folder of plain files and folders as an archive; a folder stands in it only where it is empty."""
    start = len(os.fspath(folder)) + 1
    entries = {entry.path[start:]: entry for entry in folders.walk(folder)}
    with zipfile.ZipFile(target, "w") as archive:
        for name, entry in sorted(entries.items()):
            if entry.is_dir(follow_symlinks=False):
                if not os.listdir(entry.path):
                    archive.writestr(_entry(name + "/", stat.S_IFDIR | 0o755), b"")
                continue
            is_program = entry.stat(follow_symlinks=False).st_mode & stat.S_IXUSR
            mode = stat.S_IFREG | (0o755 if is_program else 0o644)
            with _content(entry.path) as content:
                archive.writestr(_entry(name, mode), content, zipfile.ZIP_DEFLATED, LEVEL)


@contextlib.contextmanager
def _content(path: str) -> Iterator[bytes | mmap.mmap]:
    """Give what is in a file; a large one is not brought into memory as a whole."""
    with open(path, "rb") as file:
        if os.fstat(file.fileno()).st_size <= _LARGE:
            yield file.read()
        else:
            with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as mapped:
                yield mapped


def _entry(name: str, mode: int) -> zipfile.ZipInfo:
    entry = zipfile.ZipInfo(name, MOMENT)
    entry.create_system = 3  # Unix, wherever this runs: it is what the mode is written for.
    entry.external_attr = mode << 16
    entry.compress_type = zipfile.ZIP_DEFLATED
    return entry
