"""The child processes of `moorage up`: their argv and environment."""

from __future__ import annotations

import json
import os
import socket
import sys
from typing import Any

from moorage.gateway import caddy
from moorage.platform import folders, head_start, keys, migration, store_checks
from moorage.platform.doctor import function_origins
from moorage.platform.doctor import functions as sandbox_checks
from moorage.platform.doctor.findings import State
from moorage.runtime.sandbox import capabilities
from moorage.settings import BadSettings, Engine, Sandbox, Settings, as_environment

RUNTIME_SETTINGS = frozenset(
    ["PATH", "HOME", "LANG", "VIRTUAL_ENV", "PYTHONPATH"]
    + [
        f"MOORAGE_{name}"
        for name in (
            "DATA", "HOST", "EDGE_PORT", "EDGE_URL", "BODY_TIMEOUT_S", "SANDBOX", "SANDBOX_ALLOW", "SANDBOX_BLOCK",
            "FUNCTION_POOL", "FUNCTION_INSTANCES", "ORGANIZATION_INSTANCES", "FUNCTION_QUEUE",
            "FUNCTIONS_DOMAIN", "APPS_DOMAIN", "MODE", "TRUSTED_PROXIES",
            "FUNCTION_SPOOL_MB", "DISK_RESERVE_MB",
        )
    ]
)  # fmt: skip


def make(settings: Settings) -> dict[str, Any]:
    """Return the plan of `moorage up`; raises BadSettings if a port is in use."""
    if settings.edge_hosts and not (settings.uses_postgres and settings.edge_address):
        raise BadSettings(
            "MOORAGE_EDGE_HOSTS: edges elsewhere need MOORAGE_DATABASE_URL, and MOORAGE_EDGE_ADDRESS for public calls"
        )
    folders.make(settings)
    folders.check_not_running(settings)
    if not settings.uses_postgres:
        store_checks.check_store_is_there(settings)
    report = capabilities.probe()
    settings = with_sandbox(with_metrics_port(settings), report)
    check_ports(settings)
    if not settings.uses_postgres:
        migration.migrate_ahead(settings)
    if problem := function_origins.problem(settings):
        warn(f"{problem}; {function_origins.FIX}")
    env = as_environment(settings)
    return {
        "api_url": settings.api_url,
        "metrics_port": settings.metrics_port,
        "data": str(settings.data),
        "warnings": sandbox_warnings(settings, report),
        "children": [
            _python("control", "moorage.platform.control_start", env),
            *([] if settings.edge_hosts else _functions(settings, env)),
            _caddy(settings),
        ],
    }


def make_edge(settings: Settings) -> dict[str, Any]:
    """Return the plan of a machine that only runs functions; raises BadSettings."""
    if not settings.uses_postgres:
        raise BadSettings("MOORAGE_DATABASE_URL: is needed here; on one machine `moorage up` runs the edge as well")
    if settings.edge_hosts:
        raise BadSettings("MOORAGE_EDGE_HOSTS: is for processes that call edges; an edge runs functions itself")
    folders.make(settings)
    settings = with_sandbox(settings)
    check_ports(settings, ("edge_port", "edge_link_port"))
    env = as_environment(settings)
    agent = _python("control", "moorage.platform.control_start", {**env, "MOORAGE_METRICS_PORT": "0"})
    agent["argv"].append("agent")
    children = [agent, *_functions(settings, env)]
    about = {"part": "edge", "api_url": settings.functions_url, "metrics_port": 0, "data": str(settings.data)}
    return about | {"warnings": [], "children": children}


def _functions(settings: Settings, env: dict[str, str]) -> list[dict[str, Any]]:
    return [
        _python("invoker", "moorage.runtime.workers.main", lean(env)),
        _python("edge", "moorage.runtime.edge.main", edge_environment(settings, env)),
    ]


def make_gateway(settings: Settings) -> dict[str, Any]:
    """Return the plan of a gateway on its own; raises BadSettings."""
    if settings.engine is not Engine.KUBERNETES or not settings.uses_postgres:
        raise BadSettings(
            "MOORAGE_ENGINE: a gateway on its own routes to pods, so it needs kubernetes and MOORAGE_DATABASE_URL. "
            "On machines, `moorage up` runs a gateway on each"
        )
    folders.make(settings)
    check_ports(settings, ("api_port", "gateway_port"))
    agent = _python("control", "moorage.platform.control_start", as_environment(with_metrics_port(settings)))
    agent["argv"].append("gateway")
    url = f"http://{reachable(settings.host)}:{settings.gateway_port}"
    about = {"part": "gateway", "api_url": url, "metrics_port": 0, "data": str(settings.data)}
    return about | {"warnings": [], "children": [agent, _caddy(settings)]}


def lean(env: dict[str, str]) -> dict[str, str]:
    """Return the settings for processes next to tenants' code: no keys or credentials."""
    return {name: value for name, value in env.items() if name in RUNTIME_SETTINGS}


def edge_environment(settings: Settings, env: dict[str, str]) -> dict[str, str]:
    """Return the environment of the edge, with the derived keys of its route file."""
    return {**lean(env), "MOORAGE_EDGE_KEYS": keys.edge_keys(settings)}


def execute(plan: dict[str, Any]) -> None:
    """Exec the supervisor. The plan holds secrets, so it is passed in a memfd."""
    control = plan["children"][0]
    control["taken_over"] = head_start.use(control["argv"], control["env"])
    handle = os.memfd_create("moorage-plan", 0)
    os.write(handle, json.dumps(plan).encode())
    os.set_inheritable(handle, True)
    argv = [sys.executable, "-X", "frozen_modules=on", "-m", "moorage.platform.supervisor", f"/proc/self/fd/{handle}"]
    sys.stdout.flush()
    os.execv(sys.executable, argv)  # noqa: S606 - an argv list, no shell


def with_sandbox(settings: Settings, report: capabilities.Report | None = None) -> Settings:
    """Check for sandbox support; without it, production fails and development warns."""
    if settings.sandbox is Sandbox.OFF:
        warn("functions run without a sandbox (MOORAGE_SANDBOX=off): deploy only your own code")
        return settings
    report = report or capabilities.probe()
    if report.can_sandbox:
        return settings
    why = "; ".join(report.missing)
    if settings.is_production:
        raise BadSettings(
            f"MOORAGE_SANDBOX: users' code cannot be sandboxed on this machine: {why}. Fix that (see `moorage doctor`"
            "), or set MOORAGE_SANDBOX=off on purpose"
        )
    warn(f"functions run without a sandbox, because this machine has none: {why}")
    return settings.model_copy(update={"sandbox": Sandbox.OFF})


def sandbox_warnings(settings: Settings, report: capabilities.Report) -> list[str]:
    """Return the warnings of `moorage doctor` about limits and network of sandboxes that are on."""
    if settings.sandbox is Sandbox.OFF:
        return []
    checks = (sandbox_checks.check_limits(report), sandbox_checks.check_network(settings, report))
    return [f"{each.name}: {each.found}; {each.fix}" for each in checks if each.state is not State.OK]


def warn(text: str) -> None:
    print(f"moorage: warning: {text}", file=sys.stderr, flush=True)


def with_metrics_port(settings: Settings) -> Settings:
    """Pick a free metrics port if the default is in use, for a second platform."""
    port = settings.metrics_port
    if "metrics_port" in settings.model_fields_set or _is_free("127.0.0.1", port):
        return settings
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return settings.model_copy(update={"metrics_port": sock.getsockname()[1]})


PORTS = ("api_port", "gateway_port", "edge_port", "metrics_port", "edge_link_port")


def check_ports(settings: Settings, names: tuple[str, ...] = PORTS) -> None:
    """Raise BadSettings with the ports in use and the settings that change them."""
    problems = []
    for name in names:
        port = getattr(settings, name)
        host = "127.0.0.1" if name == "metrics_port" else settings.host
        if port and not _is_free(host, port):
            flag = name.replace("_", "-")
            problems.append(
                f"MOORAGE_{name.upper()}: {port} is in use by another program; choose another with --{flag}"
            )
    if problems:
        raise BadSettings("\n".join(problems))


def reachable(host: str) -> str:
    """Return the address to connect to for a server that listens on `host`."""
    return {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)  # noqa: S104


def _is_free(host: str, port: int) -> bool:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as sock:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            sock.bind((host, port))
        except OSError:
            return False
    return True


def _caddy(settings: Settings) -> dict[str, Any]:
    return {
        "name": "gateway",
        "argv": caddy.command(settings),
        "env": caddy.environment(settings),
        "says_ready": False,
        "probe": [reachable(settings.host), settings.gateway_port],
    }


def _python(name: str, module: str, env: dict[str, str]) -> dict[str, Any]:
    env = {**head_start.TUNING, **env}
    return {"name": name, "argv": [sys.executable, "-m", module], "env": env, "says_ready": True}
