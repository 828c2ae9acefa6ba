"""Physical backups of PostgreSQL: base backups and archived WAL.

A base backup is written as a folder, because pg_verifybackup verifies only folders, and then packed into one tar.gz
file. All copies of a template have the same system identifier, so archived WAL is stored per server folder.
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
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path, PurePosixPath

from moorage.core.kit import folders
from moorage.runtime.database_servers.copying import FOLDER_FLAGS, opened, opened_file, read
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
from moorage.runtime.database_servers.tools import CHUNK, Toolbox, raise_if_cancelled, wrap_disk_errors

WAL = "wal"  # folder with the WAL files for a recovery
MANIFEST, LABEL = "backup_manifest", "backup_label"
COMPRESSION_LEVEL = 3
MAX_LABEL_BYTES = 64 * 1024
MAX_MANIFEST_BYTES = 64 * 2**20  # has about 150 bytes per file
MAX_WAL_FILE_BYTES = 16 * 2**20  # the size of a WAL segment
ARCHIVE_TIMEOUT_S = 30.0  # for a finished WAL segment to appear in the archive
ARCHIVE_POLL_INTERVAL_S = 0.05
_START = re.compile(r"START WAL LOCATION: \S+ \(file ([0-9A-F]{24})\)")
_WAL_FILE = re.compile(r"[0-9A-F]{24}(\.[0-9A-F]{8}\.backup|\.partial)?|[0-9A-F]{8}\.history")
_SEGMENT = re.compile(r"[0-9A-F]{24}")


def copy(software: Software, access: Access, work: Path, target: Path) -> tuple[int, str]:
    """Write a base backup of a running server to one file.

    Returns its number of files and the first WAL segment that it needs. `work` is an empty temporary folder of the
    server's user.
    """
    with wrap_disk_errors():
        with Toolbox(software, work) as box:
            env = environment(box, access, ADMIN, access.password, "postgres")
            args = ["--format=plain", "--wal-method=stream", "--checkpoint=fast", "--no-password", "--no-sync"]
            box.run("pg_basebackup", [*args, "-D", f"{box.reach(work, is_writable=True)}/copy"], env)
        verify(software, work / "copy")
        _take_ownership(work / "copy")
        first = _first_segment(work / "copy")
        _pack(work / "copy", target)
        folders.remove(work / "copy")
    return check(target), first


def verify(software: Software, copied: Path) -> None:
    """Compare every file of a base backup with its manifest; raises ServerFailed."""
    with Toolbox(software, copied) as box:
        # The restore test replays the WAL, so it is not parsed here.
        box.run("pg_verifybackup", ["--exit-on-error", "--no-parse-wal", box.reach(copied)], {})


def check(packed: Path) -> int:
    """Read a packed base backup; return its number of files, or raise ServerFailed."""
    count, listed = 0, 0
    with _unpacking(packed) as tar:
        for member in tar:
            raise_if_cancelled()
            count += member.isfile()
            if member.name == MANIFEST and (file := tar.extractfile(member)) is not None:
                listed = _count_listed(file.read(MAX_MANIFEST_BYTES + 1))
    if listed == 0 or count < listed:
        raise ServerFailed(f"the copy is incomplete: it has {count} files, its manifest lists {listed}")
    return count


def _count_listed(manifest: bytes) -> int:
    """Return the number of files that a manifest lists; raises ValueError. A compromised server can write any text."""
    if len(manifest) > MAX_MANIFEST_BYTES:
        raise ValueError(f"its manifest is larger than {MAX_MANIFEST_BYTES >> 20} MB")
    parsed = json.loads(manifest)
    files = parsed.get("Files") if isinstance(parsed, dict) else None
    return len(files) if isinstance(files, list) else 0


def unpack(packed: Path, folder: Path) -> None:
    """Unpack a base backup into an empty folder; the caller sets the owner."""
    for name in (RUN, CONF, TLS, ARCHIVE, WAL):
        (folder / name).mkdir(mode=0o700)
    data = folder / DATA
    data.mkdir(mode=0o700)
    with wrap_disk_errors(), _unpacking(packed) as tar:
        for member in tar:
            raise_if_cancelled()
            _put(tar, member, data)
    data.chmod(0o700)  # The files need no fsync: a server syncs its data folder when it starts a recovery.


def begin_recovery(packed: Path, target: Path) -> None:
    """Unpack a base backup beside the folder to recover, replacing a previous attempt."""
    temporary = _temporary(target)
    folders.remove(temporary)
    temporary.mkdir(mode=0o700)
    unpack(packed, temporary)


def add_wal(packed: Path, target: Path, name: str) -> None:
    """Add a compressed WAL file to the folder to recover."""
    if not _WAL_FILE.fullmatch(name):
        raise ServerFailed(f"{name!r} is no name of a WAL file")
    decompress_wal(packed, _temporary(target) / WAL / name)


def end_recovery(software: Software, target: Path, seal: Callable[[Path], None]) -> None:
    """Verify the unpacked base backup and move it to its folder, where a scratch server replays the WAL."""
    temporary = _temporary(target)
    seal(temporary)
    verify(software, temporary / DATA)
    folders.remove(target)
    temporary.rename(target)


def _temporary(target: Path) -> Path:
    return target.with_name(f".{target.name}.new")


def _put(tar: tarfile.TarFile, member: tarfile.TarInfo, folder: Path) -> None:
    """Extract a file or folder; rejects other types and paths outside the folder.

    The extraction filter of `tarfile` needs Python 3.11.4, and Debian 12 has 3.11.2.
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
    """Read a packed base backup up to the gzip checksum at its end."""
    try:
        with gzip.open(packed, "rb") as file:
            with tarfile.open(fileobj=file, mode="r|", bufsize=CHUNK) as tar:
                yield tar
            while file.read(CHUNK):
                raise_if_cancelled()
    except (tarfile.TarError, EOFError, zlib.error, gzip.BadGzipFile, ValueError, RecursionError) as error:
        raise ServerFailed(f"the copy is broken: {error}") from error


def finish_segment(access: Access) -> None:
    """Archive the WAL of all acknowledged transactions; raises ServerFailed on timeout."""
    wait_until_archived(access, switch_wal(access))


def switch_wal(access: Access) -> str:
    """Write a commit record and finish the WAL segment; return its name.

    Recovery to a point in time needs a commit after that time, else the server does not know that it is reached.
    """
    with connected(access, "postgres") as connection:
        # Assigning a transaction id is enough for a commit record.
        connection.execute("SELECT pg_current_xact_id()")
        row = connection.execute("SELECT pg_walfile_name(pg_switch_wal())").fetchone()
    assert row is not None
    return str(row[0])


def wait_until_archived(access: Access, name: str, within_s: float = ARCHIVE_TIMEOUT_S) -> None:
    """Wait until a WAL segment is archived; raises ServerFailed on timeout."""
    deadline = time.monotonic() + within_s
    with connected(access, "postgres") as connection:
        while True:
            row = connection.execute("SELECT last_archived_wal FROM pg_stat_archiver").fetchone()
            if row is not None and row[0] is not None and _number(row[0]) >= _number(name):
                return
            if time.monotonic() > deadline:
                raise ServerFailed("the server does not archive its log")
            time.sleep(ARCHIVE_POLL_INTERVAL_S)


def archived_files(archive: Path) -> list[str]:
    """Return the WAL files in an archive folder, oldest first."""
    try:
        with opened(archive, FOLDER_FLAGS) as folder:
            return wal_files(os.listdir(folder))
    except (FileNotFoundError, NotADirectoryError):  # NotADirectoryError: a link, too
        return []


def wal_files(names: Iterable[str]) -> list[str]:
    """Return the names of WAL files among the names, oldest first."""
    return sorted(name for name in names if _WAL_FILE.fullmatch(name))


def is_needed(name: str, first: str) -> bool:
    """Tell whether a base backup that starts at segment `first` needs a WAL file."""
    # Compares without the timeline prefix, which does not order segments.
    return _SEGMENT.match(name) is None or _number(name) >= _number(first)


def compress_wal(archive: Path, name: str, target: Path) -> None:
    """Compress a WAL file; follows no symlink that the server's user planted, and reads no larger file."""
    with wrap_disk_errors(), opened_file(archive, name) as handle:
        if os.fstat(handle).st_size > MAX_WAL_FILE_BYTES:
            raise ServerFailed(f"the archived {name} is larger than a WAL segment")
        with open(handle, "rb", closefd=False) as source, target.open("wb") as file:
            with gzip.GzipFile(
                fileobj=file, mode="wb", compresslevel=COMPRESSION_LEVEL, mtime=0, filename=""
            ) as packed:
                shutil.copyfileobj(source, packed, CHUNK)
            file.flush()
            os.fsync(file.fileno())


def drop_wal(archive: Path, name: str) -> None:
    """Delete a WAL file from an archive folder. Safe to repeat."""
    with opened(archive, FOLDER_FLAGS) as folder, contextlib.suppress(FileNotFoundError):
        os.unlink(name, dir_fd=folder)


def decompress_wal(packed: Path, target: Path) -> None:
    try:
        with wrap_disk_errors(), gzip.open(packed, "rb") as source, target.open("wb") as file:
            shutil.copyfileobj(source, file, CHUNK)
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise ServerFailed(f"a stored WAL file is broken: {error}") from error


def _number(name: str) -> str:
    return name[8:24]


def _take_ownership(copied: Path) -> None:
    """Give a copy to root, so that the server's user can no longer change it."""
    if os.getuid() == 0:
        folders.change_owner(copied, 0)


def _pack(copied: Path, target: Path) -> None:
    with target.open("xb") as file:
        with (
            gzip.GzipFile(fileobj=file, mode="wb", compresslevel=COMPRESSION_LEVEL, mtime=0, filename="") as packed,
            tarfile.open(fileobj=packed, mode="w|", bufsize=CHUNK) as tar,
        ):
            for path in sorted(copied.iterdir()):
                tar.add(path, path.name, filter=_anonymous)
        file.flush()
        os.fsync(file.fileno())


def _anonymous(member: tarfile.TarInfo) -> tarfile.TarInfo:
    raise_if_cancelled()
    member.uid = member.gid = 0
    member.uname = member.gname = ""
    return member


def _first_segment(copied: Path) -> str:
    match = _START.search(read(copied, LABEL, MAX_LABEL_BYTES).decode(errors="replace"))
    if match is None:
        raise ServerFailed(f"the copy is broken: its {LABEL} has no start location")
    return match[1]
