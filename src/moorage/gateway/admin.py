"""The gateway's own door: its unix socket takes a new configuration, and answers once that is in force.

A load starts the new servers before it lets the old ones go, and those finish what they were asked, however long that
takes.
"""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

from moorage.kit.local_http import BrokenOff, LocalHttp, NotConnected

HOST = "local"  # what LocalHttp says it asks for; the configuration has to allow it
LOAD_TIMEOUT_S = 30.0


class Refused(Exception):
    """Caddy would not take the configuration, and goes on with the one it has."""


class Unreachable(Exception):
    """Caddy is not there, or went away while it was asked."""


async def load(socket: Path, config: bytes) -> None:
    """Put a configuration in force; raises Refused or Unreachable. Safe to repeat."""
    http = LocalHttp(socket)
    try:
        async with asyncio.timeout(LOAD_TIMEOUT_S):
            reply = await http.send("POST", "/load", config)
    except (NotConnected, BrokenOff, TimeoutError) as error:
        raise Unreachable(str(error) or "no answer in time") from error
    finally:
        # A load also replaces the server that is asked, so the connection is of no more use.
        await http.close()
    if reply.status != 200:
        raise Refused(_reason(reply.body))


def _reason(body: bytes) -> str:
    try:
        return str(json.loads(body)["error"])
    except (ValueError, KeyError, TypeError):
        return body.decode(errors="replace")[:500]
