"""Archive of a checked-out repository, on its way to the pod of its build."""

from __future__ import annotations

import os
import tarfile
from pathlib import Path


def pack(folder: Path, target: Path) -> int:
    """Write a folder with its links as an archive; return its size."""
    with tarfile.open(target, "w", format=tarfile.PAX_FORMAT, dereference=False) as archive:
        for name in sorted(os.listdir(folder)):
            archive.add(folder / name, name, filter=_without_owner)
    return target.stat().st_size


def _without_owner(entry: tarfile.TarInfo) -> tarfile.TarInfo:
    entry.uid = entry.gid = 0
    entry.uname = entry.gname = ""
    return entry


def unpack(archive: Path, target: Path) -> None:
    """Write the files of an archive; links may lead anywhere, as in the repository."""
    with tarfile.open(archive, "r") as packed:
        for entry in packed.getmembers():
            if entry.name.startswith("/") or ".." in Path(entry.name).parts:
                raise tarfile.TarError(f"{entry.name!r} is outside of the repository")
        packed.extractall(target)  # noqa: S202 - the names were checked
