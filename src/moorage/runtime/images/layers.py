"""Unpacks the layers of an image on top of each other into a folder.

Layers are untrusted archives whose paths may try to escape the folder. Each path is opened component by component from
the root descriptor, and no component may be a symbolic link. Owners and modes are kept, as root; the folder must be in
one that other users of the machine cannot enter. Devices and the setuid bits of files are dropped.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import shutil
import tarfile
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import IO, cast

from moorage.core.kit import folders
from moorage.runtime.images.packed.compression import CountingReader, Readable, open_layer
from moorage.runtime.images.packed.headers import BROKEN, BadLayer, LimitedHeader
from moorage.runtime.images.sizes import MAX_ENTRIES, MAX_UNPACKED_BYTES, MB, size_text

MAX_DEPTH = 128
IDS = 65_536  # Ids of an image; sandboxes have no larger ones.
NOBODY = 65_534  # owner of files with a larger id
MAX_MTIME = 2**33  # mtimes are kept, because Python validates .pyc files by them, but clamped.
_FILE_MODES, _FOLDER_MODES = 0o1777, 0o3777  # without setuid, and for files without setgid
_BLOCK = MB
_DISK_BLOCK = 4096
_ROOT_KEY = 0
_CHECK_BYTES, _CHECK_ENTRIES = 8 * MB, 512  # between two checks of free disk space
_WHITEOUT, _WHITEOUT_META, _OPAQUE = ".wh.", ".wh..wh.", ".wh..wh..opq"
_FOLDER_FLAGS = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE_FLAGS = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


class TooLarge(BadLayer):
    """An image unpacks to more bytes or files than the limit."""


class Unpacker:
    """Applies layers to an empty folder, lowest first; `stop` aborts it."""

    def __init__(
        self,
        root: Path,
        *,
        most_bytes: int = MAX_UNPACKED_BYTES,
        most_entries: int = MAX_ENTRIES,
        check_room: Callable[[], None] = lambda: None,
        stop: threading.Event | None = None,
        keeps_owners: bool | None = None,
    ) -> None:
        """`check_room` raises if the disk is full; called every few MB or files.

        Without `keeps_owners`, which needs root and is its default, all files belong to this process's user.
        """
        self.skipped = 0  # devices, pipes and other special files
        self.written_bytes = 0
        self.entries = 0
        self.root = root
        self._most_bytes = most_bytes
        self._most_entries = most_entries
        self._check_room = check_room
        self._checked_at = (0, 0)
        self.stop = stop or threading.Event()
        self._keeps_owners = os.geteuid() == 0 if keeps_owners is None else keeps_owners
        self._read_bytes = 0
        self._created: set[int] = set()  # keys of paths of the current layer, which its whiteouts do not affect

    def apply(self, layer: Path) -> None:
        """Apply one layer; raises BadLayer, and leaves the folder incomplete then."""
        self._created = set()
        try:
            with open_layer(layer) as packed:
                source = CountingReader(packed, self.count_read)
                self._unpack(source)
                while source.read(_BLOCK):  # The checksum of the compression is at the end.
                    pass
        except BROKEN as error:
            raise BadLayer(f"a layer of the image cannot be read: {error}") from None
        except OSError as error:
            raise BadLayer(f"a layer of the image cannot be unpacked: {error.strerror or error}") from None

    def count_shared(self, size: int) -> None:
        """Count a file that another image or layer has already; raises TooLarge."""
        self.entries += 1
        if self.entries > self._most_entries:
            raise TooLarge(f"the image has more than {self._most_entries:,} files")
        self.written_bytes += size
        if self.written_bytes > self._most_bytes:
            raise self._too_large()

    def count_read(self, size: int) -> None:
        self._read_bytes += size
        if self.stop.is_set():
            raise BadLayer("the pull was cancelled")
        if self._read_bytes > self._most_bytes:
            raise self._too_large()

    def _too_large(self) -> TooLarge:
        return TooLarge(f"the image unpacks to more than {size_text(self._most_bytes)}")

    def _unpack(self, source: Readable) -> None:
        with tarfile.open(
            fileobj=cast("IO[bytes]", source), mode="r|", bufsize=_BLOCK, tarinfo=LimitedHeader
        ) as archive:
            while (member := archive.next()) is not None:
                archive.members.clear()  # type: ignore[attr-defined]  # Else `tarfile` keeps every header.
                self._count_entry(member)
                self._extract(archive, member)

    def _count_entry(self, member: tarfile.TarInfo) -> None:
        self._count_inode()
        if not 0 <= member.size <= self._most_bytes:
            raise self._too_large()

    def _count_inode(self) -> None:
        """Count an entry or an implicit folder as one inode and one disk block."""
        self.entries += 1
        if self.entries > self._most_entries:
            raise TooLarge(f"the image has more than {self._most_entries:,} files")
        self._count_written(_DISK_BLOCK)

    def _extract(self, archive: tarfile.TarFile, member: tarfile.TarInfo) -> None:
        parts = _parts(member.name)
        if not parts:  # the root itself
            if member.isdir():
                self._set_folder(self.root, member)
            return
        if any(part.startswith(_WHITEOUT) for part in parts[:-1]):
            self.skipped += 1  # internal files of AUFS
        elif parts[-1].startswith(_WHITEOUT):
            self._apply_whiteout(parts)
        elif member.isdir():
            with self._folder(parts, create=True) as folder:
                self._set_folder(cast("int", folder), member)
        elif member.isreg():
            self._write(archive, member, parts)
        elif member.issym():
            self._symlink(member, parts)
        elif member.islnk():
            self._hard_link(_parts(member.linkname), parts)
        else:
            self.skipped += 1

    def _write(self, archive: tarfile.TarFile, member: tarfile.TarInfo, parts: Sequence[str]) -> None:
        with self._parent_of(parts) as folder:
            descriptor = os.open(parts[-1], _FILE_FLAGS, 0o600, dir_fd=folder)
            with open(descriptor, "wb", buffering=0), cast("IO[bytes]", archive.extractfile(member)) as content:
                while block := content.read(_BLOCK):
                    self._count_written(len(block))
                    _write_all(descriptor, block)
                if self._keeps_owners:
                    os.fchown(descriptor, _owner(member.uid), _owner(member.gid))
                os.fchmod(descriptor, member.mode & _FILE_MODES)
                mtime = _mtime(member)
                os.utime(descriptor, (mtime, mtime))

    def _set_folder(self, folder: int | Path, member: tarfile.TarInfo) -> None:
        if self._keeps_owners:
            os.chown(folder, _owner(member.uid), _owner(member.gid))
        # An ordinary user must be able to fill and to remove its folders.
        os.chmod(folder, member.mode & _FOLDER_MODES | (0 if self._keeps_owners else 0o700))

    def _count_written(self, size: int) -> None:
        """Count written bytes apart from read ones: sparse files are short in the archive."""
        self.written_bytes += size
        if self.written_bytes > self._most_bytes:
            raise self._too_large()
        checked_bytes, checked_entries = self._checked_at
        if self.written_bytes - checked_bytes >= _CHECK_BYTES or self.entries - checked_entries >= _CHECK_ENTRIES:
            self._checked_at = (self.written_bytes, self.entries)
            self._check_room()

    def _symlink(self, member: tarfile.TarInfo, parts: Sequence[str]) -> None:
        with self._parent_of(parts) as folder:
            os.symlink(member.linkname, parts[-1], dir_fd=folder)
            if self._keeps_owners:
                os.chown(parts[-1], _owner(member.uid), _owner(member.gid), dir_fd=folder, follow_symlinks=False)
            mtime = _mtime(member)
            os.utime(parts[-1], (mtime, mtime), dir_fd=folder, follow_symlinks=False)

    def _hard_link(self, target: Sequence[str], parts: Sequence[str]) -> None:
        if list(target) == list(parts):
            return
        with self._folder(target[:-1], create=False) as source:
            if source is None or not target:
                raise BadLayer(f"a layer of the image links to {'/'.join(target)[:200]!r}, which is not in it")
            with self._parent_of(parts) as folder:
                os.link(target[-1], parts[-1], src_dir_fd=source, dst_dir_fd=folder, follow_symlinks=False)

    @contextlib.contextmanager
    def _parent_of(self, parts: Sequence[str]) -> Iterator[int]:
        """Open the folder of a new entry, after removing the existing entry of that name."""
        with self._folder(parts[:-1], create=True) as folder:
            assert folder is not None
            _remove(folder, parts[-1])
            self._created.add(_key_of(parts))
            yield folder

    @contextlib.contextmanager
    def _folder(self, parts: Sequence[str], *, create: bool) -> Iterator[int | None]:
        """Open a folder below the root; None if it is missing and not to be created."""
        here: int | None = os.open(self.root, _FOLDER_FLAGS)
        key = _ROOT_KEY
        try:
            for name in parts:
                outer, key = cast("int", here), _key_below(key, name)
                here = self._enter(outer, name, key, create=create)
                os.close(outer)
                if here is None:
                    break
            yield here
        finally:
            if here is not None:
                os.close(here)

    def _enter(self, outer: int, name: str, key: int, *, create: bool) -> int | None:
        descriptor = _open_folder(outer, name)
        if descriptor is None and create:
            if key in self._created and _exists(outer, name):
                raise BadLayer(f"a layer of the image has files below {name[:200]!r}, which is not a folder in it")
            # As with overlay mounts, a folder replaces a non-folder of a lower layer.
            _remove(outer, name)
            self._count_inode()
            os.mkdir(name, 0o755, dir_fd=outer)
            descriptor = os.open(name, _FOLDER_FLAGS, dir_fd=outer)
            os.fchmod(descriptor, 0o755)  # independent of the umask
        if create:
            self._created.add(key)
        return descriptor

    def _apply_whiteout(self, parts: Sequence[str]) -> None:
        """Remove entries of lower layers: one name, or (opaque) all of a folder."""
        above, name = parts[:-1], parts[-1]
        with self._folder(above, create=False) as folder:
            if folder is None:
                return
            if name == _OPAQUE:
                self._hide_all(folder, above)
            elif not name.startswith(_WHITEOUT_META):
                [hidden] = _parts(name.removeprefix(_WHITEOUT)) or [""]
                if not hidden:
                    raise BadLayer("a layer of the image hides a file without a name")
                self._hide(folder, [*above, hidden])

    def _hide_all(self, folder: int, above: Sequence[str]) -> None:
        for name in os.listdir(folder):
            self._hide(folder, [*above, name])

    def _hide(self, folder: int, parts: Sequence[str]) -> None:
        if _key_of(parts) not in self._created:
            _remove(folder, parts[-1])
            return
        inner = _open_folder(folder, parts[-1])
        if inner is not None:
            try:
                self._hide_all(inner, parts)
            finally:
                os.close(inner)


async def apply_in_thread(unpacker: Unpacker, layer: Path) -> None:
    """Apply a layer in a thread; a cancelled caller stops the unpacker and waits for the end of the thread."""
    running = asyncio.ensure_future(asyncio.to_thread(unpacker.apply, layer))
    try:
        await asyncio.shield(running)
    except asyncio.CancelledError:
        unpacker.stop.set()
        await asyncio.wait([running])
        raise


def size_of(root: Path) -> tuple[int, int]:
    """Return disk usage and count of the files of an image; hard links count once."""
    sizes: dict[int, int] = {}
    for entry in folders.walk(root, is_lenient=True):
        info = entry.stat(follow_symlinks=False)
        sizes[info.st_ino] = max(info.st_blocks * folders.BLOCK_BYTES, folders.MIN_ENTRY_BYTES)
    return sum(sizes.values()), len(sizes)


def _owner(number: int) -> int:
    return number if 0 <= number < IDS else NOBODY


def _mtime(member: tarfile.TarInfo) -> int:
    return min(max(int(member.mtime), 0), MAX_MTIME)


def _parts(name: str) -> list[str]:
    """Split a path of an archive; an absolute path starts at the image's root."""
    parts = [part for part in name.split("/") if part not in ("", ".")]
    if ".." in parts or "\0" in name or len(parts) > MAX_DEPTH:
        raise BadLayer(f"a layer of the image has a file with the forbidden name {name[:200]!r}")
    return parts


def _key_below(key: int, name: str) -> int:
    return hash((key, name))


def _key_of(parts: Sequence[str]) -> int:
    """Return a number for a path: texts of deep paths, and of all folders above, would need gigabytes."""
    key = _ROOT_KEY
    for name in parts:
        key = _key_below(key, name)
    return key


def _open_folder(outer: int, name: str) -> int | None:
    """Open a folder; None if the name is missing or not a folder, such as a link."""
    try:
        return os.open(name, _FOLDER_FLAGS, dir_fd=outer)
    except OSError as error:
        if error.errno in (errno.ENOENT, errno.ENOTDIR, errno.ELOOP):
            return None
        raise


def _exists(outer: int, name: str) -> bool:
    try:
        os.stat(name, dir_fd=outer, follow_symlinks=False)
    except FileNotFoundError:
        return False
    return True


def _remove(folder: int, name: str) -> None:
    """Remove a file or folder tree without following links."""
    try:
        os.unlink(name, dir_fd=folder)
    except FileNotFoundError:
        return
    except IsADirectoryError:
        shutil.rmtree(name, dir_fd=folder)


def _write_all(descriptor: int, block: bytes) -> None:
    view = memoryview(block)
    while view:
        view = view[os.write(descriptor, view) :]
