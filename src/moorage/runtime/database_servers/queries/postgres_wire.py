"""PostgreSQL's protocol on the socket of a connection that libpq has opened.

libpq reads each row as a whole, up to 1 GB, and has no limit of rows. Here a message that is too long is not read, and
the server itself stops after a number of rows. libpq still does the login.
"""

from __future__ import annotations

import os
import socket
import struct
from collections.abc import Iterator, Sequence
from typing import NamedTuple, Protocol

from moorage.runtime.database_servers.queries.model import MAX_ROW_BYTES, row_too_large

READ_BYTES = 65_536
SILENCE_TIMEOUT_S = 20.0  # after the watchdog, for a server that hangs
_NULL = -1


class WireError(Exception):
    """An error of the server, by the letters of its fields: M message, C SQLSTATE, P position, D detail, H hint."""

    def __init__(self, fields: dict[str, str]) -> None:
        super().__init__(fields.get("M", "unknown error"))
        self.fields = fields


class ConnectionLost(Exception):
    """The server closed the connection, or does not answer."""


class CopyRequested(Exception):
    """The statement transfers data by COPY, which this client does not speak."""


class WireColumn(NamedTuple):
    name: str
    oid: int
    modifier: int


class Receiver(Protocol):
    """Receives the result of a statement."""

    def describe(self, columns: Sequence[WireColumn]) -> None: ...

    def take(self, row: Sequence[bytes | None]) -> None: ...

    def complete(self, tag: str) -> None:
        """End the result; `tag` is such as `INSERT 0 3`, or "" if there are more rows."""
        ...


class Wire:
    def __init__(self, handle: int) -> None:
        self._socket = socket.socket(fileno=os.dup(handle))
        self._socket.settimeout(SILENCE_TIMEOUT_S)
        self._buffer = bytearray()

    def close(self) -> None:
        self._socket.close()

    def command(self, sql: str) -> None:
        """Run statements without results; raises WireError."""
        self._send(_message(b"Q", _text(sql)))
        self._finish(_Ignored())

    def execute(self, sql: str, values: Sequence[str], receiver: Receiver, *, most: int = 0) -> None:
        """Run one statement with parameters, and pass at most `most` rows to the receiver; 0 for all."""
        parameters = b"".join(struct.pack("!i", len(each)) + each for each in (value.encode() for value in values))
        self._send(
            _message(b"P", _text("") + _text(sql) + struct.pack("!h", 0))
            + _message(b"B", _text("") * 2 + struct.pack("!hh", 0, len(values)) + parameters + struct.pack("!h", 0))
            + _message(b"D", b"P" + _text(""))
            + _message(b"E", _text("") + struct.pack("!i", most))
            + _message(b"S", b"")
        )
        self._finish(receiver)

    def _finish(self, receiver: Receiver) -> None:
        """Read messages until the server is ready again."""
        error: WireError | None = None
        for kind, body in self._messages():
            match kind:
                case b"T":
                    receiver.describe(list(_columns(body)))
                case b"D":
                    receiver.take(list(_values(body)))
                case b"C":
                    receiver.complete(body[:-1].decode(errors="replace"))
                case b"s":
                    receiver.complete("")
                case b"I":
                    error = WireError({"M": "the statement is empty"})
                case b"E":
                    error = WireError(_fields(body))
                case b"G" | b"H" | b"W":
                    raise CopyRequested
                case b"Z":
                    break
        if error is not None:
            raise error

    def _messages(self) -> Iterator[tuple[bytes, bytes]]:
        while True:
            kind, length = struct.unpack("!ci", self._read(5))
            if length > MAX_ROW_BYTES:
                raise row_too_large()
            yield kind, self._read(length - 4)

    def _read(self, count: int) -> bytes:
        while len(self._buffer) < count:
            try:
                chunk = self._socket.recv(READ_BYTES)
            except OSError as error:
                raise ConnectionLost from error
            if not chunk:
                raise ConnectionLost
            self._buffer += chunk
        data = bytes(self._buffer[:count])
        del self._buffer[:count]
        return data

    def _send(self, data: bytes) -> None:
        try:
            self._socket.sendall(data)
        except OSError as error:
            raise ConnectionLost from error


class _Ignored:
    def describe(self, columns: Sequence[WireColumn]) -> None: ...

    def take(self, row: Sequence[bytes | None]) -> None: ...

    def complete(self, tag: str) -> None: ...


def _message(kind: bytes, body: bytes) -> bytes:
    return kind + struct.pack("!i", len(body) + 4) + body


def _text(text: str) -> bytes:
    return text.encode() + b"\0"


def _columns(body: bytes) -> Iterator[WireColumn]:
    (count,) = struct.unpack_from("!h", body)
    at = 2
    for _ in range(count):
        end = body.index(b"\0", at)
        _, _, oid, _, modifier, _ = struct.unpack_from("!IhIhih", body, end + 1)
        yield WireColumn(body[at:end].decode(errors="replace"), oid, modifier)
        at = end + 1 + 18


def _values(body: bytes) -> Iterator[bytes | None]:
    (count,) = struct.unpack_from("!h", body)
    at = 2
    for _ in range(count):
        (length,) = struct.unpack_from("!i", body, at)
        at += 4
        if length == _NULL:
            yield None
        else:
            yield body[at : at + length]
            at += length


def _fields(body: bytes) -> dict[str, str]:
    parts = body.decode(errors="replace").split("\0")
    return {part[0]: part[1:] for part in parts if part}
