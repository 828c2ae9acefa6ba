"""Protocol messages before TLS, for the proxy of a public database.

A client requests TLS before it sends any secret. PostgreSQL clients send the first message; MySQL clients answer the
server's handshake packet.
"""

from __future__ import annotations

import struct
from enum import Enum
from typing import Protocol

NO_TLS = "this database accepts connections from outside with TLS only"
TOO_MANY = "too many connections to this database"
TOO_MANY_OF_ADDRESS = "too many connections to this database from your address"


class Verdict(Enum):
    """How to handle the first bytes of a client."""

    WAIT = "wait"  # The message is incomplete.
    TLS = "tls"  # A TLS request: forward it, and require the server to accept.
    FORWARD = "forward"  # Forward unchanged: TLS from the first byte, or a request without a session.
    DECLINE = "decline"  # Decline an optional feature; the client's next request decides.
    NO_TLS = "no_tls"  # A login without TLS.
    INVALID = "invalid"  # Not a message of this protocol.


class Wire(Protocol):
    server_speaks_first: bool
    request_bytes: int  # of a request that is declined

    def judge(self, data: bytes) -> Verdict: ...

    def is_agreed(self, data: bytes) -> bool:
        """Whether the server's first bytes after a TLS request accept it."""
        ...

    def decline(self) -> bytes: ...

    def refuse_no_tls(self) -> bytes: ...

    def refuse_too_many(self, why: str) -> bytes:
        """Return the error for a client that has not sent anything yet."""
        ...


class PostgreSQLWire:
    server_speaks_first = False
    request_bytes = 8

    _SSL, _GSS, _CANCEL = 80877103, 80877104, 80877102
    _TLS_RECORD = 0x16

    def judge(self, data: bytes) -> Verdict:
        if data[:1] == bytes([self._TLS_RECORD]):  # Clients since PostgreSQL 17 may begin with TLS directly.
            return Verdict.FORWARD
        if len(data) < self.request_bytes:
            return Verdict.WAIT
        length, code = struct.unpack_from("!II", data)
        if code == self._SSL:
            # Bytes behind the request would be plain text that the server reads as if they were encrypted.
            return Verdict.TLS if length == len(data) == self.request_bytes else Verdict.INVALID
        if code == self._GSS:
            return Verdict.DECLINE if length == self.request_bytes else Verdict.INVALID
        if code == self._CANCEL:  # Most clients send it without TLS. It contains only a key for this purpose.
            return Verdict.FORWARD
        return Verdict.NO_TLS if code >> 16 == 3 else Verdict.INVALID

    def is_agreed(self, data: bytes) -> bool:
        return data == b"S"

    def decline(self) -> bytes:
        return b"N"

    def refuse_no_tls(self) -> bytes:
        return _postgres_error("28000", f"{NO_TLS}; connect with sslmode=require")

    def refuse_too_many(self, why: str) -> bytes:
        return _postgres_error("53300", why)


class MySQLWire:
    server_speaks_first = True
    request_bytes = 0

    _CLIENT_SSL = 0x800
    _CLIENT_PROTOCOL_41 = 0x200
    _SSL_REQUEST_BYTES = 32

    def judge(self, data: bytes) -> Verdict:
        if len(data) < 8:
            return Verdict.WAIT
        length = int.from_bytes(data[:3], "little")
        flags = int.from_bytes(data[4:8], "little")
        if data[3] != 1 or not flags & self._CLIENT_PROTOCOL_41:
            return Verdict.INVALID
        if not flags & self._CLIENT_SSL or length != self._SSL_REQUEST_BYTES:
            return Verdict.NO_TLS
        if len(data) < 4 + length:
            return Verdict.WAIT
        return Verdict.TLS

    def is_agreed(self, data: bytes) -> bool:
        return True  # The server offered TLS in its handshake packet, and accepts only TLS now.

    def decline(self) -> bytes:
        return b""

    def refuse_no_tls(self) -> bytes:
        return _mysql_error(2, 3159, "HY000", f"{NO_TLS}; connect with ssl-mode=REQUIRED")

    def refuse_too_many(self, why: str) -> bytes:
        return _mysql_error(0, 1040, "08004", why)


WIRES: dict[str, Wire] = {"postgresql": PostgreSQLWire(), "mysql": MySQLWire()}


def _postgres_error(code: str, message: str) -> bytes:
    fields = [("S", "FATAL"), ("V", "FATAL"), ("C", code), ("M", message)]
    body = b"".join(f"{kind}{value}\0".encode() for kind, value in fields) + b"\0"
    return b"E" + struct.pack("!I", len(body) + 4) + body


def _mysql_error(sequence: int, number: int, state: str, message: str) -> bytes:
    body = b"\xff" + struct.pack("<H", number) + f"#{state}{message}".encode()
    return len(body).to_bytes(3, "little") + bytes([sequence]) + body
