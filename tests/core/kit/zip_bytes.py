"""Archives as bytes for the tests: valid ones, and malicious ones that no tool writes."""

import struct
import zlib
from dataclasses import dataclass

MB = 1024 * 1024
LINK, FIFO, DEVICE, SOCKET, FOLDER = (kind | 0o644 for kind in (0o120000, 0o010000, 0o020000, 0o140000, 0o040000))


def deflate(data: bytes) -> bytes:
    packer = zlib.compressobj(9, zlib.DEFLATED, -15)
    return packer.compress(data) + packer.flush()


@dataclass(frozen=True)
class Piece:
    """One entry as bytes; the defaults are the values of a regular tool."""

    name: bytes
    data: bytes = b"hello"
    method: int = 0
    flags: int = 0
    mode: int = 0o100644
    packed: bytes | None = None
    size: int | None = None
    crc: int | None = None
    local_name: bytes | None = None
    local_method: int | None = None
    offset: int | None = None
    packed_size: int | None = None
    extra: bytes = b""
    comment: bytes = b""

    @property
    def body(self) -> bytes:
        return self.packed if self.packed is not None else deflate(self.data) if self.method == 8 else self.data

    @property
    def numbers(self) -> tuple[int, int, int]:
        crc = zlib.crc32(self.data) if self.crc is None else self.crc
        packed_size = len(self.body) if self.packed_size is None else self.packed_size
        return crc, packed_size, len(self.data) if self.size is None else self.size

    def local(self) -> bytes:
        name = self.name if self.local_name is None else self.local_name
        method = self.method if self.local_method is None else self.local_method
        head = struct.pack("<4s5H3L2H", b"PK\3\4", 20, self.flags, method, 0, 33, *self.numbers, len(name), 0)
        return head + name + self.body

    def central(self, offset: int) -> bytes:
        lengths = (len(self.name), len(self.extra), len(self.comment), 0, 0)
        where = offset if self.offset is None else self.offset
        head = struct.pack(
            *("<4s6H3L5H2L", b"PK\1\2", 0x0314, 20, self.flags, self.method, 0, 33),
            *(*self.numbers, *lengths, self.mode << 16, where),
        )
        return head + self.name + self.extra + self.comment


def archive(*pieces: Piece, count: int | None = None, disk: int = 0, shift: int = 0) -> bytes:
    body, directory = b"", b""
    for piece in pieces:
        directory += piece.central(len(body))
        body += piece.local()
    return body + directory + end_record(directory, len(body) + shift, len(pieces) if count is None else count, disk)


def end_record(directory: bytes, offset: int, count: int, disk: int = 0) -> bytes:
    return struct.pack("<4s4H2LH", b"PK\5\6", disk, disk, count, count, len(directory), offset, 0)


def end_record64(directory: bytes, offset: int, count: int) -> bytes:
    where = offset + len(directory)
    record = struct.pack("<4sQ2H2L4Q", b"PK\6\6", 44, 45, 45, 0, 0, count, count, len(directory), offset)
    locator = struct.pack("<4sLQL", b"PK\6\7", 0, where, 1)
    return record + locator + struct.pack("<4s4H2LH", b"PK\5\6", 0, 0, 0xFFFF, 0xFFFF, 0xFFFFFFFF, 0xFFFFFFFF, 0)


def shared_record_bomb(copies: int) -> bytes:
    """Many directory entries that all point to the same compressed megabyte."""
    piece = Piece(b"bomb", b"\0" * MB, method=8)
    body = piece.local()
    names = [b"bomb", *(b"bomb%d" % number for number in range(1, copies))]
    directory = b"".join(Piece(name, piece.data, method=8).central(0) for name in names)
    return body + directory + end_record(directory, len(body), copies)


def quoting_bomb(copies: int) -> bytes:
    """Entries with their own headers; the data of each contains the header and data of the next."""
    piece = Piece(b"%08d" % copies, b"\0" * MB, method=8)
    chain = [piece]
    for number in range(copies - 1, 0, -1):
        quoted = piece.local()[: 30 + 8]
        block = struct.pack("<BHH", 0, len(quoted), len(quoted) ^ 0xFFFF) + quoted
        piece = Piece(b"%08d" % number, quoted + piece.data, method=8, packed=block + piece.body)
        chain.insert(0, piece)
    offsets = [index * (30 + 8 + 5) for index in range(copies)]
    body = chain[0].local()
    directory = b"".join(piece.central(offset) for piece, offset in zip(chain, offsets, strict=True))
    return body + directory + end_record(directory, len(body), copies)


def zip64_archive(piece_offset: int | None = None) -> bytes:
    """An archive with all numbers in ZIP64 records."""
    data = b"long numbers"
    local = Piece(b"a.txt", data).local()
    extra = struct.pack("<2H3Q", 1, 24, len(data), len(data), piece_offset or 0)
    blank = 0xFFFFFFFF
    directory = Piece(b"a.txt", data, size=blank, packed_size=blank, offset=blank, extra=extra).central(0)
    return local + directory + end_record64(directory, len(local), 1)


class Unseekable:
    """A sink that cannot seek, so that zipfile writes data descriptors."""

    def __init__(self) -> None:
        self.data = b""

    def write(self, data: bytes) -> int:
        self.data += data
        return len(data)

    def flush(self) -> None:
        pass
