"""The edge as a real process, and plain sockets to it."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from tempfile import TemporaryDirectory


def environment(port: int, data: str) -> dict[str, str]:
    own = {name: value for name, value in os.environ.items() if not name.startswith("MOORAGE_")}
    return own | {"MOORAGE_EDGE_PORT": str(port), "MOORAGE_DATA": data}


@contextmanager
def running_edge(port: int) -> Iterator[subprocess.Popen[bytes]]:
    """Run the process until it listens; kill it at the end if the test has not stopped it."""
    command = [sys.executable, "-m", "moorage.runtime.edge.main"]
    with (
        TemporaryDirectory(prefix="edge-") as data,
        subprocess.Popen(command, env=environment(port, data), stdout=subprocess.PIPE) as process,
    ):
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == b"listening\n"
            yield process
        finally:
            process.kill()


def exchange(port: int, sent: bytes) -> bytes:
    """Send bytes and return the response until the other side closes."""
    with socket.create_connection(("127.0.0.1", port), timeout=10) as client:
        client.sendall(sent)
        return receive_all(client)


def receive_all(client: socket.socket) -> bytes:
    received = b""
    while piece := client.recv(65536):
        received += piece
    return received


def split(answer: bytes) -> tuple[int, dict[str, str], bytes]:
    head, _, body = answer.partition(b"\r\n\r\n")
    status, *lines = head.decode().split("\r\n")
    return int(status.split()[1]), dict(line.split(": ", 1) for line in lines), body
