"""Load a configuration into Caddy through its admin API on a unix socket.

On a load Caddy starts the new servers before it stops the old ones, and the old ones finish their running requests,
however long these take. For a moment both accept connections, and Caddy answers the load before that moment is over. So
`load` counts the listening sockets until only the new servers accept. An old server closes a connection that it has
accepted but not read, and idle ones, without an answer: Go's server reads no more requests once it shuts down. For that
reason a deployment loads nothing, and a burst of changes causes one load.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from moorage.core.net.http1 import ResponseError
from moorage.core.net.local_http import LocalHttp, NotConnected, Reply

LOAD_TIMEOUT_S = 30.0
HANDOVER_TIMEOUT_S = 5.0
HANDOVER_POLL_INTERVAL_S = 0.001

_TABLES = (Path("/proc/net/tcp"), Path("/proc/net/tcp6"))
_LISTENS = "0A"


class Refused(Exception):
    """Caddy rejected the configuration and keeps the current one."""


class Unreachable(Exception):
    """Caddy does not listen, or closed the connection without an answer."""


async def load(socket: Path, config: bytes, ports: Sequence[int]) -> None:
    """Load a configuration, wait for the new servers; raises Refused or Unreachable."""
    before = {port: max(_listening(port), 1) for port in ports}
    reply = await _send(socket, config)
    if reply.status != 200:
        raise Refused(_reason(reply.body))
    try:
        async with asyncio.timeout(HANDOVER_TIMEOUT_S):
            while any(_listening(port) > count for port, count in before.items()):  # noqa: ASYNC110 - Caddy has no event
                await asyncio.sleep(HANDOVER_POLL_INTERVAL_S)
    except TimeoutError as error:
        raise Unreachable("its previous servers still accept connections") from error


async def running(socket: Path) -> Any:
    """Return Caddy's current configuration as JSON values; raises Unreachable."""
    reply = await _send(socket, b"", "GET", "/config/")
    try:
        return json.loads(reply.body)
    except ValueError as error:
        raise Unreachable("its admin API returned no JSON") from error


async def _send(socket: Path, config: bytes, method: str = "POST", path: str = "/load") -> Reply:
    http = LocalHttp(socket)
    try:
        async with asyncio.timeout(LOAD_TIMEOUT_S):
            return await http.send(method, path, config)
    except (NotConnected, ResponseError, TimeoutError) as error:
        raise Unreachable(str(error) or "no answer in time") from error
    finally:
        # A load also replaces the admin server, so the connection cannot be reused.
        await http.close()


def _listening(port: int) -> int:
    """Return how many sockets of this machine listen on a port, on any address."""
    return sum(_count(table, f":{port:04X}") for table in _TABLES if table.exists())


def _count(table: Path, ending: str) -> int:
    listeners = 0
    with table.open() as lines:
        next(lines)
        for line in lines:
            _, local, _, state, *_ = line.split()
            if state != _LISTENS:  # Listening sockets come first; there may be very many others.
                break
            listeners += local.endswith(ending)
    return listeners


def _reason(body: bytes) -> str:
    try:
        return str(json.loads(body)["error"])
    except (ValueError, KeyError, TypeError):
        return body.decode(errors="replace")[:500]
