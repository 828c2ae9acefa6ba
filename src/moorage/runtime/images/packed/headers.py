"""Headers of tar archives from tenants, with limits on what `tarfile` keeps in memory."""

from __future__ import annotations

import contextlib
import gzip
import lzma
import tarfile
import zlib
from collections.abc import Iterator
from typing import Any

from moorage.runtime.images.references import PullFailed

MB = 2**20
MAX_HEADER_BYTES = 64 * 1024  # `tarfile` keeps long headers in memory, and older versions parse them slowly.
MAX_KEPT_BYTES = 1 * MB  # of global headers and maps of sparse files in one archive: lists of many times that size
_LONG_HEADERS = frozenset(
    {
        tarfile.XHDTYPE,
        tarfile.XGLTYPE,
        tarfile.SOLARIS_XHDTYPE,
        tarfile.GNUTYPE_LONGNAME,
        tarfile.GNUTYPE_LONGLINK,
    }
)
# `tarfile` reads a header that follows another one in a recursion.
BROKEN = (
    *(tarfile.TarError, zlib.error, lzma.LZMAError, gzip.BadGzipFile, EOFError),
    *(ValueError, LookupError, OverflowError, RecursionError),
)


class BadLayer(PullFailed):
    """A layer cannot be unpacked; the message is for the user."""


class _MapReader:
    """The file of an archive while `tarfile` reads the map of a sparse file, which has no size in advance."""

    def __init__(self, archive: Any) -> None:
        self._archive = archive
        self._file = archive.fileobj

    def read(self, size: int) -> bytes:
        _count_kept(self._archive, size)
        block: bytes = self._file.read(size)
        return block

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)


@contextlib.contextmanager
def _reading_map(archive: Any) -> Iterator[None]:
    file = archive.fileobj
    archive.fileobj = _MapReader(archive)
    try:
        yield
    finally:
        archive.fileobj = file


def _count_kept(archive: Any, size: int) -> None:
    archive.kept_bytes = getattr(archive, "kept_bytes", 0) + size
    if archive.kept_bytes > MAX_KEPT_BYTES:
        raise BadLayer("an archive has too many global headers, or sparse files with too many parts")


class LimitedHeader(tarfile.TarInfo):
    """Rejects headers that make `tarfile` allocate much memory or loop.

    The checks of sizes are in setters: which method of `TarInfo` parses a header differs between releases of Python.
    """

    def _proc_pax(self, archive: Any) -> Any:
        if self.type == tarfile.XGLTYPE:
            _count_kept(archive, self.size)
        return super()._proc_pax(archive)  # type: ignore[misc]

    def _proc_sparse(self, archive: Any) -> Any:
        with _reading_map(archive):
            return super()._proc_sparse(archive)  # type: ignore[misc]

    def _proc_gnusparse_10(self, member: Any, headers: Any, archive: Any) -> None:
        with _reading_map(archive):
            super()._proc_gnusparse_10(member, headers, archive)  # type: ignore[misc]

    @property
    def size(self) -> int:
        return self._size

    @size.setter
    def size(self, value: int) -> None:
        self._size = value
        self._check()

    @property
    def type(self) -> bytes:
        return self._type

    @type.setter  # noqa: A003
    def type(self, value: bytes) -> None:
        self._type = value
        self._check()

    def _check(self) -> None:
        is_long = getattr(self, "_type", tarfile.REGTYPE) in _LONG_HEADERS
        size = getattr(self, "_size", 0)
        if size < 0 or (is_long and size > MAX_HEADER_BYTES):
            raise BadLayer("a layer of the image has a header of an impossible size")
