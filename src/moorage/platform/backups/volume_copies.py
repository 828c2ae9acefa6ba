"""Copies of what apps keep, for a backup: an app may write all the time, and put anything into its volume.

Each file is copied once and archived from there, so the backup is whole whatever the app does meanwhile. It holds
plain files and folders; links and what else an app can make are left out, and said.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import stat
from collections.abc import Iterator
from pathlib import Path

from moorage.platform.backups.archive import Say
from moorage.settings import Settings

VOLUMES = "volumes"
COPIES = ".backup"
CHUNK = 2**20


@contextlib.contextmanager
def copied(settings: Settings, say: Say) -> Iterator[Path | None]:
    """Give a copy of all volumes that nobody writes to; None where there are none."""
    root = settings.folder(VOLUMES)
    volumes = sorted(path for path in root.iterdir() if path.name != COPIES) if root.is_dir() else []
    if not volumes:
        yield None
        return
    target = root / COPIES
    shutil.rmtree(target, ignore_errors=True)
    target.mkdir(mode=0o700)
    try:
        say("copying the volumes of apps")
        left_out = sum(_copy(volume, target / volume.name) for volume in volumes)
        if left_out:
            say(f"left out of volumes: {left_out} links, sockets or files with names that are not UTF-8")
        yield target
    finally:
        shutil.rmtree(target, ignore_errors=True)


def _copy(source: Path, target: Path) -> int:
    """Copy a file or folder with its owner and mode; return how much of it was left out."""
    try:
        handle = os.open(source, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        return 0  # It went away meanwhile.
    except OSError:
        return 1  # A link, or a socket.
    try:
        about = os.fstat(handle)
        if stat.S_ISDIR(about.st_mode):
            return _copy_folder(source, target, about)
        if not stat.S_ISREG(about.st_mode):
            return 1
        with open(handle, "rb", closefd=False) as reading, open(target, "xb") as writing:
            left = about.st_size  # It may grow as fast as we read.
            while left and (data := reading.read(min(left, CHUNK))):
                writing.write(data)
                left -= len(data)
        _give(target, about)
    finally:
        os.close(handle)
    return 0


def _copy_folder(source: Path, target: Path, about: os.stat_result) -> int:
    target.mkdir(mode=0o700)
    left_out = 0
    for name in os.listdir(source):
        if name.encode(errors="ignore") != os.fsencode(name):
            left_out += 1
        else:
            left_out += _copy(source / name, target / name)
    _give(target, about)
    return left_out


def _give(path: Path, about: os.stat_result) -> None:
    if (about.st_uid, about.st_gid) != (os.geteuid(), os.getegid()):
        os.chown(path, about.st_uid, about.st_gid)
    path.chmod(stat.S_IMODE(about.st_mode) & 0o777)
