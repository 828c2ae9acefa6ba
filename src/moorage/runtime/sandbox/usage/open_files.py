"""Files that processes hold open or mapped although no name leads to them: a walk over names does not see them.

A deleted file takes its disk space until the last descriptor and the last mapping of it are gone. Descriptors that are
in flight in a unix socket belong to no process and cannot be seen; the reserve of the machine bounds those.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from collections.abc import Iterable, Iterator, Mapping

from moorage.runtime.sandbox import syscalls as sys_
from moorage.runtime.sandbox.cgroups.files import read
from moorage.runtime.sandbox.usage import process_tree

BLOCK = 512  # what `st_blocks` counts in
DELETED = " (deleted)"

FileId = tuple[int, int]  # device and inode


class UnnamedFiles:
    """Counts the deleted files that one workload still holds in the folders that it may write to."""

    def __init__(self, folders: Mapping[str, str], *, is_boxed: bool = True) -> None:
        """`folders` maps paths inside of the sandbox to paths outside; without one their device is looked at."""
        self._folders = folders
        self._is_boxed = is_boxed
        self._sees_sizes = os.geteuid() == 0  # of files that are only mapped
        self._seen_by = 0  # the process whose mounts these are
        self._mounts: frozenset[str] = frozenset()
        self._devices: frozenset[int] = frozenset()
        self._owners: frozenset[int] = frozenset()
        self._mapped: set[FileId] = set()
        # Without root a mapping does not tell the size of its file, so the last one seen by another way is kept.
        self._sizes: dict[FileId, int] = {}

    def used_bytes(self, pids: Iterable[int]) -> int:
        """Return the disk space of all deleted files that these processes hold, each file once."""
        pids = list(pids)
        if not pids:
            return 0  # The folders may not even exist while nothing runs.
        self._find_places(pids)
        if self._is_boxed and not self._mounts:
            return 0  # Nothing has entered the sandbox yet.
        held: dict[FileId, int] = {}
        unsized: dict[FileId, int] = {}
        self._mapped.clear()
        for pid in pids:
            for folder in descriptor_tables(pid):
                held.update(self._descriptors(folder))
            self._look_at_mappings(pid, held, unsized)
        for file in unsized.keys() - held.keys():
            if size := max(unsized[file], self._sizes.get(file, 0)):
                held[file] = size
        self._sizes = {file: size for file, size in self._sizes.items() if file in self._mapped} | held
        return sum(held.values())

    def note(self, found: os.stat_result) -> None:
        """Keep the size of a file that has a name and is mapped: it may be deleted before the next look."""
        file = (found.st_dev, found.st_ino)
        if file in self._mapped:
            self._sizes[file] = found.st_blocks * BLOCK

    def _find_places(self, pids: list[int]) -> None:
        """Find out which mounts and devices the folders are; this does not change while a sandbox lives."""
        if self._seen_by in pids if self._is_boxed else self._devices:
            return
        self._mounts = frozenset()
        outside = {inside: os.stat(folder) for inside, folder in self._folders.items()}
        self._devices = frozenset(each.st_dev for each in outside.values())
        self._owners = frozenset(each.st_uid for each in outside.values())
        for pid in pids if self._is_boxed else ():
            with contextlib.suppress(OSError):
                inner = {inside: os.stat(f"/proc/{pid}/root{inside}") for inside in outside}
                if all(os.path.samestat(inner[inside], outside[inside]) for inside in outside):
                    self._mounts, self._seen_by = frozenset(_mount_ids(pid, outside)), pid
                    return

    def _descriptors(self, folder: str) -> Iterator[tuple[FileId, int]]:
        """Yield the deleted files that a descriptor table refers to."""
        try:
            listed = os.open(f"{folder}/fd", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        except OSError:
            return  # The thread has ended.
        try:
            for name in os.listdir(listed):
                with contextlib.suppress(OSError):
                    found = os.stat(name, dir_fd=listed)
                    if _is_deleted(found) and self._is_ours(found, f"{folder}/fdinfo/{name}"):
                        yield (found.st_dev, found.st_ino), found.st_blocks * BLOCK
        finally:
            os.close(listed)

    def _is_ours(self, found: os.stat_result, info: str) -> bool:
        """Tell whether a file is in one of the folders: programs of the system may be deleted while they run, too."""
        if not self._is_boxed:
            return found.st_dev in self._devices
        lines = (line.split() for line in read(info).splitlines())
        return any(words[0] == "mnt_id:" and words[1] in self._mounts for words in lines if words)

    def _look_at_mappings(self, pid: int, held: dict[FileId, int], unsized: dict[FileId, int]) -> None:
        """Add deleted files to `held`; where only root may see their size, the length of the mapping to `unsized`.

        A mapping that cannot change its file is perhaps a program of the system: its length counts as nothing.
        """
        for span, perms, device, inode, path in _mappings(pid, is_deleted=self._sees_sizes):
            file = (device, inode)
            if device not in self._devices:
                continue
            self._mapped.add(file)
            if not path.endswith(DELETED) or file in held:
                continue
            try:
                found = os.stat(f"/proc/{pid}/map_files/{span}")
            except OSError:
                start, _, end = span.partition("-")
                is_written = perms[1] == "w" and perms[3] == "s"
                unsized[file] = unsized.get(file, 0) + (int(end, 16) - int(start, 16) if is_written else 0)
            else:
                if _is_deleted(found) and found.st_uid in self._owners:
                    held[file] = found.st_blocks * BLOCK


def descriptor_tables(pid: int) -> list[str]:
    """Return one folder of /proc for each descriptor table of a process.

    A thread may have one of its own, by clone without CLONE_FILES. Without kcmp every thread counts as having one.
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
        return error.errno == errno.ESRCH  # It has ended, and holds nothing.


def _is_deleted(found: os.stat_result) -> bool:
    return stat.S_ISREG(found.st_mode) and found.st_nlink == 0


def _mount_ids(pid: int, places: Iterable[str]) -> Iterator[str]:
    for line in read(f"/proc/{pid}/mountinfo").splitlines():
        words = line.split()
        if words[4] in places:
            yield words[0]


def _mappings(pid: int, *, is_deleted: bool) -> Iterator[tuple[str, str, int, int, str]]:
    """Yield the mapped files of a process, or only the deleted ones: addresses, permissions, device, inode, path."""
    text = _maps(pid)
    if is_deleted and DELETED not in text:
        return  # There are hundreds of mappings, and this is asked for often.
    for line in text.splitlines():
        if is_deleted and not line.endswith(DELETED):
            continue
        words = line.split(None, 5)
        if len(words) == 6 and words[4] != "0":
            major, _, minor = words[3].partition(":")
            yield words[0], words[1], os.makedev(int(major, 16), int(minor, 16)), int(words[4]), words[5]


def _maps(pid: int) -> str:
    """Read the mappings by a thread that lives: the first one may have exited before the others."""
    for thread in process_tree.threads(pid):
        with contextlib.suppress(OSError):
            if text := read(f"/proc/{pid}/task/{thread}/maps"):
                return text
    return ""
