"""The edge, which receives function calls: `python -m moorage.runtime.edge.main`.

It is separate from the API process, so that neither delays the other. Several edges may run: each import costs memory
in all of them.
"""

from __future__ import annotations

import asyncio
import gc
import os
import resource
import signal
import sys
from collections.abc import Mapping
from dataclasses import field
from pathlib import Path
from typing import NoReturn

import uvloop

from moorage.core.kit.processes.process import bind_unix_socket, raise_open_files_limit, report_ready
from moorage.core.kit.processes.wakeups import WakeupSender
from moorage.core.kit.records import dataclass
from moorage.core.net import function_hosts
from moorage.core.net.proxies import networks
from moorage.runtime.edge.calls.caps import Caps
from moorage.runtime.edge.calls.pool import Pool
from moorage.runtime.edge.connections.clients import MAX_CONNECTIONS, Clients
from moorage.runtime.edge.connections.flow import Guard
from moorage.runtime.edge.connections.handlers import PlatformHandler, PublicHandler
from moorage.runtime.edge.connections.limits import Limits
from moorage.runtime.edge.connections.listener import Listener
from moorage.runtime.edge.connections.web import TargetCache
from moorage.runtime.edge.invoker_link import InvokerLink
from moorage.runtime.edge.route_file import ROUTE_FILE, RouteFile
from moorage.runtime.edge.routes import Table
from moorage.runtime.edge.spool import MB, RECORDS, STARTED, Room, SpoolWriter

DRAIN_TIMEOUT_S = 8.0
ROUTES_SAVE_INTERVAL_S = 0.2  # between two writes of the route file, which may have thousands of routes
RECORDS_WAKEUP_DELAY_S = 0.05  # records of this time share one wake-up of the recorder
LISTEN_BACKLOG = 2048
MAX_ROUTES_BYTES = 2**30  # body of a request with all routes


@dataclass(frozen=True)
class EdgeSettings:
    """Settings of the edge process; `read_settings` reads them from the environment."""

    host: str
    port: int
    body_timeout_s: float
    data: Path = Path(".moorage")
    api_host: str = ""
    domain: str = function_hosts.LOCAL  # parent domain of the organizations' hosts
    waiting_sandboxes: int = 4
    trusted_proxies: tuple[str, ...] = ()
    caps: Caps = field(default_factory=Caps)
    spool: Room = field(default_factory=Room)
    keys: str = field(default="", repr=False)  # encryption keys of the route file


def read_settings(environment: Mapping[str, str]) -> EdgeSettings:
    """Read the settings, with the defaults of `moorage.settings`; raises ValueError.

    Importing `moorage.settings` would load pydantic and take 14 MB on top of 22 MB. The supervisor validates all
    settings before it starts this process.
    """

    def number(name: str, default: int) -> int:
        return int(environment.get(f"MOORAGE_{name}") or default)

    port = number("EDGE_PORT", 8082)
    edge_url = environment.get("MOORAGE_EDGE_URL") or ""
    return EdgeSettings(
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
        waiting_sandboxes=number("FUNCTION_POOL", 4),
        keys=environment.get("MOORAGE_EDGE_KEYS", ""),
        trusted_proxies=tuple(filter(None, map(str.strip, environment.get("MOORAGE_TRUSTED_PROXIES", "").split(",")))),
        spool=Room(number("FUNCTION_SPOOL_MB", 512) * MB, number("DISK_RESERVE_MB", 1024) * MB),
        caps=Caps(
            function_instances=number("FUNCTION_INSTANCES", 100),
            org_instances=number("ORGANIZATION_INSTANCES", 1000),
            queue=number("FUNCTION_QUEUE", 1000),
        ),
    )


async def serve(settings: EdgeSettings) -> None:
    """Serve until SIGTERM or SIGINT, then finish the running requests."""
    loop = asyncio.get_running_loop()
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    run = settings.data / "run"
    run.mkdir(parents=True, exist_ok=True, mode=0o700)
    (settings.data / "spool").mkdir(exist_ok=True, mode=0o700)
    link = InvokerLink(run / "invoker.sock")
    writer = SpoolWriter(settings.data / "spool", room=settings.spool)
    pool = Pool(link, writer, settings.caps, lambda function_id: table.find_by_id(function_id))
    table = Table(settings.api_host, pool.retire, RouteFile(run / ROUTE_FILE, settings.keys))
    link.on_sandbox, link.on_refused = pool.sandbox_taken, pool.take_refused
    link.on_ended, link.on_memory = pool.sandbox_ended, pool.memory_changed
    link.on_replace = pool.replace

    wakeups, saver = WakeupSender(run / "edge-events.sock"), RouteSaver(table)
    announce_records(writer, wakeups)

    def on_routes() -> None:
        link.want({runtime: waiting_sandboxes(runtime, settings) for runtime in table.runtimes()})
        saver.save()

    table.load()
    on_routes()
    guard = Guard(trusted=networks(settings.trusted_proxies), clients=Clients(total=max_connections()))
    handler, limits = PublicHandler(table, pool, TargetCache(settings.domain)), Limits(body_s=settings.body_timeout_s)
    public = Listener(handler, limits, early=handler.answer_early, guard=guard)
    from_gateway = Listener(handler, limits, early=handler.answer_early, guard=guard, is_behind_gateway=True)
    local = Listener(PlatformHandler(table, pool, on_routes), Limits(body_bytes=MAX_ROUTES_BYTES))
    servers = [
        await loop.create_unix_server(local, sock=bind_unix_socket(run / "edge.sock"), backlog=LISTEN_BACKLOG),
        await loop.create_unix_server(from_gateway, sock=bind_unix_socket(run / "web.sock"), backlog=LISTEN_BACKLOG),
        await loop.create_server(public, settings.host, settings.port, backlog=LISTEN_BACKLOG),
    ]
    listeners = (public, from_gateway, local)
    background = [link.run(), pool.run(), *(each.watch_deadlines() for each in listeners)]
    tasks = [asyncio.create_task(coroutine) for coroutine in background]
    gc.collect()
    gc.freeze()
    report_ready(os.environ)
    wakeups.send(STARTED)
    await stop.wait()
    for server in servers:
        server.close()
    await asyncio.gather(*(each.drain(DRAIN_TIMEOUT_S) for each in listeners))
    for task in tasks:
        task.cancel()
    table.save()
    writer.close()


class RouteSaver:
    """Saves routes before they are acknowledged, so that they survive a crash.

    Changes within ROUTES_SAVE_INTERVAL_S after a write share the next one.
    """

    def __init__(self, table: Table) -> None:
        self._table = table
        self._timer: asyncio.TimerHandle | None = None

    def save(self) -> None:
        if self._timer is None:
            self._save_changes()

    def _save_changes(self) -> None:
        self._timer = None
        if self._table.is_changed:
            self._table.save()
            self._timer = asyncio.get_running_loop().call_later(ROUTES_SAVE_INTERVAL_S, self._save_changes)


def announce_records(writer: SpoolWriter, wakeups: WakeupSender) -> None:
    """Wake the recorder for new records, once for those of RECORDS_WAKEUP_DELAY_S."""

    def announce() -> None:
        writer.is_quiet = True
        wakeups.send(RECORDS)

    loop = asyncio.get_running_loop()
    writer.on_first_record = lambda: loop.call_later(RECORDS_WAKEUP_DELAY_S, announce)


def max_connections() -> int:
    """Return the limit of client connections: half of the file descriptors."""
    return max(64, min(MAX_CONNECTIONS, resource.getrlimit(resource.RLIMIT_NOFILE)[0] // 2))


def waiting_sandboxes(runtime: str, settings: EdgeSettings) -> int:
    """Return the pool size; a Node sandbox takes four times the memory of Python."""
    return settings.waiting_sandboxes if runtime.startswith("python") else (settings.waiting_sandboxes + 1) // 2


def main() -> None:
    raise_open_files_limit()
    try:
        settings = read_settings(os.environ)
    except ValueError as error:
        fail(f"the settings cannot be read: {error}")
    try:
        uvloop.run(serve(settings))
    except OSError as error:
        fail(f"cannot listen on {settings.host}:{settings.port}: {error.strerror or error}")


def fail(message: str) -> NoReturn:
    sys.exit(f"moorage edge: {message}")


if __name__ == "__main__":
    main()
