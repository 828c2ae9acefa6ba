"""Unpacking the layers of an image, one over the other, into a folder of the platform's user.

A layer is an archive from a stranger, and its names are made to lead elsewhere if they can. So no path is ever given to
the system: every name is walked part by part from the open root, and no part of it may be a link. Owners, devices and
the rights of owners are left out, since all users of the machine may read the files and none may change them.
"""

from __future__ import annotations

import contextlib
import errno
import gzip
import importlib
import os
import shutil
import subprocess
import tarfile
import threading
import zlib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import IO, Any, Protocol, Self, cast

from moorage.runtime.images.references import PullFailed

MB = 2**20
GB = 2**30
MOST_UNPACKED = 8 * GB
MOST_ENTRIES = 500_000
MOST_HEADER = 64 * 1024  # Python keeps the long form of a header in memory, and older ones read it slowly.
DEEPEST = 128
LAST_MOMENT = 2**33  # Times are kept, because Python trusts compiled files by them; absurd ones are cut.
_BLOCK = MB
_DISK_BLOCK = 4096
_CHECK_BYTES, _CHECK_ENTRIES = 8 * MB, 512  # between two looks at the room on the disk
_MOST_READS_AT_END = 8
_GZIP, _ZSTD = b"\x1f\x8b", b"\x28\xb5\x2f\xfd"
_ZSTD_MODULES = ("compression.zstd", "backports.zstd")  # The first comes with Python 3.14.
_WHITEOUT, _MARK, _OPAQUE = ".wh.", ".wh..wh.", ".wh..wh..opq"
_FOLDER_FLAGS = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE_FLAGS = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_LONG_HEADERS = frozenset(
    {
        tarfile.XHDTYPE,
        tarfile.XGLTYPE,
        tarfile.SOLARIS_XHDTYPE,
        tarfile.GNUTYPE_LONGNAME,
        tarfile.GNUTYPE_LONGLINK,
    }
)
_BROKEN = (tarfile.TarError, zlib.error, gzip.BadGzipFile, EOFError, ValueError, LookupError, OverflowError)


class BadLayer(PullFailed):
    """A layer cannot be unpacked; the message is a sentence for the user."""


class TooLarge(BadLayer):
    """An image unpacks to more bytes or files than it may."""


class Readable(Protocol):
    def read(self, size: int, /) -> bytes: ...


class _Header(tarfile.TarInfo):
    """Refuses what would make the reader of the archive take memory or run in circles."""

    @classmethod
    def frombuf(cls, buf: bytes | bytearray, encoding: str, errors: str) -> Self:
        header = super().frombuf(buf, encoding, errors)
        if header.size < 0 or (header.type in _LONG_HEADERS and header.size > MOST_HEADER):
            raise BadLayer("a layer of the image has a header of an impossible size")
        return header


class Unpacker:
    """Applies the layers of one image to an empty folder, the lowest first. Runs in a thread; `stop` ends it."""

    def __init__(
        self,
        root: Path,
        *,
        most_bytes: int = MOST_UNPACKED,
        most_entries: int = MOST_ENTRIES,
        check_room: Callable[[], None] = lambda: None,
        stop: threading.Event | None = None,
    ) -> None:
        """`check_room` raises where the disk has no room for more; it is called every few megabytes or files."""
        self.skipped = 0  # devices, pipes and the like
        self.written_bytes = 0
        self.entries = 0
        self._root = root
        self._most_bytes = most_bytes
        self._most_entries = most_entries
        self._check_room = check_room
        self._checked = (0, 0)
        self._stop = stop or threading.Event()
        self._read_bytes = 0
        self._made: set[str] = set()  # by the layer at hand: what hides lower layers leaves these alone

    def apply(self, layer: Path) -> None:
        """Put one layer over those before it; raises BadLayer, and what is then in the folder is of no use."""
        self._made = set()
        try:
            with _open_layer(layer) as packed:
                source = _Counted(packed, self)
                self._unpack(source)
                while source.read(_BLOCK):  # The packing's own checksum stands at its end.
                    pass
        except _BROKEN as error:
            raise BadLayer(f"a layer of the image cannot be read: {error}") from None
        except OSError as error:
            raise BadLayer(f"a layer of the image cannot be unpacked: {error.strerror or error}") from None

    def count_read(self, size: int) -> None:
        self._read_bytes += size
        if self._stop.is_set():
            raise BadLayer("the pull was given up")
        if self._read_bytes > self._most_bytes:
            raise self._too_large()

    def _too_large(self) -> TooLarge:
        return TooLarge(f"the image unpacks to more than {size_text(self._most_bytes)}")

    def _unpack(self, source: Readable) -> None:
        with tarfile.open(fileobj=cast("IO[bytes]", source), mode="r|", bufsize=_BLOCK, tarinfo=_Header) as archive:
            while (member := archive.next()) is not None:
                archive.members.clear()  # type: ignore[attr-defined]  # Else it keeps every header it has seen.
                self._count_entry(member)
                self._place(archive, member)

    def _count_entry(self, member: tarfile.TarInfo) -> None:
        self._count_inode()
        if not 0 <= member.size <= self._most_bytes:
            raise self._too_large()

    def _count_inode(self) -> None:
        """Count an entry, or a folder that no entry names: each takes an inode, and a block at most."""
        self.entries += 1
        if self.entries > self._most_entries:
            raise TooLarge(f"the image has more than {self._most_entries:,} files")
        self._count_written(_DISK_BLOCK)

    def _place(self, archive: tarfile.TarFile, member: tarfile.TarInfo) -> None:
        parts = _parts(member.name)
        if not parts:  # the root itself
            return
        if any(part.startswith(_WHITEOUT) for part in parts[:-1]):
            self.skipped += 1  # what an old file system kept for itself
        elif parts[-1].startswith(_WHITEOUT):
            self._hide_lower(parts)
        elif member.isdir():
            with self._folder(parts, make=True):
                pass
        elif member.isreg():
            self._write(archive, member, parts)
        elif member.issym():
            self._link_softly(member.linkname, parts)
        elif member.islnk():
            self._link_hard(_parts(member.linkname), parts)
        else:
            self.skipped += 1

    def _write(self, archive: tarfile.TarFile, member: tarfile.TarInfo, parts: Sequence[str]) -> None:
        with self._place_for(parts) as folder:
            # Without owners there are two kinds of files: those that can be run, and the rest.
            mode = 0o755 if member.mode & 0o111 else 0o644
            descriptor = os.open(parts[-1], _FILE_FLAGS, 0o600, dir_fd=folder)
            with open(descriptor, "wb", buffering=0) as file, cast("IO[bytes]", archive.extractfile(member)) as content:
                while block := content.read(_BLOCK):
                    self._count_written(len(block))
                    _write_all(descriptor, block)
                os.fchmod(file.fileno(), mode)
                moment = min(max(int(member.mtime), 0), LAST_MOMENT)
                os.utime(file.fileno(), (moment, moment))

    def _count_written(self, size: int) -> None:
        """Count also what was never read: a file with holes is short in the archive and long on disk."""
        self.written_bytes += size
        if self.written_bytes > self._most_bytes:
            raise self._too_large()
        checked_bytes, checked_entries = self._checked
        if self.written_bytes - checked_bytes >= _CHECK_BYTES or self.entries - checked_entries >= _CHECK_ENTRIES:
            self._checked = (self.written_bytes, self.entries)
            self._check_room()

    def _link_softly(self, target: str, parts: Sequence[str]) -> None:
        with self._place_for(parts) as folder:
            os.symlink(target, parts[-1], dir_fd=folder)

    def _link_hard(self, target: Sequence[str], parts: Sequence[str]) -> None:
        if list(target) == list(parts):
            return
        with self._folder(target[:-1], make=False) as source:
            if source is None or not target:
                raise BadLayer(f"a layer of the image links to {'/'.join(target)[:200]!r}, which is not in it")
            with self._place_for(parts) as folder:
                os.link(target[-1], parts[-1], src_dir_fd=source, dst_dir_fd=folder, follow_symlinks=False)

    @contextlib.contextmanager
    def _place_for(self, parts: Sequence[str]) -> Iterator[int]:
        """Give the open folder of a new entry, in which nothing has its name any more."""
        with self._folder(parts[:-1], make=True) as folder:
            assert folder is not None  # It was to be made.
            _remove(folder, parts[-1])
            self._made.add("/".join(parts))
            yield folder

    @contextlib.contextmanager
    def _folder(self, parts: Sequence[str], *, make: bool) -> Iterator[int | None]:
        """Open a folder below the root; None where there is none and none is to be made."""
        here: int | None = os.open(self._root, _FOLDER_FLAGS)
        try:
            for depth in range(1, len(parts) + 1):
                outer = cast("int", here)
                here = self._enter(outer, parts[:depth], make=make)
                os.close(outer)
                if here is None:
                    break
            yield here
        finally:
            if here is not None:
                os.close(here)

    def _enter(self, outer: int, parts: Sequence[str], *, make: bool) -> int | None:
        path, name = "/".join(parts), parts[-1]
        found = _open_folder(outer, name)
        if found is None and make:
            if path in self._made and _is_there(outer, name):
                raise BadLayer(f"a layer of the image has files below {path[:200]!r}, which it says is no folder")
            # As if the layers were mounted over each other: a folder takes the place of what was no folder before.
            _remove(outer, name)
            self._count_inode()
            os.mkdir(name, 0o755, dir_fd=outer)
            found = os.open(name, _FOLDER_FLAGS, dir_fd=outer)
            os.fchmod(found, 0o755)  # whatever the process takes away from new folders
        if make:
            self._made.add(path)
        return found

    def _hide_lower(self, parts: Sequence[str]) -> None:
        """Take away what lower layers have: one name, or all that is in a folder."""
        above, name = parts[:-1], parts[-1]
        with self._folder(above, make=False) as folder:
            if folder is None:
                return
            if name == _OPAQUE:
                self._hide_all(folder, above)
            elif not name.startswith(_MARK):
                [hidden] = _parts(name.removeprefix(_WHITEOUT)) or [""]
                if not hidden:
                    raise BadLayer("a layer of the image hides a file without a name")
                self._hide(folder, [*above, hidden])

    def _hide_all(self, folder: int, above: Sequence[str]) -> None:
        for name in os.listdir(folder):
            self._hide(folder, [*above, name])

    def _hide(self, folder: int, parts: Sequence[str]) -> None:
        if "/".join(parts) not in self._made:
            _remove(folder, parts[-1])
            return
        inner = _open_folder(folder, parts[-1])
        if inner is not None:
            try:
                self._hide_all(inner, parts)
            finally:
                os.close(inner)


class _Counted:
    """What an archive is read from: counts, and does not let it be read on and on past its end."""

    def __init__(self, source: Readable, unpacker: Unpacker) -> None:
        self._source = source
        self._unpacker = unpacker
        self._reads_at_end = 0

    def read(self, size: int, /) -> bytes:
        block = self._source.read(size)
        self._unpacker.count_read(len(block))
        if not block:
            self._reads_at_end += 1
            if self._reads_at_end > _MOST_READS_AT_END:
                raise BadLayer("a layer of the image ends too early")
        return block


def size_text(size: int) -> str:
    if size < MB:
        return f"{size:,} bytes"
    return f"{size / GB:.3g} GB" if size >= GB else f"{size / MB:.3g} MB"


@contextlib.contextmanager
def _open_layer(path: Path) -> Iterator[Readable]:
    """Open a layer unpacked. What it begins with tells more than what the manifest calls it."""
    with path.open("rb", buffering=0) as file:  # Another program may read on from where this one stands.
        start = file.read(4)
        file.seek(0)
        if start.startswith(_GZIP):
            with gzip.GzipFile(fileobj=file) as opened:
                yield opened
        elif start == _ZSTD:
            with open_zstd(file) as unpacked:
                yield unpacked
        else:
            yield file


@contextlib.contextmanager
def open_zstd(
    file: IO[bytes], modules: Sequence[str] = _ZSTD_MODULES, program: str | None = shutil.which("zstd")
) -> Iterator[Readable]:
    """Unpack with what there is: Python can do it since 3.14, before that the program of the system can."""
    module = _find_module(modules)
    if module is not None:
        with module.ZstdFile(file) as opened:
            yield opened
    elif program is not None:
        yield from _by_program(file, program)
    else:
        raise BadLayer("the image is packed with zstd, which this platform can only read with the program 'zstd'")


def _find_module(names: Sequence[str]) -> Any:
    for name in names:
        with contextlib.suppress(ImportError):
            return importlib.import_module(name)
    return None


def _by_program(file: IO[bytes], program: str) -> Iterator[Readable]:
    argv = [program, "--decompress", "--stdout", "--quiet"]
    with subprocess.Popen(argv, stdin=file, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env={}) as running:
        try:
            yield cast("IO[bytes]", running.stdout)
            if running.wait() != 0:
                raise BadLayer("a layer of the image cannot be read: it is no valid zstd")
        finally:
            running.kill()


def _parts(name: str) -> list[str]:
    """Split a name of an archive; an absolute one counts from the image's root."""
    parts = [part for part in name.split("/") if part not in ("", ".")]
    if ".." in parts or "\0" in name or len(parts) > DEEPEST:
        raise BadLayer(f"a layer of the image has a file with the forbidden name {name[:200]!r}")
    return parts


def _open_folder(outer: int, name: str) -> int | None:
    """Open a folder; None where there is nothing of that name, or something else, such as a link."""
    try:
        return os.open(name, _FOLDER_FLAGS, dir_fd=outer)
    except OSError as error:
        if error.errno in (errno.ENOENT, errno.ENOTDIR, errno.ELOOP):
            return None
        raise


def _is_there(outer: int, name: str) -> bool:
    try:
        os.stat(name, dir_fd=outer, follow_symlinks=False)
    except FileNotFoundError:
        return False
    return True


def _remove(folder: int, name: str) -> None:
    """Remove a name with all that is below it. Nothing is removed through a link."""
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
