"""Disk space of deleted files that processes still have open or mapped.

A deleted file uses disk space until its last descriptor and mapping are closed. Descriptors in flight in a unix socket
belong to no process and cannot be counted; the machine's disk reserve bounds them.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from collections.abc import Iterable, Iterator, Mapping

from moorage.runtime.sandbox import syscalls as sys_
from moorage.runtime.sandbox.cgroups import files
from moorage.runtime.sandbox.usage import process_tree

BLOCK = 512  # unit of `st_blocks`
DELETED = " (deleted)"

FileId = tuple[int, int]  # device and inode


class UnnamedFiles:
    """Measures the deleted files that one workload keeps open in its writable folders."""

    def __init__(self, folders: Mapping[str, str], *, is_boxed: bool = True) -> None:
        """`folders`: path inside -> outside. Without a sandbox, files match by device."""
        self._folders = folders
        self._is_boxed = is_boxed
        self._sees_sizes = os.geteuid() == 0  # Only root may see the size of a file that is only mapped.
        self._mounts_pid = 0  # the process from which `_mounts` was read
        self._mounts: frozenset[str] = frozenset()
        self._devices: frozenset[int] = frozenset()
        self._owners: frozenset[int] = frozenset()
        self._mapped: set[FileId] = set()
        # Without root a mapping does not show the size of its file: keep the last size seen in another way.
        self._sizes: dict[FileId, int] = {}

    def used_bytes(self, pids: Iterable[int]) -> int:
        """Return the disk space of the deleted files of these processes, each file once."""
        pids = list(pids)
        if not pids:
            return 0  # The folders may not even exist while nothing runs.
        self._find_mounts(pids)
        if self._is_boxed and not self._mounts:
            return 0  # No process has entered the sandbox yet.
        sizes: dict[FileId, int] = {}
        unsized: dict[FileId, int] = {}
        self._mapped.clear()
        for pid in pids:
            for folder in descriptor_tables(pid):
                sizes.update(self._descriptors(folder))
            self._add_mappings(pid, sizes, unsized)
        for file in unsized.keys() - sizes.keys():
            if size := max(unsized[file], self._sizes.get(file, 0)):
                sizes[file] = size
        self._sizes = {file: size for file, size in self._sizes.items() if file in self._mapped} | sizes
        return sum(sizes.values())

    def note(self, status: os.stat_result) -> None:
        """Keep the size of a named, mapped file: it may be deleted before the next call."""
        file = (status.st_dev, status.st_ino)
        if file in self._mapped:
            self._sizes[file] = status.st_blocks * BLOCK

    def _find_mounts(self, pids: list[int]) -> None:
        """Find mounts and devices of the folders, which stay the same for a sandbox."""
        if self._mounts_pid in pids if self._is_boxed else self._devices:
            return
        self._mounts = frozenset()
        outside = {inside: os.stat(folder) for inside, folder in self._folders.items()}
        self._devices = frozenset(each.st_dev for each in outside.values())
        self._owners = frozenset(each.st_uid for each in outside.values())
        for pid in pids if self._is_boxed else ():
            with contextlib.suppress(OSError):
                inner = {inside: os.stat(f"/proc/{pid}/root{inside}") for inside in outside}
                if all(os.path.samestat(inner[inside], outside[inside]) for inside in outside):
                    self._mounts, self._mounts_pid = frozenset(_mount_ids(pid, outside)), pid
                    return

    def _descriptors(self, folder: str) -> Iterator[tuple[FileId, int]]:
        """Yield the deleted files of a descriptor table, with their sizes."""
        try:
            fd_folder = os.open(f"{folder}/fd", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        except OSError:
            return  # The thread has ended.
        try:
            for name in os.listdir(fd_folder):
                with contextlib.suppress(OSError):
                    status = os.stat(name, dir_fd=fd_folder)
                    if _is_deleted(status) and self._is_in_folders(status, f"{folder}/fdinfo/{name}"):
                        yield (status.st_dev, status.st_ino), status.st_blocks * BLOCK
        finally:
            os.close(fd_folder)

    def _is_in_folders(self, status: os.stat_result, fdinfo: str) -> bool:
        """Whether a deleted file is in one of the folders, and not one of the system."""
        if not self._is_boxed:
            return status.st_dev in self._devices
        lines = (line.split() for line in files.read(fdinfo).splitlines())
        return any(words[0] == "mnt_id:" and words[1] in self._mounts for words in lines if words)

    def _add_mappings(self, pid: int, sizes: dict[FileId, int], unsized: dict[FileId, int]) -> None:
        """Add deleted mapped files to `sizes`, or mapped lengths to `unsized`.

        A mapping that cannot write to its file may be a program of the system: its length counts as 0.
        """
        for span, perms, device, inode, path in _mappings(pid, is_deleted=self._sees_sizes):
            file = (device, inode)
            if device not in self._devices:
                continue
            self._mapped.add(file)
            if not path.endswith(DELETED) or file in sizes:
                continue
            try:
                status = os.stat(f"/proc/{pid}/map_files/{span}")
            except OSError:
                start, _, end = span.partition("-")
                is_written = perms[1] == "w" and perms[3] == "s"
                unsized[file] = unsized.get(file, 0) + (int(end, 16) - int(start, 16) if is_written else 0)
            else:
                if _is_deleted(status) and status.st_uid in self._owners:
                    sizes[file] = status.st_blocks * BLOCK


def descriptor_tables(pid: int) -> list[str]:
    """Return one /proc folder for each descriptor table of a process.

    A thread created without CLONE_FILES has its own table. Without kcmp, every thread is assumed to have one.
    """
    tables: list[int] = []
    for thread in process_tree.threads(pid):
        if not any(_share_descriptors(thread, other) for other in tables):
            tables.append(thread)
    return [f"/proc/{pid}/task/{thread}" for thread in tables]


def _share_descriptors(thread: int, other: int) -> bool:
    try:
        return sys_.share_descriptors(thread, other)
    except OSError as error:
        return error.errno == errno.ESRCH  # The thread has ended and has no open files.


def _is_deleted(status: os.stat_result) -> bool:
    return stat.S_ISREG(status.st_mode) and status.st_nlink == 0


def _mount_ids(pid: int, mount_points: Iterable[str]) -> Iterator[str]:
    for line in files.read(f"/proc/{pid}/mountinfo").splitlines():
        words = line.split()
        if words[4] in mount_points:
            yield words[0]


def _mappings(pid: int, *, is_deleted: bool) -> Iterator[tuple[str, str, int, int, str]]:
    """Yield mapped files: addresses, permissions, device, inode, path."""
    text = _maps(pid)
    if is_deleted and DELETED not in text:
        return  # This runs often, and a process has hundreds of mappings.
    for line in text.splitlines():
        if is_deleted and not line.endswith(DELETED):
            continue
        words = line.split(None, 5)
        if len(words) == 6 and words[4] != "0":
            major, _, minor = words[3].partition(":")
            yield words[0], words[1], os.makedev(int(major, 16), int(minor, 16)), int(words[4]), words[5]


def _maps(pid: int) -> str:
    """Read the mappings from a running thread: the main one may have exited."""
    for thread in process_tree.threads(pid):
        with contextlib.suppress(OSError):
            if text := files.read(f"/proc/{pid}/task/{thread}/maps"):
                return text
    return ""
