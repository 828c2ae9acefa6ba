"""git's framing: packets with their length in front, and several streams carried in one.

A packet is four hexadecimal digits, which count themselves, and data. `0000` ends a list. On the side band the first
byte of the data says what it is: 1 the answer itself, 2 text for the user (`remote: …`), 3 the last words.
"""

from __future__ import annotations

import re
from typing import BinaryIO

FLUSH = b"0000"
LONGEST = 65520
ANSWER, PROGRESS, FATAL = 1, 2, 3
_LENGTH = re.compile(rb"[0-9a-fA-F]{4}")


class BadPacket(Exception):
    """What came is not made of packets."""


def packet(data: bytes) -> bytes:
    return b"%04x" % (len(data) + 4) + data


def band(number: int, data: bytes, room: int) -> bytes:
    """Return data as packets of one band, with at most `room` bytes in each."""
    pieces = (data[at : at + room] for at in range(0, len(data), room))
    return b"".join(packet(bytes([number]) + piece) for piece in pieces)


def read_packet(file: BinaryIO) -> bytes | None:
    """Return the data of the next packet of a file, or None at the end of the list; raises BadPacket."""
    size = _size(file.read(4))
    if size == 0:
        return None
    data = file.read(size - 4) if size >= 4 else b""
    if size < 4 or len(data) < size - 4:
        raise BadPacket("a packet ends early")
    return data


class Packets:
    """Cuts a stream into its packets, each with its length still in front."""

    def __init__(self) -> None:
        self._rest = b""

    def feed(self, data: bytes) -> list[bytes]:
        """Return the packets that are whole now; raises BadPacket."""
        rest, found = self._rest + data, []
        while len(rest) >= 4:
            size = max(_size(rest[:4]), 4)
            if len(rest) < size:
                break
            found.append(rest[:size])
            rest = rest[size:]
        self._rest = rest
        return found


def _size(digits: bytes) -> int:
    size = int(digits, 16) if _LENGTH.fullmatch(digits) else LONGEST + 1
    if size > LONGEST:
        raise BadPacket(f"{digits!r} is no length")
    return size
