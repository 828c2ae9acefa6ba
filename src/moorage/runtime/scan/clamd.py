"""Client of the ClamAV daemon, with its `INSTREAM` command."""

from __future__ import annotations

import re
import socket
from pathlib import Path

from moorage.core.kit.records import dataclass
from moorage.runtime.scan.findings import ScanUnavailable
from moorage.settings import BadSettings

TIMEOUT_S = 10.0
CHUNK = 64 * 1024
MAX_ANSWER_BYTES = 4096

Address = str | tuple[str, int]  # path of a unix socket, or host and port


@dataclass(frozen=True, slots=True)
class Clamd:
    """A ClamAV daemon; every file has its own connection."""

    address: Address
    timeout_s: float = TIMEOUT_S

    @classmethod
    def at(cls, text: str) -> Clamd:
        """Parse the setting: the path of a socket, or `host:port`; raises BadSettings."""
        if text.startswith("/"):
            return cls(text)
        address = re.fullmatch(r"(\[[0-9a-fA-F:.]+\]|[^:\[\]/\s]+):([0-9]{1,5})", text)
        if address is None or not 0 < int(address[2]) < 65536:
            raise BadSettings(f"MOORAGE_CLAMD: should be the path of a socket or host:port, not {text!r}")
        return cls((address[1].strip("[]"), int(address[2])))

    def find(self, file: Path) -> str | None:
        """Return the matching signature, or None; raises ScanUnavailable."""
        try:
            answer = self._send(file)
        except OSError as error:
            raise ScanUnavailable("The files were refused: the virus scanner does not answer; try again") from error
        if answer == "stream: OK":
            return None
        signature = re.fullmatch(r"stream: (.+) FOUND", answer)
        if signature is None:
            raise ScanUnavailable("The files were refused: the virus scanner could not check them; try again")
        return signature[1]

    def _send(self, file: Path) -> str:
        with self._connect() as connection, file.open("rb") as content:
            connection.settimeout(self.timeout_s)
            try:
                connection.sendall(b"zINSTREAM\0")
                while piece := content.read(CHUNK):
                    connection.sendall(len(piece).to_bytes(4) + piece)
                connection.sendall(bytes(4))
            except (BrokenPipeError, ConnectionResetError):
                pass  # The daemon may answer early and stop reading; without an answer, reading it fails below.
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
    while b"\0" not in answer and len(answer) < MAX_ANSWER_BYTES:
        piece = connection.recv(MAX_ANSWER_BYTES)
        if not piece:
            break
        answer += piece
    line, end, _ = answer.partition(b"\0")
    if not end:
        raise ConnectionError("the answer has no end")
    return line.decode(errors="replace")
