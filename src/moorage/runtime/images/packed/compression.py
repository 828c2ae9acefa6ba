"""Decompresses archives of tenants."""

from __future__ import annotations

import bz2
import contextlib
import gzip
import importlib
import lzma
import shutil
import subprocess
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import IO, Any, Protocol, cast

from moorage.runtime.images.packed.headers import BadLayer

MAGIC = (b"\x1f\x8b", b"\x28\xb5\x2f\xfd", b"BZh", b"\xfd7zXZ\x00")
MAX_XZ_MEMORY = 128 * 2**20  # An archive chooses the memory that its decompression needs: `xz -9` 65 MB.
_GZIP, _ZSTD, _BZIP2, _XZ = MAGIC
_PIECE = 64 * 1024
_MAX_READS_AT_END = 8
_ZSTD_MODULES = ("compression.zstd", "backports.zstd")  # The first is part of Python 3.14.


class Readable(Protocol):
    def read(self, size: int, /) -> bytes: ...


class CountingReader:
    """Counts read bytes, also of members that are skipped, and fails on repeated reads past the end."""

    def __init__(self, source: Readable, count: Callable[[int], None]) -> None:
        """`count` raises if an archive has too many bytes."""
        self._source = source
        self._count = count
        self._reads_at_end = 0

    def read(self, size: int, /) -> bytes:
        block = self._source.read(size)
        self._count(len(block))
        if not block:
            self._reads_at_end += 1
            if self._reads_at_end > _MAX_READS_AT_END:
                raise BadLayer("an archive of the image ends too early")
        return block


@contextlib.contextmanager
def open_layer(path: Path) -> Iterator[Readable]:
    """Open a layer decompressed; its magic bytes decide, not its media type."""
    with path.open("rb", buffering=0) as file:  # unbuffered, because the zstd program reads from the same offset
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
def open_archive(path: Path) -> Iterator[Readable]:
    """Open an archive decompressed that is not a layer, with the compressions of tar."""
    with path.open("rb", buffering=0) as file:
        start = file.read(6)
        file.seek(0)
        if start.startswith(_BZIP2):
            with bz2.BZ2File(file) as opened:
                yield opened
        elif start == _XZ:
            yield XzReader(file)
        else:
            with open_layer(path) as unpacked:
                yield unpacked


class NeedsMemory(BadLayer):
    def __init__(self) -> None:
        super().__init__(f"its decompression needs more than {MAX_XZ_MEMORY // 2**20} MB of memory")


class XzReader:
    """Decompresses xz with a limit of memory, which `lzma.LZMAFile` does not have; several streams are one file."""

    def __init__(self, file: Readable) -> None:
        self._file = file
        self._decompressor = _new_decompressor()

    def read(self, size: int, /) -> bytes:
        while True:
            data = b""
            if self._decompressor.eof:
                data = self._decompressor.unused_data.lstrip(b"\0") or self._file.read(_PIECE).lstrip(b"\0")
                if not data:
                    return b""
                self._decompressor = _new_decompressor()
            elif self._decompressor.needs_input:
                data = self._file.read(_PIECE)
                if not data:
                    raise EOFError("the compressed file ends too early")
            try:
                block = self._decompressor.decompress(data, size)
            except lzma.LZMAError as error:
                raise NeedsMemory if "Memory usage limit" in str(error) else error from None
            if block:
                return block


def _new_decompressor() -> lzma.LZMADecompressor:
    return lzma.LZMADecompressor(lzma.FORMAT_XZ, memlimit=MAX_XZ_MEMORY)


@contextlib.contextmanager
def open_zstd(
    file: IO[bytes], modules: Sequence[str] = _ZSTD_MODULES, program: str | None = shutil.which("zstd")
) -> Iterator[Readable]:
    """Decompress with a Python module (standard since 3.14), else the program."""
    module = _find_module(modules)
    if module is not None:
        with module.ZstdFile(file) as opened:
            yield opened
    elif program is not None:
        yield from _by_program(file, program)
    else:
        raise BadLayer("the image is compressed with zstd, and the program 'zstd' is not installed on the platform")


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
                raise BadLayer("a layer of the image cannot be read: it is not valid zstd")
        finally:
            running.kill()
