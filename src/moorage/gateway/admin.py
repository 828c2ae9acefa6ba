"""The gateway's own door: its unix socket takes a new configuration.

A load starts the new servers before it lets the old ones go, and those finish what they were asked, however long that
takes. For a moment both take new connections, and Caddy says that it is done before that is over; so here the sockets
that listen are counted, until whoever asks from now on can only be answered by the new ones. What an old server has
taken but not read by then, it closes without an answer, as it does with connections that are idle: a server of Go that
stops reads no more requests. That is why deployments do not load anything, and a burst of changes loads once.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from moorage.core.net.local_http import BrokenOff, LocalHttp, NotConnected, Reply

HOST = "local"  # what LocalHttp says it asks for; the configuration has to allow it
LOAD_TIMEOUT_S = 30.0
HANDOVER_TIMEOUT_S = 5.0
HANDOVER_LOOK_S = 0.001

_TABLES = (Path("/proc/net/tcp"), Path("/proc/net/tcp6"))
_LISTENS = "0A"


class Refused(Exception):
    """Caddy would not take the configuration, and goes on with the one it has."""


class Unreachable(Exception):
    """Caddy is not there, or went away while it was asked."""


async def load(socket: Path, config: bytes, ports: Sequence[int]) -> None:
    """Put a configuration in force at these ports; raises Refused or Unreachable. Safe to repeat."""
    before = {port: max(_listening(port), 1) for port in ports}
    reply = await _send(socket, config)
    if reply.status != 200:
        raise Refused(_reason(reply.body))
    try:
        async with asyncio.timeout(HANDOVER_TIMEOUT_S):
            while any(_listening(port) > count for port, count in before.items()):  # noqa: ASYNC110 - nobody tells
                await asyncio.sleep(HANDOVER_LOOK_S)
    except TimeoutError as error:
        raise Unreachable("its former servers do not go") from error


async def running(socket: Path) -> Any:
    """Return the configuration that is in force, as JSON values; raises Unreachable."""
    reply = await _send(socket, b"", "GET", "/config/")
    try:
        return json.loads(reply.body)
    except ValueError as error:
        raise Unreachable("it does not tell its configuration") from error


async def _send(socket: Path, config: bytes, method: str = "POST", path: str = "/load") -> Reply:
    http = LocalHttp(socket)
    try:
        async with asyncio.timeout(LOAD_TIMEOUT_S):
            return await http.send(method, path, config)
    except (NotConnected, BrokenOff, TimeoutError) as error:
        raise Unreachable(str(error) or "no answer in time") from error
    finally:
        # A load also replaces the server that is asked, so the connection is of no more use.
        await http.close()


def _listening(port: int) -> int:
    """Return how many sockets of this machine listen on a port, at whatever address."""
    return sum(_count(table, f":{port:04X}") for table in _TABLES if table.exists())


def _count(table: Path, ending: str) -> int:
    found = 0
    with table.open() as lines:
        next(lines)
        for line in lines:
            _, local, _, state, *_ = line.split()
            if state != _LISTENS:  # Those that listen come first, and of the others there may be very many.
                break
            found += local.endswith(ending)
    return found


def _reason(body: bytes) -> str:
    try:
        return str(json.loads(body)["error"])
    except (ValueError, KeyError, TypeError):
        return body.decode(errors="replace")[:500]
