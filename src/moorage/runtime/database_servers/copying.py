"""Files of a server: copied from a template so that they survive a crash, and written for its owner alone.

The folder of a server belongs to the server's own user, who could have put links into it. The platform may be root, so
it writes into such a folder only by the folder's descriptor, and never through a link.
"""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from moorage.core.kit import folders
from moorage.runtime.database_servers.ports import ARCHIVE, CONF, DATA, RUN, TLS, ServerFailed

PRIVATE = 0o700
AT_A_TIME = 4  # files that are being copied
_PART = f"{DATA}.part"
_OTHER_WAY = (errno.EXDEV, errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL)  # The two are on different file systems.
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


def fill(template: Path, folder: Path) -> None:
    """Give a server's folder the template's data, durably, and make the folders beside it.

    Data appears whole or not at all: what a copy that was cut short has left is thrown away, and data that is there is
    never replaced.
    """
    for name in (RUN, CONF, TLS, ARCHIVE):
        (folder / name).mkdir(mode=PRIVATE, exist_ok=True)
    if (folder / DATA).exists():
        return
    part = folder / _PART
    folders.remove(part)
    _copy(template / DATA, part)
    part.rename(folder / DATA)
    _sync(folder)


def _copy(source: Path, target: Path) -> None:
    """Copy a tree of folders and files for its owner alone; return when all of it is on the disk.

    Of a thousand small files several are written, and waited for, at a time: on a busy disk that is several times as
    quick as one after another, and as `cp`, and nothing that others write has to be waited for.
    """
    target.mkdir(mode=PRIVATE)
    made, files = [str(target)], []
    for entry in folders.walk(source):
        copy = f"{target}{entry.path.removeprefix(str(source))}"
        if entry.is_dir(follow_symlinks=False):
            os.mkdir(copy, PRIVATE)
            made.append(copy)
        elif entry.is_file(follow_symlinks=False):
            files.append((entry.path, copy))
        else:
            raise ServerFailed(f"the files of a new server cannot be copied: {entry.path} is no file")
    with ThreadPoolExecutor(AT_A_TIME) as pool:
        for _ in pool.map(_copy_file, *zip(*files, strict=True)):
            pass
        for _ in pool.map(_sync, made):
            pass


def _copy_file(source: str, target: str) -> None:
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
    with _opened(source) as given, _opened(target, flags, 0o600) as made:
        left = os.fstat(given).st_size
        while left > 0:
            left -= _copy_piece(given, made, left) or left
        os.fsync(made)


def _copy_piece(given: int, made: int, size: int) -> int:
    """Copy what comes next; return how much it was. Where the file system can, the two share what they have."""
    try:
        return os.copy_file_range(given, made, size)
    except OSError as error:
        if error.errno not in _OTHER_WAY:
            raise
        return os.sendfile(made, given, None, size)


def flush(folder: Path) -> None:
    """Return when everything in a folder is on the disk, whatever else is being written there by others."""
    paths = [str(folder), *(entry.path for entry in folders.walk(folder) if not entry.is_symlink())]
    with ThreadPoolExecutor(2 * AT_A_TIME) as pool:
        for _ in pool.map(_sync, paths):
            pass


def put(folder: Path, name: str, text: str, *, is_kept: bool = False) -> None:
    """Write a file for the folder's owner alone, in the place of what was there; with `is_kept` it is on the disk.

    What is written anew before every start needs not be.
    """
    with _opened(folder, _FOLDER) as directory:
        owner, part = os.fstat(directory), f".{name}.part"
        with contextlib.suppress(FileNotFoundError):
            os.unlink(part, dir_fd=directory)
        fd = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600, dir_fd=directory)
        with open(fd, "w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fchown(fd, owner.st_uid, owner.st_gid)
            if is_kept:
                os.fsync(fd)
        os.rename(part, name, src_dir_fd=directory, dst_dir_fd=directory)
        if is_kept:
            os.fsync(directory)


def ensure_file(folder: Path, name: str) -> None:
    """Write an empty file where there is none."""
    if not (folder / name).exists():
        put(folder, name, "")


def drop(folder: Path, name: str) -> None:
    """Remove a file. Safe to repeat."""
    with _opened(folder, _FOLDER) as directory, contextlib.suppress(FileNotFoundError):
        os.unlink(name, dir_fd=directory)
        os.fsync(directory)


def ensure_folder(parent: Path, name: str) -> None:
    """Make a folder that belongs to whom its parent does. Safe to repeat."""
    with _opened(parent, _FOLDER) as directory, contextlib.suppress(FileExistsError):
        os.mkdir(name, PRIVATE, dir_fd=directory)
        owner = os.fstat(directory)
        os.chown(name, owner.st_uid, owner.st_gid, dir_fd=directory, follow_symlinks=False)


@contextlib.contextmanager
def short_path(folder: Path) -> Iterator[str]:
    """Give a name for a folder that is short enough for the address of a socket in it, however long its path is."""
    with _opened(folder, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC) as fd:
        yield f"/proc/self/fd/{fd}"


@contextlib.contextmanager
def _opened(path: Path | str, flags: int = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC, mode: int = 0) -> Iterator[int]:
    fd = os.open(path, flags, mode)
    try:
        yield fd
    finally:
        os.close(fd)


def _sync(path: Path | str) -> None:
    with _opened(path) as fd:
        os.fsync(fd)
