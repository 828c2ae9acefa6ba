"""Format of a backup: a gzipped tar, first a manifest with checksums of the rest.

The reader validates the names in the manifest and then trusts only the manifest: a member that is not listed, differs
from its entry, occurs twice, or is neither a file nor a folder makes the whole archive unusable.
"""

from __future__ import annotations

import contextlib
import gzip
import hashlib
import os
import tarfile
import time
import zlib
from collections.abc import Callable, Iterator
from dataclasses import field
from pathlib import Path
from typing import IO, BinaryIO, Literal

import msgspec

from moorage import __version__
from moorage.core.db.snapshots import STORE
from moorage.core.kit.decoding import decode
from moorage.core.kit.records import dataclass

FOLDERS = ("store", "artifacts", "git", "databases", "volumes", "keys")
MARKER = "instance"
MANIFEST = "manifest.json"
STORE_FILE = f"store/{STORE}"
MANIFEST_LIMIT = 2**28
CHUNK = 2**20
PROGRESS_INTERVAL_S = 3.0
Report = Callable[[str], None]
Owner = tuple[int, int]  # User and group.


class CannotRestore(Exception):
    """The restore failed before any change; the message says how to continue."""


class BadArchive(CannotRestore):
    def __init__(self, path: Path, why: str) -> None:
        super().__init__(f"{path} cannot be restored: {why}. Use another backup; nothing was changed.")


class _Bad(Exception):
    """The archive is invalid."""


class Folder(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    mode: int
    owner: Owner | None = None  # only if it differs from the data folder's owner


class File(Folder, frozen=True, kw_only=True, omit_defaults=True):
    sha256: str
    size: int


class Manifest(msgspec.Struct, frozen=True):
    format: Literal["moorage-backup"]
    version: Literal[1]
    created_at: str
    moorage: str
    files: dict[str, File]
    folders: dict[str, Folder]

    @property
    def size(self) -> int:
        return sum(entry.size for entry in self.files.values())

    @property
    def has_store(self) -> bool:
        return STORE_FILE in self.files


@dataclass
class Progress:
    """Reports the progress of a long copy every few seconds."""

    report: Report
    activity: str
    total: int
    unit: str = "MB"
    unit_size: int = 2**20
    done: int = 0
    reported_at: float = field(default_factory=time.monotonic)

    def add(self, count: int) -> None:
        self.done += count
        if time.monotonic() - self.reported_at >= PROGRESS_INTERVAL_S:
            self.reported_at = time.monotonic()
            done, total = self.done // self.unit_size, self.total // self.unit_size
            self.report(f"{self.activity}: {done} of {total} {self.unit}")


@dataclass(frozen=True)
class Unpacker:
    """Writes members into a folder, with restrictive modes."""

    folder: Path
    owner: Owner

    def make_folder(self, name: str, entry: Folder) -> None:
        path = self.folder / name
        path.mkdir(mode=0o700)
        path.chmod(0o700 | entry.mode & 0o055)
        chown(path, entry.owner or self.owner)

    def create(self, name: str, entry: File) -> BinaryIO:
        secret = name == STORE_FILE or name.startswith("keys/")
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        handle = os.open(self.folder / name, flags, 0o600)
        os.fchmod(handle, 0o600 if secret else 0o600 | entry.mode & 0o755)
        chown(handle, entry.owner or self.owner)
        return open(handle, "wb")


def scan(path: Path, *, report: Report, unpacker: Unpacker | None = None) -> Manifest:
    """Check every byte of an archive, and unpack it if requested; raises BadArchive."""
    try:
        with gzip.open(path) as packed, tarfile.open(fileobj=packed, mode="r|") as tar:
            manifest = _read_manifest(tar)
            progress = Progress(report, "unpacking" if unpacker else "checking", manifest.size)
            for member in _members(tar, manifest):
                if member.isdir() and unpacker is not None:
                    unpacker.make_folder(member.name, manifest.folders[member.name])
                if member.isfile():
                    _read_file(_data(tar, member), member.name, manifest.files[member.name], unpacker, progress)
            while packed.read(CHUNK):  # The checksum of the whole is at the end.
                pass
    except _Bad as error:
        raise BadArchive(path, str(error)) from None
    except (tarfile.TarError, EOFError, zlib.error, gzip.BadGzipFile, ValueError) as error:
        raise BadArchive(path, f"it is damaged or cut short ({error})") from None
    return manifest


def _read_manifest(tar: tarfile.TarFile) -> Manifest:
    member = tar.next()
    if member is None or member.name != MANIFEST or member.type != tarfile.REGTYPE or member.size > MANIFEST_LIMIT:
        raise _Bad("it is not a Moorage backup")
    try:
        manifest = decode(_data(tar, member).read(), Manifest)
    except msgspec.DecodeError as error:
        raise _Bad(f"its manifest cannot be read by this version of Moorage, {__version__} ({error})") from None
    for name in (*manifest.files, *manifest.folders):
        if problem := _path_problem(name, manifest):
            raise _Bad(f"{name!r} {problem}")
    return manifest


def _path_problem(name: str, manifest: Manifest) -> str | None:
    top, *rest = parts = name.split("/")
    if name.startswith("/"):
        return "is an absolute path"
    if any(part in ("", ".", "..") for part in parts) or "\0" in name:
        return "leaves the data folder"
    if top not in FOLDERS and name != MARKER:
        return "does not belong into a backup"
    if name in manifest.files and (name in FOLDERS or name in manifest.folders):
        return "is a file and a folder"
    if rest and name.rpartition("/")[0] not in manifest.folders:
        return "lies in a folder that is not listed"
    return None


def _members(tar: tarfile.TarFile, manifest: Manifest) -> Iterator[tarfile.TarInfo]:
    """Yield each member once, folders first; each must equal its manifest entry."""
    left = {*manifest.folders, *manifest.files}
    while (member := tar.next()) is not None:
        if problem := _path_problem(member.name, manifest) or _member_problem(member, manifest):
            raise _Bad(f"its member {member.name!r} {problem}")
        if member.name not in left or member.name.rpartition("/")[0] in left:
            raise _Bad(f"its member {member.name!r} is there twice, or before its folder")
        left.remove(member.name)
        yield member
        tar.members.clear()  # type: ignore[attr-defined]  # Frees memory: there may be very many.
    if left:
        raise _Bad(f"{len(left)} of its members are missing, such as {min(left)!r}")


def _member_problem(member: tarfile.TarInfo, manifest: Manifest) -> str | None:
    if member.type not in (tarfile.REGTYPE, tarfile.DIRTYPE) or member.issparse():
        return "is a link or a special file"
    if member.isdir():
        return None if member.name in manifest.folders and not member.size else "is not a folder in its manifest"
    entry = manifest.files.get(member.name)
    return None if entry and entry.size == member.size else "is not the file in its manifest"


def _data(tar: tarfile.TarFile, member: tarfile.TarInfo) -> IO[bytes]:
    data = tar.extractfile(member)
    if data is None:
        raise _Bad(f"its member {member.name!r} has no data")
    return data


def _read_file(data: IO[bytes], name: str, entry: File, unpacker: Unpacker | None, progress: Progress) -> None:
    digest = hashlib.sha256()
    with unpacker.create(name, entry) if unpacker else contextlib.nullcontext() as out:
        while chunk := data.read(CHUNK):
            digest.update(chunk)
            progress.add(len(chunk))
            if out is not None:
                out.write(chunk)
    if digest.hexdigest() != entry.sha256:
        raise _Bad(f"its member {name!r} is damaged: the checksum is wrong")


def owner_of(path: Path) -> Owner:
    status = path.stat()
    return status.st_uid, status.st_gid


def chown(path: Path | int, owner: Owner | None) -> None:
    """As root, give a file to the data folder's owner: the platform must read it."""
    if os.geteuid() == 0 and owner is not None:
        os.chown(path, *owner)


def sync_folder(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def is_filled(folder: Path) -> bool:
    return folder.is_dir() and any(folder.iterdir())
