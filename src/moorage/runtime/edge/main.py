"""The function gateway's process: `python -m moorage.runtime.edge.main`.

It runs apart from the API, so that neither can hold up the other, and there may be many of it: what it imports is paid
for in memory each time.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import os
import resource
import signal
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import NoReturn

import uvloop

from moorage.core.http.limits.proxies import networks
from moorage.core.kit.process import bind_locally, open_many, say_ready
from moorage.core.net import function_hosts
from moorage.runtime.edge.calls.caps import Caps
from moorage.runtime.edge.calls.pool import Pool
from moorage.runtime.edge.connections.clients import ALL, Clients
from moorage.runtime.edge.connections.flow import Guard
from moorage.runtime.edge.connections.limits import Limits
from moorage.runtime.edge.connections.listener_connections import Connections
from moorage.runtime.edge.connections.listeners import LocalDoor, PublicDoor
from moorage.runtime.edge.connections.web import Targets
from moorage.runtime.edge.invoker_link import InvokerLink
from moorage.runtime.edge.route_file import ROUTE_FILE, RouteFile
from moorage.runtime.edge.routes import Table
from moorage.runtime.edge.spool import MB, Room, SpoolWriter

DRAIN_S = 8.0
SAVE_S = 0.2  # Between two writes of the routes, which may be thousands.
BACKLOG = 2048
DOOR_BODY_BYTES = 2**30  # a snapshot of all routes


@dataclass(frozen=True)
class Place:
    """Where to listen, how patient to be, and how much to give to whom."""

    host: str
    port: int
    body_timeout_s: float
    data: Path = Path(".moorage")
    api_host: str = ""
    domain: str = function_hosts.LOCAL  # that the hosts of organizations are below
    waiting_cells: int = 4
    trusted_proxies: tuple[str, ...] = ()
    caps: Caps = field(default_factory=Caps)
    spool: Room = field(default_factory=Room)
    keys: str = field(default="", repr=False)  # of the file of routes


def read_place(environment: Mapping[str, str]) -> Place:
    """Read the few settings this process needs, with the defaults of `moorage.settings`; raises ValueError.

    Loading all settings here would bring in pydantic, and 14 MB of memory on top of 22. The supervisor has loaded, and
    so checked, them all before it starts this process.
    """

    def number(name: str, default: int) -> int:
        return int(environment.get(f"MOORAGE_{name}") or default)

    port = number("EDGE_PORT", 8082)
    edge_url = environment.get("MOORAGE_EDGE_URL") or ""
    return Place(
        host=environment.get("MOORAGE_HOST") or "127.0.0.1",
        port=port,
        body_timeout_s=float(environment.get("MOORAGE_BODY_TIMEOUT_S") or 30),
        data=Path(environment.get("MOORAGE_DATA") or ".moorage").absolute(),
        api_host=(edge_url or f"http://localhost:{port}").rstrip("/"),
        domain=function_hosts.domain_of(
            environment.get("MOORAGE_FUNCTIONS_DOMAIN") or "",
            edge_url,
            environment.get("MOORAGE_APPS_DOMAIN") or "",
            is_production=environment.get("MOORAGE_MODE") == "production",
        ),
        waiting_cells=number("FUNCTION_POOL", 4),
        keys=environment.get("MOORAGE_EDGE_KEYS", ""),
        trusted_proxies=tuple(filter(None, map(str.strip, environment.get("MOORAGE_TRUSTED_PROXIES", "").split(",")))),
        spool=Room(number("FUNCTION_SPOOL_MB", 512) * MB, number("DISK_RESERVE_MB", 1024) * MB),
        caps=Caps(
            function_instances=number("FUNCTION_INSTANCES", 100),
            org_instances=number("ORGANIZATION_INSTANCES", 1000),
            queue=number("FUNCTION_QUEUE", 1000),
        ),
    )


async def serve(place: Place) -> None:
    """Listen until SIGTERM or SIGINT, then let the requests that have begun finish."""
    loop = asyncio.get_running_loop()
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    run = place.data / "run"
    run.mkdir(parents=True, exist_ok=True, mode=0o700)
    (place.data / "spool").mkdir(exist_ok=True, mode=0o700)
    link = InvokerLink(run / "invoker.sock")
    writer = SpoolWriter(place.data / "spool", room=place.spool)
    pool = Pool(link, writer, place.caps, lambda function_id: table.find_by_id(function_id))
    table = Table(place.api_host, pool.retire, RouteFile(run / ROUTE_FILE, place.keys))
    link.on_cell, link.on_refused, link.on_ended, link.on_memory = pool.took, pool.refused, pool.ended, pool.breathe

    saved_at = -SAVE_S

    def on_routes() -> None:
        nonlocal saved_at
        link.want({runtime: waiting_cells(runtime, place) for runtime in table.runtimes()})
        # Whoever was told that a function is there must find it also after a crash; many at once share a write.
        if loop.time() - saved_at >= SAVE_S:
            saved_at = loop.time()
            table.save()

    table.load()
    on_routes()
    guard = Guard(trusted=networks(place.trusted_proxies), clients=Clients(most=most_connections()))
    public_door, limits = PublicDoor(table, pool, Targets(place.domain)), Limits(body_s=place.body_timeout_s)
    public = Connections(public_door, limits, early=public_door.early, guard=guard)
    gateway = Connections(public_door, limits, early=public_door.early, guard=guard, is_behind_gateway=True)
    local = Connections(LocalDoor(table, pool, on_routes), Limits(body_bytes=DOOR_BODY_BYTES))
    door = bind_locally(run / "edge.sock")
    servers = [
        await loop.create_unix_server(local, sock=door, backlog=BACKLOG),
        await loop.create_unix_server(gateway, sock=bind_locally(run / "web.sock"), backlog=BACKLOG),
        await loop.create_server(public, place.host, place.port, backlog=BACKLOG),
    ]
    listeners = (public, gateway, local)
    parts = [link.run(), pool.run(), keep_saved(table), *(each.keep_watch() for each in listeners)]
    tasks = [asyncio.create_task(part) for part in parts]
    gc.collect()
    gc.freeze()
    say_ready(os.environ)
    await stop.wait()
    for server in servers:
        server.close()
    await asyncio.gather(*(each.drain(DRAIN_S) for each in listeners))
    for task in tasks:
        task.cancel()
    table.save()
    writer.close()


def most_connections() -> int:
    """Return how many connections strangers may have: half of the descriptors are for instances and the platform."""
    return max(64, min(ALL, resource.getrlimit(resource.RLIMIT_NOFILE)[0] // 2))


def waiting_cells(runtime: str, place: Place) -> int:
    """Return how many cells of a runtime wait for code; one of Node takes four times the memory of one of Python."""
    return place.waiting_cells if runtime.startswith("python") else (place.waiting_cells + 1) // 2


async def keep_saved(table: Table, every_s: float = SAVE_S) -> None:
    while True:
        await asyncio.sleep(every_s)
        table.save()


def main() -> None:
    open_many()
    let_others_finish()
    try:
        place = read_place(os.environ)
    except ValueError as error:
        fail(f"the settings cannot be read: {error}")
    try:
        uvloop.run(serve(place))
    except OSError as error:
        fail(f"cannot listen on {place.host}:{place.port}: {error.strerror or error}")


def let_others_finish() -> None:
    """Do not interrupt an instance on the same processor each time it sends a reply: take what it has when it waits.

    Measured with gateway and instance on one core, 32 clients: 18,600 calls a second, instead of 9,900.
    """
    with contextlib.suppress(OSError):
        os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0))


def fail(message: str) -> NoReturn:
    sys.exit(f"moorage edge: {message}")


if __name__ == "__main__":
    main()
