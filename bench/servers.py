"""The servers that are measured, each a process of its own on a core of its own: `python -m bench.servers KIND …`.

All of them run on the product's own server class and settings. What differs is the application behind it.
"""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import uvloop

from bench import processes
from bench.machine import SERVER_CORE
from moorage.core.db.sqlite import MAX_GROUP_UNITS
from moorage.core.http.server import listen, make_server, tune_garbage_collector

BARE = "bare"  # an ASGI function that answers 200 and a small body
MOORAGE = "moorage"  # the product: store, gate, routes, telemetry with its log
SINGLE = "single"  # the product with one commit for each write
RIVAL = "rival"  # see `bench.rival`
HELLO = "serving "


@dataclass(frozen=True)
class Serving:
    """A server that is up."""

    process: subprocess.Popen[bytes]
    port: int
    tokens: list[str]


def has_rival() -> bool:
    """Tell whether the libraries that the rival is made of are installed; `make bench` installs them."""
    return all(find_spec(name) is not None for name in ("fastapi", "aiosqlite", "greenlet"))


@contextmanager
def serving(kind: str, folder: Path, *, seats: int) -> Iterator[Serving]:
    """Run a server of a kind on a fresh store in a folder."""
    folder.mkdir(parents=True)
    log = folder / "server.log"
    argv = [sys.executable, "-m", "bench.servers", kind, str(folder), str(seats)]
    with processes.running(argv, log, processes.environment()) as process:
        assert process.stdout is not None
        hello = json.loads(processes.wait_for_line(process.stdout.fileno(), HELLO, log).removeprefix(HELLO))
        yield Serving(process, hello["port"], hello["tokens"])


async def bare(scope: dict[str, Any], receive: Any, send: Any) -> None:
    headers = [(b"content-type", b"application/json"), (b"content-length", b"16")]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": b'{"success":true}'})


async def _application(kind: str, folder: Path, seats: int) -> tuple[Any, list[str]]:
    if kind == BARE:
        return bare, ["none"] * seats
    if kind == RIVAL:
        from bench import rival

        return await rival.build(folder, seats)
    return await _product(folder, seats, group=1 if kind == SINGLE else MAX_GROUP_UNITS)


async def _product(folder: Path, seats: int, *, group: int) -> tuple[Any, list[str]]:
    from bench import stores
    from moorage import app as application
    from moorage.core.telemetry import Telemetry, logs

    logs.configure("json", "info", process="control")
    db, taken = await stores.open_seated(folder / "data", seats, group=group)
    app = application.build(db, Telemetry.of(db.env.settings))
    return app.asgi, [seat.token for seat in taken]


async def _serve(kind: str, folder: Path, seats: int) -> None:
    asgi, tokens = await _application(kind, folder, seats)
    sock = listen("127.0.0.1", 0)
    server = make_server(asgi)
    task = asyncio.create_task(server.serve(sockets=[sock]))
    while not server.started and not task.done():
        await asyncio.sleep(0.005)
    tune_garbage_collector()
    print(HELLO + json.dumps({"port": sock.getsockname()[1], "tokens": tokens}), flush=True)
    await task


def main() -> None:
    kind, folder, seats = sys.argv[1:4]
    os.sched_setaffinity(0, {SERVER_CORE})
    uvloop.run(_serve(kind, Path(folder), int(seats)))


if __name__ == "__main__":
    main()
