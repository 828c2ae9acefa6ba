"""git's pkt-line framing and its side-band multiplexing.

A packet is its length in four hexadecimal digits, which are included in the length, and data. `0000` (flush) ends a
list. With side-band, the first byte of the data is the band: 1 the response, 2 text for the user (`remote: …`), 3 a
fatal error.
"""

from __future__ import annotations

import re
from typing import BinaryIO

FLUSH = b"0000"
MAX_PACKET_BYTES = 65520
ANSWER, PROGRESS, FATAL = 1, 2, 3
_LENGTH = re.compile(rb"[0-9a-fA-F]{4}")


class BadPacket(Exception):
    """The bytes are not valid pkt-lines."""


def packet(data: bytes) -> bytes:
    return b"%04x" % (len(data) + 4) + data


def band(number: int, data: bytes, room: int) -> bytes:
    """Return data as packets of one band, with at most `room` bytes in each."""
    pieces = (data[at : at + room] for at in range(0, len(data), room))
    return b"".join(packet(bytes([number]) + piece) for piece in pieces)


def read_packet(file: BinaryIO) -> bytes | None:
    """Return the data of the next packet, None for a flush; raises BadPacket."""
    size = _size(file.read(4))
    if size == 0:
        return None
    data = file.read(size - 4) if size >= 4 else b""
    if size < 4 or len(data) < size - 4:
        raise BadPacket("a packet ends early")
    return data


class Packets:
    """Splits a stream into packets, including their length prefix."""

    def __init__(self) -> None:
        self._rest = b""

    def feed(self, data: bytes) -> list[bytes]:
        """Return the complete packets; raises BadPacket."""
        rest, packets = self._rest + data, []
        while len(rest) >= 4:
            size = max(_size(rest[:4]), 4)
            if len(rest) < size:
                break
            packets.append(rest[:size])
            rest = rest[size:]
        self._rest = rest
        return packets


def _size(digits: bytes) -> int:
    size = int(digits, 16) if _LENGTH.fullmatch(digits) else MAX_PACKET_BYTES + 1
    if size > MAX_PACKET_BYTES:
        raise BadPacket(f"{digits!r} is not a valid packet length")
    return size
