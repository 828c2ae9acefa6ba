"""ClamAV's daemon, asked over its own protocol: a file is sent in pieces (`INSTREAM`), and one line comes back."""

from __future__ import annotations

import re
import socket
from dataclasses import dataclass
from pathlib import Path

from moorage.runtime.scan.findings import ScanUnavailable
from moorage.settings import BadSettings

TIMEOUT_S = 10.0
CHUNK = 64 * 1024
LONGEST_ANSWER = 4096

Address = str | tuple[str, int]  # a socket's path, or a host and its port


@dataclass(frozen=True, slots=True)
class Clamd:
    """A daemon that is asked about one file at a time; each file has a connection of its own."""

    address: Address
    timeout_s: float = TIMEOUT_S

    @classmethod
    def at(cls, text: str) -> Clamd:
        """Make one of what the operator wrote: the path of a socket, or `host:port`; raises BadSettings."""
        if text.startswith("/"):
            return cls(text)
        written = re.fullmatch(r"(\[[0-9a-fA-F:.]+\]|[^:\[\]/\s]+):([0-9]{1,5})", text)
        if written is None or not 0 < int(written[2]) < 65536:
            raise BadSettings(f"MOORAGE_CLAMD: should be the path of a socket or host:port, not {text!r}")
        return cls((written[1].strip("[]"), int(written[2])))

    def find(self, file: Path) -> str | None:
        """Return the name of the signature that a file matches; raises ScanUnavailable without a clear answer."""
        try:
            answer = self._ask(file)
        except OSError as error:
            raise ScanUnavailable("The files were refused: the virus scanner does not answer; try again") from error
        if answer == "stream: OK":
            return None
        found = re.fullmatch(r"stream: (.+) FOUND", answer)
        if found is None:
            raise ScanUnavailable("The files were refused: the virus scanner could not check them; try again")
        return found[1]

    def _ask(self, file: Path) -> str:
        with self._connect() as connection, file.open("rb") as content:
            connection.settimeout(self.timeout_s)
            try:
                connection.sendall(b"zINSTREAM\0")
                while piece := content.read(CHUNK):
                    connection.sendall(len(piece).to_bytes(4) + piece)
                connection.sendall(bytes(4))
            except (BrokenPipeError, ConnectionResetError):
                pass  # It has seen enough and said so, which is read below; where it has not, there is no answer there.
            return _read_line(connection)

    def _connect(self) -> socket.socket:
        if isinstance(self.address, tuple):
            return socket.create_connection(self.address, self.timeout_s)
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            connection.settimeout(self.timeout_s)
            connection.connect(self.address)
        except OSError:
            connection.close()
            raise
        return connection


def _read_line(connection: socket.socket) -> str:
    answer = b""
    while b"\0" not in answer and len(answer) < LONGEST_ANSWER:
        piece = connection.recv(LONGEST_ANSWER)
        if not piece:
            break
        answer += piece
    line, end, _ = answer.partition(b"\0")
    if not end:
        raise ConnectionError("the answer has no end")
    return line.decode(errors="replace")
