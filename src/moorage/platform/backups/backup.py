"""Make a backup: one file from which the data folder can be rebuilt.

The file gets its final name after it was written, synced, read back and compared: an existing backup is valid.
"""

from __future__ import annotations

import contextlib
import fcntl
import gzip
import hashlib
import io
import os
import shutil
import stat
import tarfile
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import BinaryIO

import msgspec

from moorage import __version__
from moorage.core.db import migrate
from moorage.core.db.lock import FolderLock
from moorage.core.db.snapshots import STORE, store_path
from moorage.platform import store_checks
from moorage.platform.backups import database_copies, volume_copies
from moorage.platform.backups.archive import (
    FOLDERS,
    MANIFEST,
    MARKER,
    STORE_FILE,
    File,
    Folder,
    Manifest,
    Progress,
    Report,
    chown,
    owner_of,
    scan,
    sync_folder,
)
from moorage.settings import Settings

# The store is added as a consistent copy; its journals, lock and snapshots are left out.
LEFT_OUT = {
    STORE_FILE,
    *(STORE_FILE + suffix for suffix in ("-wal", "-shm", "-journal")),
    "store/lock",
    "store/snapshots",
}
ATTEMPTS = 3
Copies = Mapping[str, Path | None]  # by folder name; None if there is nothing to copy
COMPRESSION = 1  # Most artifacts are compressed already: speed matters more than the last percent.


class CannotBackUp(Exception):
    """The backup failed; the message says how to continue."""


class _Changed(Exception):
    """A file changed or disappeared while it was copied."""


def back_up(
    settings: Settings, target: Path, *, snapshot: Callable[[], Path] | None, report: Report, files_only: bool = False
) -> Manifest:
    """Write a backup and return its manifest; creates no `target` if it fails.

    While the platform runs, `snapshot` requests a copy of the store from it. Without `snapshot`, the platform is
    stopped and this process takes the lock on the store.
    """
    _check_can_back_up(settings, target, files_only=files_only)
    with contextlib.ExitStack() as stack:
        if snapshot is None:
            stack.enter_context(locked(settings.folder("store")))
        partial = stack.enter_context(_claimed(target))
        for _ in range(ATTEMPTS):
            with (
                contextlib.suppress(_Changed),
                _store_copy(settings, snapshot, report) as store,
                database_copies.copied(settings, report) as databases,
                volume_copies.copied(settings, report) as volumes,
            ):
                copies = {database_copies.DATABASES: databases, volume_copies.VOLUMES: volumes}
                manifest = _write(partial, settings, store, copies, report)
                break
        else:
            raise CannotBackUp("files keep changing while they are copied; try again later, or stop the platform first")
        report("reading the backup back")
        if scan(Path(partial.name), report=report) != manifest:
            raise CannotBackUp(f"{target} was not written correctly; check its disk")
        os.rename(partial.name, target)
        sync_folder(target.parent)
    return manifest


def _check_can_back_up(settings: Settings, target: Path, *, files_only: bool) -> None:
    if settings.uses_postgres and not files_only:
        raise CannotBackUp(
            "the store is on PostgreSQL and not in the data folder: dump it with `pg_dump --format=custom "
            '--file=store.dump "$MOORAGE_DATABASE_URL"`, and back up the rest with --files-only'
        )
    if files_only and not settings.uses_postgres:
        raise CannotBackUp("--files-only is for a store on PostgreSQL; here the store is a file, and part of a backup")
    if not files_only:
        store_checks.check_not_moved(settings)
    path = store_path(settings)
    if not files_only and not (path.is_file() and path.stat().st_size):
        raise CannotBackUp(f"there is no store in {settings.data}; is --data right, or MOORAGE_DATABASE_URL missing?")
    if target.exists():
        raise CannotBackUp(f"{target} exists already; choose another name, or move it away")
    if not target.parent.is_dir():
        raise CannotBackUp(f"the folder {target.parent} does not exist; make it first")
    if any(target.resolve().is_relative_to(settings.folder(name).resolve()) for name in FOLDERS):
        raise CannotBackUp(f"{target} is inside a folder that is backed up; choose a path outside of {settings.data}")


@contextlib.contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Take the lock on the data folder; raises DataFolderInUse."""
    folder.mkdir(exist_ok=True, mode=0o700)
    lock = FolderLock(folder)
    try:
        chown(folder / "lock", owner_of(folder))
        yield
    finally:
        lock.release()


@contextlib.contextmanager
def _claimed(target: Path) -> Iterator[BinaryIO]:
    """Open the partial file for this process alone; it is deleted unless renamed."""
    path = target.with_name(target.name + ".partial")
    flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
    with open(path, "r+b", opener=lambda name, _: os.open(name, flags, 0o600)) as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise CannotBackUp(f"another backup is being written to {target}; wait for it") from None
        os.fchmod(file.fileno(), 0o600)
        try:
            yield file
        finally:
            path.unlink(missing_ok=True)


@contextlib.contextmanager
def _store_copy(settings: Settings, snapshot: Callable[[], Path] | None, report: Report) -> Iterator[Path | None]:
    """Provide a consistent copy of the store; None for PostgreSQL."""
    if settings.uses_postgres:
        yield None
        return
    report("copying the store")
    if snapshot is not None:
        yield snapshot()
    else:
        folder = settings.folder("store") / "backup.partial"
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(mode=0o700)
        try:
            migrate.copy_sqlite(store_path(settings), folder / STORE)
            yield folder / STORE
        finally:
            shutil.rmtree(folder)


def _write(file: BinaryIO, settings: Settings, store: Path | None, copies: Copies, report: Report) -> Manifest:
    """Write the whole archive; raises _Changed if a file changes meanwhile."""
    sources = dict(_sources(settings, copies))
    if store is not None:
        sources[STORE_FILE] = store
    report(f"reading {len(sources)} files and folders")
    manifest = _manifest(sources, settings, report)
    progress = Progress(report, "writing", manifest.size)
    file.seek(0)
    file.truncate()
    with gzip.GzipFile("", "wb", COMPRESSION, file) as packed, tarfile.open(fileobj=packed, mode="w|") as tar:
        raw = msgspec.json.encode(manifest)
        tar.addfile(_member(MANIFEST, 0o600, len(raw)), io.BytesIO(raw))
        for name, folder in manifest.folders.items():
            tar.addfile(_member(name, folder.mode, kind=tarfile.DIRTYPE))
        for name, entry in manifest.files.items():
            _add(tar, name, entry, sources[name])
            progress.add(entry.size)
            tar.members.clear()  # type: ignore[attr-defined]  # Frees memory: there may be very many.
    file.flush()
    os.fsync(file.fileno())
    return manifest


def _sources(settings: Settings, copies: Copies) -> Iterator[tuple[str, Path]]:
    """Yield the files of a backup, folders first; files that change come from a copy."""
    if (settings.data / MARKER).is_file():
        yield MARKER, settings.data / MARKER
    for name in FOLDERS:
        if name in copies:
            copy = copies[name]
            yield from _below(name, copy) if copy is not None else ()
        elif settings.folder(name).is_dir():
            yield from _below(name, settings.folder(name).resolve())  # It may be a link to another disk.


def _below(name: str, folder: Path) -> Iterator[tuple[str, Path]]:
    yield name, folder
    try:
        entries = sorted(os.scandir(folder), key=lambda entry: entry.name)
    except FileNotFoundError:
        raise _Changed from None
    for entry in entries:
        path = f"{name}/{entry.name}"
        if path in LEFT_OUT or _is_unfinished(path):
            continue
        if entry.is_symlink():
            raise CannotBackUp(f"{entry.path} is a link, which a backup cannot hold; replace it by its target")
        if entry.name.encode(errors="ignore") != os.fsencode(entry.name):
            raise CannotBackUp(f"{folder} holds a file whose name is not UTF-8: {entry.name!r}; rename it")
        if entry.is_dir():
            yield from _below(path, Path(entry.path))
        elif entry.is_file():  # Sockets and pipes of stopped servers hold no data.
            yield path, Path(entry.path)


def _is_unfinished(path: str) -> bool:
    """Return whether a file is still being written, under a temporary name."""
    if path.startswith(("databases/", "volumes/")):
        return False  # Database servers and apps choose the names of their files.
    if path.startswith("git/"):
        name = path.rpartition("/")[2]
        return name.endswith(".lock") or name.startswith(("tmp_", "incoming-", "tmp-", "."))
    return path.endswith(".partial") or (path.startswith("artifacts/") and "#" in path)


def _manifest(sources: dict[str, Path], settings: Settings, report: Report) -> Manifest:
    files, folders = {}, {}
    default = owner_of(settings.data)
    progress = Progress(report, "reading", 0)
    for name, path in sources.items():
        with _opened(path) as handle:
            status = os.fstat(handle)
            owner = (status.st_uid, status.st_gid) if (status.st_uid, status.st_gid) != default else None
            mode = stat.S_IMODE(status.st_mode)
            if stat.S_ISDIR(status.st_mode):
                folders[name] = Folder(mode=mode, owner=owner)
                continue
            with open(handle, "rb", closefd=False) as file:
                digest = hashlib.file_digest(file, "sha256").hexdigest()
            owner = None if name == STORE_FILE else owner  # The copy belongs to the process that made it.
            files[name] = File(mode=mode, size=status.st_size, sha256=digest, owner=owner)
            progress.total += status.st_size
            progress.add(status.st_size)
    now = datetime.now(UTC).isoformat(timespec="seconds")
    return Manifest("moorage-backup", 1, now, __version__, files, folders)


def _add(tar: tarfile.TarFile, name: str, entry: File, path: Path) -> None:
    with _opened(path) as handle, open(handle, "rb", closefd=False) as file:
        hashed = _Hashed(file)
        if os.fstat(handle).st_size != entry.size:
            raise _Changed
        tar.addfile(_member(name, entry.mode, entry.size), hashed)
        if hashed.hash.hexdigest() != entry.sha256 or file.read(1):
            raise _Changed


@contextlib.contextmanager
def _opened(path: Path) -> Iterator[int]:
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except FileNotFoundError:
        raise _Changed from None
    try:
        yield handle
    finally:
        os.close(handle)


def _member(name: str, mode: int, size: int = 0, kind: bytes = tarfile.REGTYPE) -> tarfile.TarInfo:
    member = tarfile.TarInfo(name)
    member.mode, member.size, member.type = mode, size, kind
    return member


class _Hashed(io.RawIOBase):
    """A file that computes its hash while it is read."""

    def __init__(self, file: BinaryIO) -> None:
        self.file = file
        self.hash = hashlib.sha256()

    def read(self, size: int = -1) -> bytes:
        data = self.file.read(size)
        if size > 0 and len(data) < size:
            raise _Changed
        self.hash.update(data)
        return data
