"""Copy the volumes of apps for a backup, while the apps write.

Each file is copied once and archived from the copy, so the backup is consistent with itself. It contains regular files
and folders; links and special files are left out and reported.

Apps may rename files and folders while these are copied. So each entry is opened relative to the descriptor of its
folder and without following links: no path leads out of a volume.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from collections.abc import Iterator
from pathlib import Path

from moorage.core.kit.folders import MAX_DEPTH
from moorage.core.kit.processes import deletions
from moorage.core.kit.records import dataclass
from moorage.platform.backups.archive import Report
from moorage.settings import Settings

VOLUMES = "volumes"
COPIES = ".backup"
CHUNK = 2**20
MAX_PATH_BYTES = 3000  # below the folder of volumes; Linux refuses 4,096 with the data folder in front
_READ_FLAGS = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


@contextlib.contextmanager
def copied(settings: Settings, report: Report) -> Iterator[Path | None]:
    """Provide a copy of all volumes; None without volumes."""
    root = settings.folder(VOLUMES)
    volumes = sorted(path.name for path in root.iterdir() if path.name != COPIES) if root.is_dir() else []
    if not volumes:
        yield None
        return
    target = root / COPIES
    deletions.delete(target)
    target.mkdir(mode=0o700)
    try:
        report("copying the volumes of apps")
        copier = _Copier(str(target))
        copier.copy(root, volumes)
        if copier.left_out:
            report(f"left out of volumes: {copier.left_out} links, sockets or files with names that are not UTF-8")
        if copier.too_deep:
            report(
                f"left out of volumes: {copier.too_deep} files and folders that are nested more than {MAX_DEPTH} levels"
                f" deep, or have paths of more than {MAX_PATH_BYTES:,} bytes"
            )
        yield target
    finally:
        deletions.delete(target)


@dataclass
class _Folder:
    """A folder in progress."""

    handle: int
    path: str  # below the folder of volumes
    status: os.stat_result
    names: list[str]  # of entries that are not copied yet


class _Copier:
    """Copies volumes with owners and modes."""

    def __init__(self, target: str) -> None:
        self._target = target
        self._open: list[_Folder] = []  # each is in the one before
        self.left_out = 0
        self.too_deep = 0

    def copy(self, root: Path, names: list[str]) -> None:
        """Copy entries of a folder, and all below them."""
        handle = os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            for name in names:
                self._copy_entry(handle, name, name)
                self._copy_open_folders()
        finally:
            for folder in self._open:
                os.close(folder.handle)
            os.close(handle)

    def _copy_open_folders(self) -> None:
        while self._open:
            folder = self._open[-1]
            if folder.names:
                name = folder.names.pop()
                self._copy_entry(folder.handle, name, f"{folder.path}/{name}")
            else:
                self._give(folder.path, folder.status)
                os.close(self._open.pop().handle)

    def _copy_entry(self, above: int, name: str, path: str) -> None:
        """Copy a file, or create a folder whose entries are copied later."""
        if name.encode(errors="ignore") != os.fsencode(name):
            self.left_out += 1
            return
        if len(os.fsencode(path)) > MAX_PATH_BYTES:
            self.too_deep += 1
            return
        try:
            handle = os.open(name, _READ_FLAGS, dir_fd=above)
        except FileNotFoundError:
            return  # It was deleted meanwhile.
        except OSError as error:
            if error.errno in (errno.EMFILE, errno.ENFILE):
                raise
            self.left_out += 1  # a link or a socket
            return
        status = os.fstat(handle)
        if stat.S_ISDIR(status.st_mode) and len(self._open) <= MAX_DEPTH:
            folder = _Folder(handle, path, status, [])
            self._open.append(folder)
            os.mkdir(f"{self._target}/{path}", 0o700)
            folder.names = [*{*os.listdir(handle)}]  # A listing can have a file twice if it is renamed meanwhile.
            return
        try:
            self._copy_other(handle, status, path)
        finally:
            os.close(handle)

    def _copy_other(self, handle: int, status: os.stat_result, path: str) -> None:
        if stat.S_ISDIR(status.st_mode):
            self.too_deep += 1
        elif not stat.S_ISREG(status.st_mode):
            self.left_out += 1
        else:
            with open(handle, "rb", closefd=False) as reading, open(f"{self._target}/{path}", "xb") as writing:
                left = status.st_size  # A fixed size: the file may grow as fast as it is read.
                while left and (data := reading.read(min(left, CHUNK))):
                    writing.write(data)
                    left -= len(data)
            self._give(path, status)

    def _give(self, path: str, about: os.stat_result) -> None:
        target = f"{self._target}/{path}"
        if (about.st_uid, about.st_gid) != (os.geteuid(), os.getegid()):
            os.chown(target, about.st_uid, about.st_gid)
        os.chmod(target, stat.S_IMODE(about.st_mode) & 0o777)
