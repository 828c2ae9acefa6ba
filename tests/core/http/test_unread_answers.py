"""Connections of clients that do not read their answers, on real sockets."""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import Iterator
from typing import Any

import pytest
from tests.core.http.live_server import LOOPBACK, PATIENCE_S, LiveServer, live_server, request

LONG = b"x" * 32 * 2**20
PIECE_BYTES = 1024
SLOW_STEP_S = 0.1


async def application(scope: dict[str, Any], receive: Any, send: Any) -> None:
    """Answers `/long` with a long body in one piece, and every other path with the same body in small pieces."""
    await send({"type": "http.response.start", "status": 200, "headers": []})
    if scope["path"] == "/long":
        await send({"type": "http.response.body", "body": LONG})
        return
    for begin in range(0, len(LONG), PIECE_BYTES):
        await send({"type": "http.response.body", "body": LONG[begin : begin + PIECE_BYTES], "more_body": True})
        await asyncio.sleep(0)
    await send({"type": "http.response.body", "body": b""})


@pytest.fixture(scope="module")
def server() -> Iterator[LiveServer]:
    with live_server(application, unread_s=1.0) as server:
        yield server
        assert server.crashes == []


def connect(server: LiveServer, path: str) -> socket.socket:
    """Send a request from a socket with a small receive buffer."""
    client = socket.socket()
    client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 16 * 1024)
    client.settimeout(PATIENCE_S)
    client.connect((LOOPBACK, server.port))
    client.sendall(request("GET", path, Connection="close"))
    return client


def read_all(client: socket.socket) -> int:
    """Return the number of bytes until the server closes."""
    size = 0
    try:
        while data := client.recv(2**20):
            size += len(data)
    except ConnectionError:
        pass
    return size


@pytest.mark.parametrize("path", ["/long", "/stream"])
def test_a_connection_on_which_no_answer_is_read_is_aborted(server: LiveServer, path: str) -> None:
    with connect(server, path) as client:
        time.sleep(3)

        assert read_all(client) < len(LONG) / 2


def test_a_client_that_reads_slowly_gets_the_whole_answer(server: LiveServer) -> None:
    with connect(server, "/long") as client:
        size, began = 0, time.monotonic()
        while time.monotonic() - began < 3:
            size += len(client.recv(4096))
            time.sleep(SLOW_STEP_S)

        assert size + read_all(client) > len(LONG)
