"""Apps behind our gateway, beside a bare Caddy that proxies to the same app.

The app is the quickest there is, so that what is compared is the way to it. Rates depend on what else the machine does;
the CPU time of a gateway for one request hardly does, so that is what the bar stands on. The requests of apps are
counted, which a bare Caddy does not do by itself: it is compared as it is shipped, and with such a log.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench import function_load, function_rounds, processes, static
from bench.figures import Figure, ratio_at_most
from bench.function_peers import Target
from bench.function_rounds import Plan, Samples, middle
from bench.machine import CLIENT_CORE, SERVER_CORE, on_core
from moorage.gateway import caddy
from moorage.gateway.app_routes import AppRoutes
from moorage.gateway.hosts import HostConfig
from moorage.gateway.wanted import AppRoute, Wanted
from moorage.settings import Settings, load

PROXY_BAR = ratio_at_most(1.10)
HOST, UNCOUNTED_HOST = "app.localhost", "uncounted.localhost"
OURS, UNCOUNTED = "moorage", "moorage, not counted"
BARE, BARE_LOGGED = "bare Caddy", "bare Caddy with an access log"
COMPARED = ((UNCOUNTED, BARE), (OURS, BARE_LOGGED))  # what both sides do: the route alone, and the route with a log
BODY = "x" * 2048


@dataclass(frozen=True)
class Sizes:
    plan: Plan
    with_best: bool = True  # the best load generator there is, or our own


FULL = Sizes(Plan(rounds=7, seconds=3, warm_up=10_000, connections=(32,)))
TINY = Sizes(Plan(rounds=1, seconds=0.1, warm_up=1, connections=(2,)), with_best=False)


def run(folder: Path, sizes: Sizes = FULL) -> list[Figure]:
    app_port, bare_port, logged_port, gateway_port, edge_port = processes.free_ports(5)
    settings = load(data=folder / "moorage", gateway_port=gateway_port, edge_port=edge_port)
    app = f"127.0.0.1:{app_port}"
    _route(settings, app)
    proxy = {"handler": "reverse_proxy", "upstreams": [{"dial": app}]}
    with ExitStack() as stack:
        answer = {"handler": "static_response", "body": BODY}
        stack.enter_context(_running(_config(app_port, answer), folder / "app", CLIENT_CORE))
        ours = stack.enter_context(_started(caddy.command(settings), caddy.environment(settings), folder / "ours"))
        bare = stack.enter_context(_running(_config(bare_port, proxy), folder / "bare"))
        logged = stack.enter_context(_running(_with_log(_config(logged_port, proxy), folder), folder / "logged"))
        targets = [
            Target(OURS, ours, gateway_port, ("/",), HOST),
            Target(UNCOUNTED, ours, gateway_port, ("/",), UNCOUNTED_HOST),
            Target(BARE, bare, bare_port, ("/",), HOST),
            Target(BARE_LOGGED, logged, logged_port, ("/",), HOST),
        ]
        for target in targets:
            static.wait_for(target.port)
        generator = function_load.best() if sizes.with_best else function_load.Own()
        return _figures(function_rounds.measure(targets, generator, sizes.plan), sizes.plan)


def _route(settings: Settings, app: str) -> None:
    """Let Caddy start with what the platform tells it of two apps: one is counted, as all are, and one is not."""

    def complain(host: str, error: Exception) -> None:
        raise error

    routes = AppRoutes(settings, complain)
    routes.look()
    routes.put(Wanted(apps=dict.fromkeys((HOST, UNCOUNTED_HOST), AppRoute((app,), 1))))
    caddy.write_config(settings, HostConfig(logged=frozenset({HOST}), direct=routes.names()))


def _config(port: int, handler: dict[str, Any]) -> dict[str, Any]:
    server = {
        "listen": [f"127.0.0.1:{port}"],
        "automatic_https": {"disable": True},
        "routes": [{"handle": [handler]}],
    }
    logs = {"logs": {"default": {"level": "ERROR"}}}
    return {"admin": {"disabled": True}, "logging": logs, "apps": {"http": {"servers": {"bare": server}}}}


def _with_log(config: dict[str, Any], folder: Path) -> dict[str, Any]:
    config["apps"]["http"]["servers"]["bare"]["logs"] = {}
    writer = {"output": "file", "filename": str(folder / "access.log")}
    access = {"include": ["http.log.access"], "level": "INFO", "writer": writer, "encoder": {"format": "json"}}
    config["logging"]["logs"] = {"default": {"level": "ERROR", "exclude": ["http.log.access"]}, "access": access}
    return config


@contextmanager
def _running(config: dict[str, Any], folder: Path, core: int = SERVER_CORE) -> Iterator[int]:
    """Run a Caddy with nothing but this; yields its process id."""
    path = folder.with_suffix(".json")
    path.write_text(json.dumps(config))
    argv = [str(caddy.find_caddy()), "run", "--config", str(path)]
    with _started(argv, {"PATH": os.defpath, "HOME": str(folder.parent)}, folder, core) as pid:
        yield pid


@contextmanager
def _started(argv: list[str], env: dict[str, str], folder: Path, core: int = SERVER_CORE) -> Iterator[int]:
    with on_core(core):
        process = processes.start(argv, folder.with_suffix(".log"), env)
    try:
        yield process.pid
    finally:
        processes.stop(process)


def _figures(samples: Samples, plan: Plan) -> list[Figure]:
    clients = max(plan.connections)

    def figure(title: str, unit: str, field: str, name: str, peer: str) -> Figure:
        value = middle(samples, name, clients, field)
        assert value is not None
        bar = PROXY_BAR if field == "cpu_us" and (name, peer) in COMPARED else None
        base = middle(samples, peer, clients, field)
        return Figure(f"{name.replace(OURS, 'apps')}, 2 KB c={clients}: {title}", value, unit, base, peer, bar)

    quantities = (("requests/s", "/s", "rate"), ("CPU/request", "us", "cpu_us"), ("p99", "ms", "p99_ms"))
    return [figure(*quantity, *pair) for pair in (*COMPARED, (OURS, BARE)) for quantity in quantities]
