"""Durable file operations in a server's folder: template copies and private files.

The folder belongs to the server's Unix user, which may plant symlinks in it. The platform may run as root, so it
reads and writes relative to the folder's descriptor and never follows a link.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from moorage.core.kit import folders
from moorage.runtime.database_servers.ports import ARCHIVE, CONF, DATA, RUN, TLS, ServerFailed

PRIVATE = 0o700
MAX_CONCURRENT_COPIES = 4
_PARTIAL_DATA = f"{DATA}.part"
# copy_file_range fails with these between two file systems, or where it is not supported.
_NO_COPY_FILE_RANGE = (errno.EXDEV, errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL)
FOLDER_FLAGS = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE_FLAGS = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


def fill(template: Path, folder: Path) -> None:
    """Copy a template's data into a server's folder and create the sibling folders.

    The data folder appears by a rename: an interrupted copy is deleted and repeated, and existing data is never
    replaced.
    """
    for name in (RUN, CONF, TLS, ARCHIVE):
        (folder / name).mkdir(mode=PRIVATE, exist_ok=True)
    if (folder / DATA).exists():
        return
    part = folder / _PARTIAL_DATA
    folders.remove(part)
    copy(template / DATA, part)
    part.rename(folder / DATA)
    sync(folder)


def copy(source: Path, target: Path) -> None:
    """Copy a tree with private modes and fsync every file and folder.

    The tree has a thousand small files. Copying and syncing several at a time is several times faster on a busy disk
    than one by one or than `cp`, and does not wait for the writes of other processes as syncfs does.
    """
    target.mkdir(mode=PRIVATE)
    copied_folders, files = [str(target)], []
    for entry in folders.walk(source):
        copy = f"{target}{entry.path.removeprefix(str(source))}"
        if entry.is_dir(follow_symlinks=False):
            os.mkdir(copy, PRIVATE)
            copied_folders.append(copy)
        elif entry.is_file(follow_symlinks=False):
            files.append((entry.path, copy))
        else:
            raise ServerFailed(f"cannot copy the template: {entry.path} is neither a file nor a folder")
    with ThreadPoolExecutor(MAX_CONCURRENT_COPIES) as pool:
        for _ in pool.map(_copy_file, *zip(*files, strict=True)):
            pass
        for _ in pool.map(sync, copied_folders):
            pass


def _copy_file(source: str, target: str) -> None:
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
    with opened(source) as source_fd, opened(target, flags, 0o600) as target_fd:
        left = os.fstat(source_fd).st_size
        while left > 0:
            left -= _copy_range(source_fd, target_fd, left) or left
        os.fsync(target_fd)


def _copy_range(source_fd: int, target_fd: int, size: int) -> int:
    """Copy up to `size` bytes, by sharing extents if possible; return the number."""
    try:
        return os.copy_file_range(source_fd, target_fd, size)
    except OSError as error:
        if error.errno not in _NO_COPY_FILE_RANGE:
            raise
        return os.sendfile(target_fd, source_fd, None, size)


def flush(folder: Path) -> None:
    """Fsync everything in a folder, without waiting for writes elsewhere."""
    paths = [str(folder), *(entry.path for entry in folders.walk(folder) if not entry.is_symlink())]
    with ThreadPoolExecutor(2 * MAX_CONCURRENT_COPIES) as pool:
        for _ in pool.map(sync, paths):
            pass


def put(folder: Path, name: str, text: str, *, is_kept: bool = False) -> None:
    """Replace a private file of the folder's owner atomically; `is_kept` syncs it.

    Files that are rewritten before every start need no sync.
    """
    with opened(folder, FOLDER_FLAGS) as directory:
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


def read(folder: Path, name: str, max_bytes: int) -> bytes:
    """Read a regular file of a folder; raises OSError for any other entry and for a file above `max_bytes`."""
    with opened_file(folder, name) as fd, open(fd, "rb", closefd=False) as file:
        data = file.read(max_bytes + 1)
    if len(data) > max_bytes:
        raise OSError(errno.EFBIG, os.strerror(errno.EFBIG), name)
    return data


@contextlib.contextmanager
def opened_file(folder: Path, name: str) -> Iterator[int]:
    """Open a regular file of a folder for reading; raises OSError for links, pipes and folders."""
    with opened(folder, FOLDER_FLAGS) as directory:
        fd = os.open(name, _FILE_FLAGS, dir_fd=directory)
    try:
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            raise OSError(errno.EINVAL, "not a regular file", name)
        yield fd
    finally:
        os.close(fd)


def ensure_file(folder: Path, name: str) -> None:
    if not (folder / name).exists():
        put(folder, name, "")


def drop(folder: Path, name: str) -> None:
    """Remove a file. Safe to repeat."""
    with opened(folder, FOLDER_FLAGS) as directory, contextlib.suppress(FileNotFoundError):
        os.unlink(name, dir_fd=directory)
        os.fsync(directory)


def ensure_folder(parent: Path, name: str) -> None:
    """Create a folder with the owner of its parent. Safe to repeat."""
    with opened(parent, FOLDER_FLAGS) as directory, contextlib.suppress(FileExistsError):
        os.mkdir(name, PRIVATE, dir_fd=directory)
        owner = os.fstat(directory)
        os.chown(name, owner.st_uid, owner.st_gid, dir_fd=directory, follow_symlinks=False)


@contextlib.contextmanager
def short_path(folder: Path) -> Iterator[str]:
    """Yield a path short enough for a socket's address; raises ServerFailed if absent."""
    try:
        fd = os.open(folder, os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except (FileNotFoundError, NotADirectoryError):  # NotADirectoryError: a link, too
        raise ServerFailed("the server has no run folder") from None
    try:
        yield f"/proc/self/fd/{fd}"
    finally:
        os.close(fd)


@contextlib.contextmanager
def opened(path: Path | str, flags: int = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC, mode: int = 0) -> Iterator[int]:
    fd = os.open(path, flags, mode)
    try:
        yield fd
    finally:
        os.close(fd)


def sync(path: Path | str) -> None:
    with opened(path) as fd:
        os.fsync(fd)
