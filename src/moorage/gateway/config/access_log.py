"""The access log: one line for each request to a host with analytics.

JSON lines in `logs/access.log` of the data folder:

    ts          time of the response, in epoch seconds
    request     remote_ip, client_ip (differs behind trusted proxies), proto, method, host, uri (the path alone)
    status, size, bytes_read, duration (in seconds)
    referer     without its query; empty if absent
    user_agent  empty if absent

Caddy starts a new file at 10 MB, and keeps two beside it.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from moorage.gateway.config.hosts import HostConfig
from moorage.gateway.config.names import host_is
from moorage.gateway.config.static import literal
from moorage.settings import Settings

NAME = "access"
ROLL_MB = 10
FILES_KEPT = 2

_WITHOUT_QUERY = {"filter": "regexp", "regexp": r"[?#].*$", "value": ""}
_JSON = {"format": "json", "level_key": "", "name_key": "", "message_key": ""}
_LEFT_OUT = ("user_id", "resp_headers")
_LEFT_OUT_OF_REQUEST = ("headers", "tls", "remote_port")


def path_of(settings: Settings) -> Path:
    return settings.folder("logs") / f"{NAME}.log"


def add_to(config: dict[str, Any], settings: Settings, hosts: HostConfig) -> None:
    """Add the log to Caddy's configuration if any host is logged."""
    if not hosts.logged:
        return
    # Caddy searches a list of names in `logs` at each request to any host: 0.1 us for each name. This matcher is
    # cheaper.
    unlogged = {"match": [{"not": [host_is(hosts.logged)]}], "handle": [{"handler": "vars", "log_skip": True}]}
    for server in config["apps"]["http"]["servers"].values():
        server["logs"] = {"default_logger_name": NAME}
        server["routes"] = [unlogged, *server["routes"]]
    logs = config["logging"]["logs"]
    logs["default"]["exclude"].append("http.log.access")
    logs[NAME] = log_of(settings)


def log_of(settings: Settings) -> dict[str, Any]:
    """Return file and fields of the log; `hosts.LOGGED` adds two fields."""
    return {
        "include": [f"http.log.access.{NAME}"],
        "level": "INFO",
        "writer": {
            "output": "file",
            "filename": literal(path_of(settings)),
            "mode": "0600",
            "roll_size_mb": ROLL_MB,
            "roll_keep": FILES_KEPT,
            # The reader of the log also reads the rest of a rotated file.
            "roll_gzip": False,
        },
        "encoder": {"format": "filter", "wrap": _JSON, "fields": _fields()},
    }


def _fields() -> dict[str, Any]:
    # A field that is not deleted is written, so all headers of request and response are deleted: they may hold secrets.
    removed = [*_LEFT_OUT, *(f"request>{name}" for name in _LEFT_OUT_OF_REQUEST)]
    return {
        **{name: {"filter": "delete"} for name in removed},
        "request>uri": _WITHOUT_QUERY,
        "referer": _WITHOUT_QUERY,
    }
