"""The function gateway's process: `python -m moorage.edge.main`.

It runs apart from the API, so that neither can hold up the other, and there may be many of it: what it imports is paid
for in memory each time.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import NoReturn

import uvloop

from moorage.edge import answers
from moorage.edge.protocol import Connections, Limits

DRAIN_S = 5.0
BACKLOG = 2048


@dataclass(frozen=True)
class Place:
    """Where to listen, and how patient to be."""

    host: str
    port: int
    body_timeout_s: float


def read_place(environment: Mapping[str, str]) -> Place:
    """Read the few settings this process needs, with the defaults of `moorage.settings`; raises ValueError.

    Loading all settings here would bring in pydantic, and 14 MB of memory on top of 22. The supervisor has loaded, and
    so checked, them all before it starts this process.
    """
    return Place(
        host=environment.get("MOORAGE_HOST") or "127.0.0.1",
        port=int(environment.get("MOORAGE_EDGE_PORT") or 8082),
        body_timeout_s=float(environment.get("MOORAGE_BODY_TIMEOUT_S") or 30),
    )


async def serve(place: Place) -> None:
    """Listen until SIGTERM or SIGINT, then let the requests that have begun finish."""
    loop = asyncio.get_running_loop()
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    connections = Connections(answers.respond, Limits(body_s=place.body_timeout_s))
    server = await loop.create_server(connections, place.host, place.port, backlog=BACKLOG)
    watch = asyncio.create_task(connections.keep_watch())
    say_ready(os.environ)
    await stop.wait()
    server.close()
    await connections.drain(DRAIN_S)
    watch.cancel()


def say_ready(environment: Mapping[str, str]) -> None:
    """Tell who started this process that it listens: on the descriptor it named, else on standard output."""
    descriptor = environment.get("MOORAGE_READY_FD")
    if not descriptor:
        print("listening", flush=True)
        return
    with open(int(descriptor), "wb", buffering=0) as pipe:
        pipe.write(b"ready\n")


def main() -> None:
    try:
        place = read_place(os.environ)
    except ValueError as error:
        fail(f"the settings cannot be read: {error}")
    try:
        uvloop.run(serve(place))
    except OSError as error:
        fail(f"cannot listen on {place.host}:{place.port}: {error.strerror or error}")


def fail(message: str) -> NoReturn:
    sys.exit(f"moorage edge: {message}")


if __name__ == "__main__":
    main()
