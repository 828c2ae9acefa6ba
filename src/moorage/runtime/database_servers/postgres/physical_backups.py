"""Copies of a whole PostgreSQL server, and the pieces of its log that lead on from there to any later moment.

A copy is made as a folder, because only a folder can be verified against its manifest; then it becomes one file. The
copies of a template cannot be told apart by the server itself, so pieces of a log are kept by the folder they are of.
"""

from __future__ import annotations

import contextlib
import gzip
import json
import os
import re
import shutil
import tarfile
import time
import zlib
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

from moorage.core.kit import folders
from moorage.runtime.database_servers.ports import (
    ADMIN,
    ARCHIVE,
    CONF,
    DATA,
    RUN,
    TLS,
    Access,
    ServerFailed,
    Software,
)
from moorage.runtime.database_servers.postgres.dumps import connected, environment
from moorage.runtime.database_servers.tools import CHUNK, Toolbox, check_wanted, disk_errors_told

WAL = "wal"  # the folder from which a server that recovers takes the pieces of the log
MANIFEST, LABEL = "backup_manifest", "backup_label"
LEVEL = 3
ARCHIVED_S = 30.0  # for a piece that was ended to appear in the archive
LOOK_S = 0.05
_START = re.compile(r"START WAL LOCATION: \S+ \(file ([0-9A-F]{24})\)")
_PIECE = re.compile(r"[0-9A-F]{24}(\.[0-9A-F]{8}\.backup|\.partial)?|[0-9A-F]{8}\.history")
_SEGMENT = re.compile(r"[0-9A-F]{24}")


def copy(software: Software, access: Access, work: Path, target: Path) -> tuple[int, str]:
    """Copy a running server into one file; return how many files it has, and the first piece of the log it needs.

    `work` is an empty folder of the server's user, and holds the copy meanwhile.
    """
    with disk_errors_told():
        with Toolbox(software, work) as box:
            env = environment(box, access, ADMIN, access.password, "postgres")
            inside = box.reach(work)
            args = ["--format=plain", "--wal-method=stream", "--checkpoint=fast", "--no-password", "--no-sync"]
            box.run("pg_basebackup", [*args, "-D", f"{inside}/copy"], env)
        verify(software, work / "copy")
        _take(work / "copy")
        first = _first_piece(work / "copy")
        _pack(work / "copy", target)
        folders.remove(work / "copy")
    return check(target), first


def verify(software: Software, copied: Path) -> None:
    """Compare every file of a copy with the manifest; raises ServerFailed."""
    with Toolbox(software, copied) as box:
        # The log is proved by recovering from it, not by reading it here.
        box.run("pg_verifybackup", ["--exit-on-error", "--no-parse-wal", box.reach(copied)], {})


def check(packed: Path) -> int:
    """Read a packed copy to its end; return how many files it has, and raise ServerFailed for a broken one."""
    count, listed = 0, 0
    with _unpacking(packed) as tar:
        for member in tar:
            check_wanted()
            count += member.isfile()
            if member.name == MANIFEST and (file := tar.extractfile(member)) is not None:
                listed = len(json.load(file)["Files"])
    if listed == 0 or count < listed:
        raise ServerFailed(f"the copy is incomplete: it has {count} files, and its manifest {listed}")
    return count


def unpack(packed: Path, folder: Path) -> None:
    """Make an empty folder, still our own, one that a server can recover on. Its owner is set by the caller."""
    for name in (RUN, CONF, TLS, ARCHIVE, WAL):
        (folder / name).mkdir(mode=0o700)
    data = folder / DATA
    data.mkdir(mode=0o700)
    with disk_errors_told(), _unpacking(packed) as tar:
        for member in tar:
            check_wanted()
            _put(tar, member, data)
    data.chmod(0o700)  # A server brings all of it to the disk when it begins to recover.


def _put(tar: tarfile.TarFile, member: tarfile.TarInfo, folder: Path) -> None:
    """Write one member of a copy: a file or a folder, and none outside.

    `tarfile` has a filter for that since Python 3.11.4, and Debian 12 has 3.11.2.
    """
    path = PurePosixPath(member.name)
    if path.is_absolute() or ".." in path.parts or not (member.isfile() or member.isdir()):
        raise ServerFailed(f"the copy is broken: {member.name} has no place in it")
    target = folder / path
    if member.isdir():
        target.mkdir(mode=0o700, parents=True, exist_ok=True)
    elif (content := tar.extractfile(member)) is not None:
        with os.fdopen(os.open(target, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600), "wb") as file:
            shutil.copyfileobj(content, file, CHUNK)


@contextlib.contextmanager
def _unpacking(packed: Path) -> Iterator[tarfile.TarFile]:
    """Read a packed copy to its very end, where its checksum is; raises ServerFailed for a broken one."""
    try:
        with gzip.open(packed, "rb") as file:
            with tarfile.open(fileobj=file, mode="r|", bufsize=CHUNK) as tar:
                yield tar
            while file.read(CHUNK):
                check_wanted()
    except (tarfile.TarError, EOFError, zlib.error, gzip.BadGzipFile, ValueError) as error:
        raise ServerFailed(f"the copy is broken: {error}") from error


def end_piece(access: Access) -> str:
    """End the current piece of the log with a commit that is later than all others; return the piece's name.

    To recover up to a moment takes a commit that comes after it: without one a server cannot tell that it is there.
    """
    with connected(access, "postgres") as connection:
        # A commit is written only where something was changed; this assigns a number, which is enough.
        connection.execute("SELECT pg_current_xact_id()")
        row = connection.execute("SELECT pg_walfile_name(pg_switch_wal())").fetchone()
    assert row is not None  # A function has one.
    return str(row[0])


def wait_for_piece(access: Access, name: str, within_s: float = ARCHIVED_S) -> None:
    """Wait until a piece has come into the archive, or has been taken from it; raises ServerFailed."""
    deadline = time.monotonic() + within_s
    with connected(access, "postgres") as connection:
        while True:
            row = connection.execute("SELECT last_archived_wal FROM pg_stat_archiver").fetchone()
            if row is not None and row[0] is not None and _number(row[0]) >= _number(name):
                return
            if time.monotonic() > deadline:
                raise ServerFailed("the server does not archive its log")
            time.sleep(LOOK_S)


def is_recovering(access: Access) -> bool:
    with connected(access, "postgres") as connection:
        row = connection.execute("SELECT pg_is_in_recovery()").fetchone()
    return bool(row and row[0])


def finished_pieces(archive: Path) -> list[str]:
    """Return the names of the pieces of the log that wait in an archive folder, oldest first."""
    if not archive.is_dir():
        return []
    return sorted(name for name in os.listdir(archive) if _PIECE.fullmatch(name))


def is_needed(name: str, first: str) -> bool:
    """Tell whether a piece is one that a copy needs which begins with `first`."""
    # The number of the timeline, in front, does not say which of two is older.
    return _SEGMENT.match(name) is None or _number(name) >= _number(first)


def pack_piece(archive: Path, name: str, target: Path) -> None:
    """Compress a piece into a file. The folder is the server's, so nothing in it is trusted to be what it seems."""
    with disk_errors_told(), _opened(archive) as folder:
        handle = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=folder)
        with open(handle, "rb") as source, target.open("wb") as file:
            with gzip.GzipFile(fileobj=file, mode="wb", compresslevel=LEVEL, mtime=0, filename="") as packed:
                shutil.copyfileobj(source, packed, CHUNK)
            file.flush()
            os.fsync(file.fileno())


def drop_piece(archive: Path, name: str) -> None:
    """Take a piece from an archive folder. Safe to repeat."""
    with _opened(archive) as folder, contextlib.suppress(FileNotFoundError):
        os.unlink(name, dir_fd=folder)


@contextlib.contextmanager
def _opened(folder: Path) -> Iterator[int]:
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        yield handle
    finally:
        os.close(handle)


def unpack_piece(packed: Path, target: Path) -> None:
    try:
        with disk_errors_told(), gzip.open(packed, "rb") as source, target.open("wb") as file:
            shutil.copyfileobj(source, file, CHUNK)
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise ServerFailed(f"a piece of the log is broken: {error}") from error


def _number(name: str) -> str:
    return name[8:24]


def _take(copied: Path) -> None:
    """Make a copy our own: from here on nobody else can change it."""
    if os.getuid() == 0:
        folders.give(copied, 0)


def _pack(copied: Path, target: Path) -> None:
    with target.open("xb") as file:
        with (
            gzip.GzipFile(fileobj=file, mode="wb", compresslevel=LEVEL, mtime=0, filename="") as packed,
            tarfile.open(fileobj=packed, mode="w|", bufsize=CHUNK) as tar,
        ):
            for path in sorted(copied.iterdir()):
                tar.add(path, path.name, filter=_anonymous)
        file.flush()
        os.fsync(file.fileno())


def _anonymous(member: tarfile.TarInfo) -> tarfile.TarInfo:
    check_wanted()
    member.uid = member.gid = 0
    member.uname = member.gname = ""
    return member


def _first_piece(copied: Path) -> str:
    found = _START.search((copied / LABEL).read_text())
    if found is None:
        raise ServerFailed("the copy does not say where in the log it begins")
    return found[1]
