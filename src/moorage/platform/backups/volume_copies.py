"""Copy the volumes of apps for a backup, while the apps write.

Each file is copied once and archived from the copy, so the backup is consistent with itself. It contains regular files
and folders; links and special files are left out and reported.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import stat
from collections.abc import Iterator
from pathlib import Path

from moorage.platform.backups.archive import Report
from moorage.settings import Settings

VOLUMES = "volumes"
COPIES = ".backup"
CHUNK = 2**20


@contextlib.contextmanager
def copied(settings: Settings, report: Report) -> Iterator[Path | None]:
    """Provide a copy of all volumes; None without volumes."""
    root = settings.folder(VOLUMES)
    volumes = sorted(path for path in root.iterdir() if path.name != COPIES) if root.is_dir() else []
    if not volumes:
        yield None
        return
    target = root / COPIES
    shutil.rmtree(target, ignore_errors=True)
    target.mkdir(mode=0o700)
    try:
        report("copying the volumes of apps")
        left_out = sum(_copy(volume, target / volume.name) for volume in volumes)
        if left_out:
            report(f"left out of volumes: {left_out} links, sockets or files with names that are not UTF-8")
        yield target
    finally:
        shutil.rmtree(target, ignore_errors=True)


def _copy(source: Path, target: Path) -> int:
    """Copy a file or folder with owner and mode; return the number of skipped files."""
    try:
        handle = os.open(source, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        return 0  # It was deleted meanwhile.
    except OSError:
        return 1  # a link or a socket
    try:
        status = os.fstat(handle)
        if stat.S_ISDIR(status.st_mode):
            return _copy_folder(source, target, status)
        if not stat.S_ISREG(status.st_mode):
            return 1
        with open(handle, "rb", closefd=False) as reading, open(target, "xb") as writing:
            left = status.st_size  # A fixed size: the file may grow as fast as it is read.
            while left and (data := reading.read(min(left, CHUNK))):
                writing.write(data)
                left -= len(data)
        _give(target, status)
    finally:
        os.close(handle)
    return 0


def _copy_folder(source: Path, target: Path, status: os.stat_result) -> int:
    target.mkdir(mode=0o700)
    left_out = 0
    for name in os.listdir(source):
        if name.encode(errors="ignore") != os.fsencode(name):
            left_out += 1
        else:
            left_out += _copy(source / name, target / name)
    _give(target, status)
    return left_out


def _give(path: Path, about: os.stat_result) -> None:
    if (about.st_uid, about.st_gid) != (os.geteuid(), os.getegid()):
        os.chown(path, about.st_uid, about.st_gid)
    path.chmod(stat.S_IMODE(about.st_mode) & 0o777)
