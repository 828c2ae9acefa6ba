"""Copies of what database servers keep, for a backup, made while they run.

Most of it is copied while a server goes on. Then all servers of a database are held still for the moment that it takes
to copy what has changed meanwhile. The copy is what a power cut would have left, and servers recover from that: it
holds everything that was acknowledged before.
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
from dataclasses import dataclass, field
from pathlib import Path

from moorage.core.kit import folders
from moorage.platform.backups import freezing as holding
from moorage.platform.backups.archive import Say
from moorage.runtime.engines import wire
from moorage.runtime.sandbox.cgroups.files import read
from moorage.runtime.sandbox.usage import process_tree
from moorage.settings import Settings

DATABASES = "databases"  # below the data folder, and below its `run` for what runs
COPIES = ".backup"
SOCKETS = "run"  # the folder of a server that nothing is copied of
PASSES = 3  # while servers go on
FEW = 64 * 2**20  # bytes: to copy so much is no reason for another pass
TRIES = 3
SETTLE_S = 5.0  # for a server that is being started to say so
RECENT_NS = 2 * 10**9  # A file that was written to just now may be written to again in the same tick of its clock.
ROOM = 512 * 2**20  # bytes that stay free: a server whose disk is full ends
ROOM_SHARE = 20  # or one part in so many of a small disk
CHUNK = 2**20
_MAPPED = re.compile(r"^\S+ .w.s \S+ \S+ (\d+)", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Running:
    """A server that runs: its shim, and its folder."""

    key: str
    shim: holding.Shim
    folder: Path


def running(settings: Settings) -> tuple[list[Running], bool]:
    """Return the database servers that run, whether or not the platform does, and whether no other is starting."""
    found, is_settled = [], True
    run = settings.folder("run") / DATABASES
    for folder in sorted(run.iterdir()) if run.is_dir() else []:
        try:
            card = json.loads((folder / wire.CARD).read_bytes())
            server = Running(card["key"], (card["pid"], card["started"]), Path(card["volume"]).resolve())
        except (OSError, ValueError, KeyError, TypeError):
            is_settled = is_settled and not folder.is_dir()
            continue
        if process_tree.started(server.shim[0]) == server.shim[1]:
            found.append(server)
    return found, is_settled


@contextlib.contextmanager
def copied(settings: Settings, say: Say) -> Iterator[Path | None]:
    """Give a copy of all databases that nobody writes to; None where there is not even a folder for them."""
    root = settings.folder(DATABASES)
    if not root.is_dir():
        yield None
        return
    target = root / COPIES
    shutil.rmtree(target, ignore_errors=True)
    found = sorted(root.iterdir())
    target.mkdir(mode=0o700)
    try:
        if found:
            say("copying the databases")
        for path in found:
            _copy(settings, _Copy(path, target / path.name), say)
        _give(target, root.stat())
        yield target
    finally:
        shutil.rmtree(target, ignore_errors=True)


def _copy(settings: Settings, copy: _Copy, say: Say) -> None:
    for _ in range(PASSES):
        if copy.refresh() <= FEW:
            break
    for _ in range(TRIES):
        servers = _settled(settings, copy.source)
        with holding.held([server.shim for server in servers]) as stopped:
            began = time.monotonic()
            copy.refresh(mapped=_mapped(stopped))
            # One that has crashed meanwhile was started again, and has written.
            is_whole = all(map(holding.is_still, stopped)) and _is_as_before(settings, copy.source, servers, stopped)
        if is_whole and servers:
            say(f"database {copy.source.name} was held for {round((time.monotonic() - began) * 1000)} ms")
        if is_whole:
            return
    raise OSError(errno.EBUSY, f"the servers of database {copy.source.name} keep being started; try again later")


def _settled(settings: Settings, source: Path) -> list[Running]:
    """Return the servers of a database once none of them is being started."""
    deadline = time.monotonic() + SETTLE_S
    while True:
        servers, is_settled = running(settings)
        if is_settled or time.monotonic() > deadline:  # What is left of a start that was cut short never settles.
            return [server for server in servers if server.folder.is_relative_to(source.resolve())]
        time.sleep(0.05)


def _is_as_before(settings: Settings, source: Path, servers: list[Running], stopped: frozenset[int]) -> bool:
    now = [server for server in running(settings)[0] if server.folder.is_relative_to(source.resolve())]
    return now == servers and holding.below([server.shim for server in servers]) <= stopped


def _mapped(pids: frozenset[int]) -> frozenset[int] | None:
    """Return the files that processes write to by their memory, which no file's time tells; None where unknown."""
    found: set[int] = set()
    for pid in pids:
        try:
            found.update(map(int, _MAPPED.findall(read(f"/proc/{pid}/maps"))))
        except (FileNotFoundError, ProcessLookupError):
            continue
        except OSError:
            return None
    return frozenset(found)


@dataclass(frozen=True, slots=True)
class _Seen:
    """What a file was when it was copied, and whether a later change is sure to show."""

    inode: int
    size: int
    changed_ns: int
    is_old: bool


@dataclass(eq=False)
class _Copy:
    """A copy of a file or folder that can be brought up to date."""

    source: Path
    target: Path
    _seen: dict[Path, _Seen] = field(default_factory=dict)
    _mapped: frozenset[int] | None = frozenset()
    _bytes: int = 0

    def refresh(self, mapped: frozenset[int] | None = frozenset()) -> int:
        """Copy what is new or has changed, and forget what is gone; return how many bytes that took."""
        self._mapped, self._bytes = mapped, 0
        self._take(self.source, self.target)
        return self._bytes

    def _take(self, source: Path, target: Path) -> None:
        try:
            about = source.lstat()
            if stat.S_ISDIR(about.st_mode):
                self._take_folder(source, target, about)
            elif stat.S_ISREG(about.st_mode) and not (self._is_current(source, about) and target.is_file()):
                self._take_file(source, target)
            elif stat.S_ISLNK(about.st_mode):  # Whoever packs the copy refuses it: a part of a database is elsewhere.
                _remove(target)
                target.symlink_to(os.readlink(source))
        except FileNotFoundError:
            _remove(target)  # It went away meanwhile.

    def _take_folder(self, source: Path, target: Path, about: os.stat_result) -> None:
        if not target.is_dir():
            _remove(target)
            target.mkdir(mode=0o700)
        names = [] if self._holds_sockets(source) else os.listdir(source)
        for name in {*os.listdir(target)}.difference(names):
            _remove(target / name)
        for name in names:
            self._take(source / name, target / name)
        _give(target, about)

    def _holds_sockets(self, source: Path) -> bool:
        return source.name == SOCKETS and source.parent.parent == self.source

    def _take_file(self, source: Path, target: Path) -> None:
        with open(os.open(source, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC), "rb", buffering=0) as reading:
            about, now = os.fstat(reading.fileno()), time.time_ns()
            _check_room(target.parent, about.st_size)
            _remove(target)
            with open(target, "xb", buffering=0) as writing:
                _pour(reading.fileno(), writing.fileno(), about.st_size)
            self._bytes += about.st_size
            _give(target, about)
            changed = max(about.st_ctime_ns, about.st_mtime_ns)
            self._seen[source] = _Seen(about.st_ino, about.st_size, changed, changed < now - RECENT_NS)

    def _is_current(self, source: Path, about: os.stat_result) -> bool:
        changed = max(about.st_ctime_ns, about.st_mtime_ns)
        is_mapped = self._mapped is None or about.st_ino in self._mapped
        return not is_mapped and self._seen.get(source) == _Seen(about.st_ino, about.st_size, changed, is_old=True)


def _pour(reading: int, writing: int, size: int) -> None:
    """Copy a file without reading it, and where the file system can without writing it either."""
    left = size  # It may grow as fast as we read.
    try:
        while left and (count := os.copy_file_range(reading, writing, left)):
            left -= count
    except OSError as error:
        if error.errno not in (errno.EXDEV, errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP):
            raise
        while left and (data := os.read(reading, min(left, CHUNK))):
            left -= os.write(writing, data)


def _check_room(folder: Path, size: int) -> None:
    found = os.statvfs(folder)
    kept = min(ROOM, found.f_blocks * found.f_frsize // ROOM_SHARE)
    if found.f_bavail * found.f_frsize < size + kept:
        raise OSError(errno.ENOSPC, f"there is no room for a copy of the databases in {folder}")


def _remove(path: Path) -> None:
    if os.path.lexists(path):
        folders.remove(path)


def _give(path: Path, about: os.stat_result) -> None:
    if (about.st_uid, about.st_gid) != (os.geteuid(), os.getegid()):
        os.chown(path, about.st_uid, about.st_gid)
    path.chmod(stat.S_IMODE(about.st_mode) & 0o777)
