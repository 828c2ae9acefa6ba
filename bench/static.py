"""Static sites: our gateway beside a bare Caddy on the same files, and a change of one host among a thousand."""

from __future__ import annotations

import asyncio
import json
import os
import random
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from bench import function_load, function_rounds, processes
from bench.figures import Figure, at_most, percentile, ratio_at_least
from bench.function_peers import Target
from bench.function_rounds import Plan, Samples, middle
from bench.machine import SERVER_CORE, on_core
from moorage.core.telemetry import Telemetry
from moorage.gateway import caddy, releases, sites
from moorage.gateway.routes import Routes
from moorage.gateway.wanted import Wanted
from moorage.settings import Settings, load

SERVED_BAR = ratio_at_least(0.95)
CHANGE_BAR = at_most(300)
HOST = "site.localhost"
BARE = "bare Caddy"  # as it is shipped
BARE_H1 = "bare Caddy, h1 alone"  # Without HTTP/2 a plain connection costs it a third less.
PEERS = {BARE: {}, BARE_H1: {"protocols": ["h1"]}}
FILES = {"2 KB page": ("/page.html", 2 * 1024), "100 KB script": ("/assets/app-B3f9aQ1x.js", 100 * 1024)}


@dataclass(frozen=True)
class Sizes:
    plan: Plan
    hosts: int
    changes: int
    with_best: bool = True  # the best load generator there is, or our own


FULL = Sizes(Plan(rounds=7, seconds=3, warm_up=10_000, connections=(32,)), hosts=1000, changes=200)
TINY = Sizes(Plan(rounds=1, seconds=0.1, warm_up=1, connections=(2,)), hosts=10, changes=3, with_best=False)


def run(folder: Path, sizes: Sizes = FULL) -> list[Figure]:
    settings = _settings(folder / "moorage")
    release = _make_release(settings.folder("releases") / "site")
    sites.publish(settings, HOST, release)
    with ExitStack() as stack:
        ours = stack.enter_context(_gateway(settings, folder))
        bare = [stack.enter_context(_bare(name, release, folder)) for name in PEERS]
        samples = _serve([("moorage", ours, settings.gateway_port), *bare], sizes)
        changes = asyncio.run(_change(settings, sizes))
    served = [figure for kind in FILES for figure in _figures(samples, kind, sizes.plan)]
    name = f"static, {sizes.hosts} hosts: changed release to seen"
    return [
        *served,
        Figure(f"{name}, p50", percentile(changes, 0.5) * 1000, "ms"),
        Figure(f"{name}, p95", percentile(changes, 0.95) * 1000, "ms", bar=CHANGE_BAR),
    ]


def _settings(data: Path) -> Settings:
    gateway_port, edge_port = processes.free_ports(2)
    return load(data=data, gateway_port=gateway_port, edge_port=edge_port)


def _make_release(folder: Path) -> Path:
    letters = random.Random(4)
    for path, size in FILES.values():
        file = folder / path.removeprefix("/")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("".join(letters.choices("abcdefghij \n", k=size)))
    releases.prepare(folder)
    return folder


@contextmanager
def _gateway(settings: Settings, folder: Path) -> Iterator[int]:
    """Run Caddy as `moorage up` does, on the server's core."""
    with on_core(SERVER_CORE):
        process = processes.start(caddy.command(settings), folder / "ours.log", caddy.environment(settings))
    try:
        wait_for(settings.gateway_port)
        yield process.pid
    finally:
        processes.stop(process)


@contextmanager
def _bare(name: str, release: Path, folder: Path) -> Iterator[tuple[str, int, int]]:
    """Run Caddy with nothing but a file server; yields its name, process id and port."""
    port = processes.free_ports(1)[0]
    config = folder / f"{name}.json"
    server = {
        "listen": [f"127.0.0.1:{port}"],
        "automatic_https": {"disable": True},
        "routes": [{"handle": [{"handler": "file_server", "root": str(release)}]}],
        **PEERS[name],
    }
    logs = {"logs": {"default": {"level": "ERROR"}}}
    apps = {"http": {"servers": {"bare": server}}}
    config.write_text(json.dumps({"admin": {"disabled": True}, "logging": logs, "apps": apps}))
    argv = [str(caddy.find_caddy()), "run", "--config", str(config)]
    with on_core(SERVER_CORE):
        process = processes.start(argv, folder / f"{name}.log", {"PATH": os.defpath, "HOME": str(folder)})
    try:
        wait_for(port)
        yield name, process.pid, port
    finally:
        processes.stop(process)


def wait_for(port: int) -> None:
    """Return when something answers on a port; raises NotReady."""
    deadline = time.monotonic() + processes.READY_S
    while not asyncio.run(_answers(port)):
        if time.monotonic() > deadline:
            raise processes.NotReady(f"nothing answers on port {port}")
        time.sleep(0.05)


async def _answers(port: int) -> bool:
    try:
        _, writer = await asyncio.open_connection("127.0.0.1", port)
    except OSError:
        return False
    writer.close()
    return True


def _serve(servers: list[tuple[str, int, int]], sizes: Sizes) -> Samples:
    generator = function_load.best() if sizes.with_best else function_load.Own()
    targets = [
        Target(_name(name, kind), pid, port, (path,), HOST)
        for kind, (path, _) in FILES.items()
        for name, pid, port in servers
    ]
    return function_rounds.measure(targets, generator, sizes.plan)


def _name(name: str, kind: str) -> str:
    return f"{name}, {kind}"


def _figures(samples: Samples, kind: str, plan: Plan) -> list[Figure]:
    clients = max(plan.connections)

    def figure(title: str, unit: str, field: str, peer: str) -> Figure:
        value = middle(samples, _name("moorage", kind), clients, field)
        assert value is not None
        bar = SERVED_BAR if field == "rate" and peer == BARE else None
        base = middle(samples, _name(peer, kind), clients, field)
        return Figure(f"static, {kind} c={clients}: {title}", value, unit, base, peer, bar)

    quantities = (("requests/s", "/s", "rate"), ("CPU/request", "us", "cpu_us"), ("p99", "ms", "p99_ms"))
    return [figure(*quantity, peer) for peer in PEERS for quantity in quantities]


async def _change(settings: Settings, sizes: Sizes) -> list[float]:
    """Change the release of one host among many, again and again; return how long each took to be seen."""
    made = [_make_text(settings.folder("releases") / f"text-{number}", f"release {number}") for number in (0, 1)]
    served = {f"h{number}.localhost": made[0] for number in range(sizes.hosts)}
    routes = Routes(settings, Telemetry(quiet=True))
    await routes.apply(Wanted(sites=served))
    took = []
    for number in range(sizes.changes):
        host, target = f"h{number % sizes.hosts}.localhost", made[(number // sizes.hosts + 1) % 2]
        served = {**served, host: target}
        started = time.perf_counter()
        await routes.apply(Wanted(sites=served))
        await _until_seen(settings.gateway_port, host, target)
        took.append(time.perf_counter() - started)
    return took


def _make_text(folder: Path, text: str) -> Path:
    folder.mkdir(parents=True)
    (folder / "index.html").write_text(text)
    releases.prepare(folder)
    return folder


async def _until_seen(port: int, host: str, release: Path) -> None:
    expected = (release / "index.html").read_bytes()
    while True:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(f"GET / HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n".encode())
        answer = await reader.read()
        writer.close()
        if answer.endswith(expected):
            return
