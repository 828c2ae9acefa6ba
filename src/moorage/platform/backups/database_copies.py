"""Copy the folders of running database servers for a backup.

Most files are copied while the servers run. Then all servers of a database are stopped with SIGSTOP while the files
that changed meanwhile are copied. The copy is in the state that a power failure would leave, and servers recover from
that: it contains all acknowledged writes.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import re
import shutil
import stat
import time
from collections.abc import Iterator
from dataclasses import field
from pathlib import Path

from moorage.core.kit import folders
from moorage.core.kit.records import dataclass
from moorage.platform.backups import freezing
from moorage.platform.backups.archive import Report
from moorage.runtime.engines import wire
from moorage.runtime.sandbox.cgroups.files import read
from moorage.runtime.sandbox.usage import process_tree
from moorage.settings import Settings

DATABASES = "databases"  # a folder in the data folder, and in its `run` folder
COPIES = ".backup"
SOCKETS = "run"  # the folder of a server with its sockets, which is not copied
MAX_LIVE_PASSES = 3  # passes while the servers run
SMALL_PASS_BYTES = 64 * 2**20  # a pass that copies less is the last one while the servers run
ATTEMPTS = 3
START_TIMEOUT_S = 5.0  # for a starting server to write its identity file
# A file that was written just now may be written again without a change of its timestamp.
RECENT_NS = 2 * 10**9
RESERVED_BYTES = 512 * 2**20  # stay free: a server exits when its disk is full
RESERVED_SHARE = 20  # or 1/20 of a small disk
CHUNK = 2**20
_MAPPED = re.compile(r"^\S+ .w.s \S+ \S+ (\d+)", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class RunningServer:
    """A running database server."""

    key: str
    shim: freezing.Shim
    folder: Path


def running(settings: Settings) -> tuple[list[RunningServer], bool]:
    """Return the running servers, and whether no other server is starting.

    Servers also run while the platform is stopped.
    """
    servers, is_settled = [], True
    run = settings.folder("run") / DATABASES
    for folder in sorted(run.iterdir()) if run.is_dir() else []:
        try:
            identity = json.loads((folder / wire.IDENTITY_FILE).read_bytes())
            server = RunningServer(
                identity["key"], (identity["pid"], identity["started"]), Path(identity["volume"]).resolve()
            )
        except (OSError, ValueError, KeyError, TypeError):
            is_settled = is_settled and not folder.is_dir()
            continue
        if process_tree.started(server.shim[0]) == server.shim[1]:
            servers.append(server)
    return servers, is_settled


@contextlib.contextmanager
def copied(settings: Settings, report: Report) -> Iterator[Path | None]:
    """Provide a copy of all databases; None without a folder of databases."""
    root = settings.folder(DATABASES)
    if not root.is_dir():
        yield None
        return
    target = root / COPIES
    shutil.rmtree(target, ignore_errors=True)
    paths = sorted(root.iterdir())
    target.mkdir(mode=0o700)
    try:
        if paths:
            report("copying the databases")
        for path in paths:
            _copy(settings, _Copy(path, target / path.name), report)
        _copy_ownership(target, root.stat())
        yield target
    finally:
        shutil.rmtree(target, ignore_errors=True)


def _copy(settings: Settings, copy: _Copy, report: Report) -> None:
    for _ in range(MAX_LIVE_PASSES):
        if copy.refresh() <= SMALL_PASS_BYTES:
            break
    for _ in range(ATTEMPTS):
        servers = _started_servers(settings, copy.source)
        with freezing.frozen([server.shim for server in servers]) as stopped:
            began = time.monotonic()
            copy.refresh(mapped=_mapped(stopped))
            # A server that crashed meanwhile was restarted and has written.
            is_whole = all(map(freezing.is_stopped, stopped)) and _is_unchanged(settings, copy.source, servers, stopped)
        if is_whole and servers:
            report(f"database {copy.source.name} was stopped for {round((time.monotonic() - began) * 1000)} ms")
        if is_whole:
            return
    raise OSError(errno.EBUSY, f"the servers of database {copy.source.name} keep restarting; try again later")


def _started_servers(settings: Settings, source: Path) -> list[RunningServer]:
    """Wait until no server is starting, and return the servers of a database."""
    deadline = time.monotonic() + START_TIMEOUT_S
    while True:
        servers, is_settled = running(settings)
        if is_settled or time.monotonic() > deadline:  # The folder of an aborted start stays.
            return [server for server in servers if server.folder.is_relative_to(source.resolve())]
        time.sleep(0.05)


def _is_unchanged(settings: Settings, source: Path, servers: list[RunningServer], stopped: frozenset[int]) -> bool:
    now = [server for server in running(settings)[0] if server.folder.is_relative_to(source.resolve())]
    return now == servers and freezing.descendants([server.shim for server in servers]) <= stopped


def _mapped(pids: frozenset[int]) -> frozenset[int] | None:
    """Return the inodes of files mapped for writing; None if unknown.

    Writes through a mapping do not change the timestamp of a file.
    """
    inodes: set[int] = set()
    for pid in pids:
        try:
            inodes.update(map(int, _MAPPED.findall(read(f"/proc/{pid}/maps"))))
        except (FileNotFoundError, ProcessLookupError):
            continue
        except OSError:
            return None
    return frozenset(inodes)


@dataclass(frozen=True, slots=True)
class _Seen:
    """State of a file when it was copied; `is_old`: a later change is visible in it."""

    inode: int
    size: int
    changed_ns: int
    is_old: bool


@dataclass(eq=False)
class _Copy:
    """A copy of a file or folder that can be updated."""

    source: Path
    target: Path
    _seen: dict[Path, _Seen] = field(default_factory=dict)
    _mapped: frozenset[int] | None = frozenset()
    _bytes: int = 0

    def refresh(self, mapped: frozenset[int] | None = frozenset()) -> int:
        """Copy new and changed files, remove deleted ones; return the copied bytes."""
        self._mapped, self._bytes = mapped, 0
        self._copy_entry(self.source, self.target)
        return self._bytes

    def _copy_entry(self, source: Path, target: Path) -> None:
        try:
            status = source.lstat()
            if stat.S_ISDIR(status.st_mode):
                self._copy_folder(source, target, status)
            elif stat.S_ISREG(status.st_mode) and not (self._is_current(source, status) and target.is_file()):
                self._copy_file(source, target)
            elif stat.S_ISLNK(status.st_mode):  # The archive refuses it: part of a database is elsewhere.
                _remove(target)
                target.symlink_to(os.readlink(source))
        except FileNotFoundError:
            _remove(target)  # It was deleted meanwhile.

    def _copy_folder(self, source: Path, target: Path, status: os.stat_result) -> None:
        if not target.is_dir():
            _remove(target)
            target.mkdir(mode=0o700)
        names = [] if self._holds_sockets(source) else os.listdir(source)
        for name in {*os.listdir(target)}.difference(names):
            _remove(target / name)
        for name in names:
            self._copy_entry(source / name, target / name)
        _copy_ownership(target, status)

    def _holds_sockets(self, source: Path) -> bool:
        return source.name == SOCKETS and source.parent.parent == self.source

    def _copy_file(self, source: Path, target: Path) -> None:
        with open(os.open(source, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC), "rb", buffering=0) as reading:
            status, now = os.fstat(reading.fileno()), time.time_ns()
            _check_space(target.parent, status.st_size)
            _remove(target)
            with open(target, "xb", buffering=0) as writing:
                _copy_bytes(reading.fileno(), writing.fileno(), status.st_size)
            self._bytes += status.st_size
            _copy_ownership(target, status)
            changed = max(status.st_ctime_ns, status.st_mtime_ns)
            self._seen[source] = _Seen(status.st_ino, status.st_size, changed, changed < now - RECENT_NS)

    def _is_current(self, source: Path, status: os.stat_result) -> bool:
        changed = max(status.st_ctime_ns, status.st_mtime_ns)
        is_mapped = self._mapped is None or status.st_ino in self._mapped
        return not is_mapped and self._seen.get(source) == _Seen(status.st_ino, status.st_size, changed, is_old=True)


def _copy_bytes(reading: int, writing: int, size: int) -> None:
    """Copy inside the kernel; a file system with reflinks shares the blocks."""
    left = size  # A fixed size: the file may grow as fast as it is read.
    try:
        while left and (count := os.copy_file_range(reading, writing, left)):
            left -= count
    except OSError as error:
        if error.errno not in (errno.EXDEV, errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP):
            raise
        while left and (data := os.read(reading, min(left, CHUNK))):
            left -= os.write(writing, data)


def _check_space(folder: Path, size: int) -> None:
    disk = os.statvfs(folder)
    reserved = min(RESERVED_BYTES, disk.f_blocks * disk.f_frsize // RESERVED_SHARE)
    if disk.f_bavail * disk.f_frsize < size + reserved:
        raise OSError(errno.ENOSPC, f"not enough disk space for a copy of the databases in {folder}")


def _remove(path: Path) -> None:
    if os.path.lexists(path):
        folders.remove(path)


def _copy_ownership(path: Path, status: os.stat_result) -> None:
    if (status.st_uid, status.st_gid) != (os.geteuid(), os.getegid()):
        os.chown(path, status.st_uid, status.st_gid)
    path.chmod(stat.S_IMODE(status.st_mode) & 0o777)
