"""Apps behind the gateway, compared with a bare Caddy that proxies to the same app.

The app is as fast as possible, so that the path to it is measured. Rates depend on the load of the machine; the CPU
time of a gateway per request hardly does, so the bar uses that. Requests to apps are logged, which a bare Caddy does
not do by default: both sides are compared with the same log, and both without. Caddy's default log is listed too: it
has more fields and costs less. Other hosts have apps too, so the cost of their matchers is included. An app that was
deployed since the last load takes the slower lookup, which is measured separately.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from bench import function_load, function_rounds, processes, static
from bench.figures import Figure, ratio_at_most
from bench.function_peers import Target
from bench.function_rounds import Plan, Samples, middle
from bench.machine import CLIENT_CORE, SERVER_CORE, on_core
from moorage.gateway import caddy
from moorage.gateway.app_routes import AppRoutes
from moorage.gateway.config import access_log
from moorage.gateway.config.hosts import LOGGED, HostConfig
from moorage.gateway.config.pages import Route
from moorage.gateway.wanted import AppRoute, Wanted
from moorage.settings import Settings, load

HOST, DEPLOYED_HOST = "app.localhost", "deployed.localhost"
OTHERS = [f"app{number}.localhost" for number in range(20)]
OURS, UNCOUNTED, DEPLOYED = "moorage", "moorage, not counted", "moorage, just deployed"
BARE, BARE_LOGGED, BARE_DEFAULT = "bare Caddy", "bare Caddy with the same log", "bare Caddy with its default log"
# The route alone, and the route with a log of the same fields.
COMPARED = {(UNCOUNTED, BARE): ratio_at_most(1.10), (OURS, BARE_LOGGED): ratio_at_most(1.05)}
BODY = "x" * 2048


@dataclass(frozen=True)
class Sizes:
    plan: Plan
    with_best: bool = True  # the best load generator there is, or our own


FULL = Sizes(Plan(rounds=7, seconds=3, warm_up=10_000, connections=(32,)))
TINY = Sizes(Plan(rounds=1, seconds=0.1, warm_up=1, connections=(2,)), with_best=False)


def run(folder: Path, sizes: Sizes = FULL) -> list[Figure]:
    (app_port,) = processes.free_ports(1)
    with ExitStack() as stack:
        answer: Route = {"handle": [{"handler": "static_response", "body": BODY}]}
        stack.enter_context(_running(_config(app_port, answer), folder / "app", CLIENT_CORE))
        ours, port = stack.enter_context(_gateway(folder / "ours", app_port, is_counted=True))
        uncounted, uncounted_port = stack.enter_context(_gateway(folder / "uncounted", app_port, is_counted=False))
        targets = [
            Target(OURS, ours, port, ("/",), HOST),
            Target(UNCOUNTED, uncounted, uncounted_port, ("/",), HOST),
            Target(DEPLOYED, ours, port, ("/",), DEPLOYED_HOST),
            *(stack.enter_context(_bare(name, app_port, folder / key)) for name, key in _BARE_ONES),
        ]
        for target in targets:
            static.wait_for(target.port)
        generator = function_load.best() if sizes.with_best else function_load.Own()
        return _figures(function_rounds.measure(targets, generator, sizes.plan), sizes.plan)


_BARE_ONES = ((BARE, "bare"), (BARE_LOGGED, "same-log"), (BARE_DEFAULT, "default-log"))


@contextmanager
def _bare(name: str, app_port: int, data: Path) -> Iterator[Target]:
    (port,) = processes.free_ports(1)
    logged = LOGGED if name == BARE_LOGGED else []
    proxy = {"handler": "reverse_proxy", "upstreams": [{"dial": f"127.0.0.1:{app_port}"}]}
    config = _config(port, {"match": [{"host": [HOST]}], "handle": [*logged, proxy]})
    if name != BARE:
        _add_log(config, load(data=data), has_our_fields=name == BARE_LOGGED)
    with _running(config, data) as pid:
        yield Target(name, pid, port, ("/",), HOST)


@contextmanager
def _gateway(data: Path, app_port: int, *, is_counted: bool) -> Iterator[tuple[int, int]]:
    """Run the gateway with routes to many apps; yields its PID and its port."""
    port, edge_port = processes.free_ports(2)
    settings = load(data=data, gateway_port=port, edge_port=edge_port)
    _route(settings, app_port, is_counted=is_counted)
    with _started(caddy.command(settings), caddy.environment(settings), data) as pid:
        yield pid, port


def _route(settings: Settings, app_port: int, *, is_counted: bool) -> None:
    """Write down where apps are, as Caddy would be told. One of them moves after that, to the same app."""

    def complain(host: str, error: Exception) -> None:
        raise error

    routes = AppRoutes(settings, complain)
    routes.scan()
    here = AppRoute((f"127.0.0.1:{app_port}",), 1)
    apps = dict.fromkeys((HOST, DEPLOYED_HOST, *OTHERS), here)
    routes.put(Wanted(apps={**apps, DEPLOYED_HOST: AppRoute((f"localhost:{app_port}",), 1)}))
    logged = frozenset(apps) if is_counted else frozenset()
    caddy.write_config(settings, HostConfig(logged=logged, direct=routes.names()))
    routes.put(Wanted(apps={**apps, DEPLOYED_HOST: replace(here, generation=2)}))


def _config(port: int, route: Route) -> dict[str, Any]:
    server = {"listen": [f"127.0.0.1:{port}"], "automatic_https": {"disable": True}, "routes": [route]}
    logs = {"logs": {"default": {"level": "ERROR"}}}
    return {"admin": {"disabled": True}, "logging": logs, "apps": {"http": {"servers": {"bare": server}}}}


def _add_log(config: dict[str, Any], settings: Settings, *, has_our_fields: bool) -> None:
    config["apps"]["http"]["servers"]["bare"]["logs"] = {"default_logger_name": access_log.NAME}
    log = access_log.log_of(settings)
    if not has_our_fields:
        log["encoder"] = {"format": "json"}
    config["logging"]["logs"] = {"default": {"level": "ERROR", "exclude": ["http.log.access"]}, access_log.NAME: log}


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
        bar = COMPARED.get((name, peer)) if field == "cpu_us" else None
        base = middle(samples, peer, clients, field)
        return Figure(f"{name.replace(OURS, 'apps')}, 2 KB c={clients}: {title}", value, unit, base, peer, bar)

    quantities = (("requests/s", "/s", "rate"), ("CPU/request", "us", "cpu_us"), ("p99", "ms", "p99_ms"))
    pairs = (*COMPARED, (OURS, BARE_DEFAULT), (DEPLOYED, BARE_LOGGED), (OURS, BARE))
    return [figure(*quantity, *pair) for pair in pairs for quantity in quantities]
