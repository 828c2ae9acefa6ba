"""Reproducible ZIP archives: they depend only on names, bytes and executable bits.

Equal folders give equal archives, so the digest of an archive identifies its content.
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

MODIFIED_AT = (1980, 1, 1, 0, 0, 0)  # the earliest time that the ZIP format can store
COMPRESSION_LEVEL = 1  # Dependencies of an app can be 300 MB; higher levels take 3 times as long to save 10 %.
_MMAP_BYTES = 8 * 2**20


def pack(folder: Path, target: Path) -> int:
    """Write a folder as an archive; only empty folders get an entry. Returns the number of files."""
    files = 0
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
                archive.writestr(_entry(name, mode), content, zipfile.ZIP_DEFLATED, COMPRESSION_LEVEL)
            files += 1
    return files


@contextlib.contextmanager
def _content(path: str) -> Iterator[bytes | mmap.mmap]:
    """Yield the content of a file; a large file is mapped instead of read into memory."""
    with open(path, "rb") as file:
        if os.fstat(file.fileno()).st_size <= _MMAP_BYTES:
            yield file.read()
        else:
            with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as mapped:
                yield mapped


def _entry(name: str, mode: int) -> zipfile.ZipInfo:
    entry = zipfile.ZipInfo(name, MODIFIED_AT)
    entry.create_system = 3  # Unix on every platform, because the mode is a Unix mode.
    entry.external_attr = mode << 16
    entry.compress_type = zipfile.ZIP_DEFLATED
    return entry
