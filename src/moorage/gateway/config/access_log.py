"""The access log: what is counted for the hosts that asked to be, and nothing that would identify a visitor for long.

One line of JSON for each request, in `logs/access.log` of the data folder:

    ts          when it was answered, in epoch seconds
    request     remote_ip, client_ip (behind trusted proxies the visitor's), proto, method, host, uri (the path alone)
    status, size, bytes_read, duration (in seconds)
    referer     without its query; empty where there was none
    user_agent  empty where there was none

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
    """Let Caddy write the log, where any host is counted. Without one it does not even look."""
    if not hosts.logged:
        return
    # A list of names in `logs` would be shorter to write. But Caddy goes through it at each request, whatever the host:
    # 0.1 us for each name.
    uncounted = {"match": [{"not": [host_is(hosts.logged)]}], "handle": [{"handler": "vars", "log_skip": True}]}
    for server in config["apps"]["http"]["servers"].values():
        server["logs"] = {"default_logger_name": NAME}
        server["routes"] = [uncounted, *server["routes"]]
    logs = config["logging"]["logs"]
    logs["default"]["exclude"].append("http.log.access")
    logs[NAME] = log_of(settings)


def log_of(settings: Settings) -> dict[str, Any]:
    """Return where the lines go, and what is in them; `hosts.LOGGED` adds two fields that Caddy has not by itself."""
    return {
        "include": [f"http.log.access.{NAME}"],
        "level": "INFO",
        "writer": {
            "output": "file",
            "filename": literal(path_of(settings)),
            "mode": "0600",
            "roll_size_mb": ROLL_MB,
            "roll_keep": FILES_KEPT,
            # Whoever reads along finds the rest of a file that was rolled as it was.
            "roll_gzip": False,
        },
        "encoder": {"format": "filter", "wrap": _JSON, "fields": _fields()},
    }


def _fields() -> dict[str, Any]:
    # Everything that is not named stays, so what could hold a secret goes as a whole: all headers, to and fro.
    removed = [*_LEFT_OUT, *(f"request>{name}" for name in _LEFT_OUT_OF_REQUEST)]
    return {
        **{name: {"filter": "delete"} for name in removed},
        "request>uri": _WITHOUT_QUERY,
        "referer": _WITHOUT_QUERY,
    }
