"""Requests between a process of the platform and the listener beside an edge.

Both have certificates of the authority that processes derive from the master key. A request is a line, and so is its
answer; `EDGE` makes the connection one to the edge itself, for HTTP.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
from typing import Any

EDGE = b"edge\n"  # answered with OK once the edge has accepted the connection
RECORDS = b"records\n"  # store all records; OK, or NO if some could not be stored
PUBLISH = b"publish"  # organization and function: OK once the edge has the current state of the function
LOG = b"log"  # organization, function and reference: the size of the packed text and the text; or GONE
OK, NO, GONE = b"ok\n", b"no\n", b"-1\n"
MAX_LINE_BYTES = 512
KEEPALIVE = {socket.TCP_KEEPIDLE: 10, socket.TCP_KEEPINTVL: 5, socket.TCP_KEEPCNT: 3}  # seconds, seconds, probes
UNACKNOWLEDGED_MS = 25_000


def detect_loss(transport: asyncio.BaseTransport) -> None:
    """End the connection when the other machine is gone: a call has no time limit of its own."""
    sock: Any = transport.get_extra_info("socket")
    with contextlib.suppress(OSError):
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for option, value in KEEPALIVE.items():
            sock.setsockopt(socket.IPPROTO_TCP, option, value)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, UNACKNOWLEDGED_MS)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
