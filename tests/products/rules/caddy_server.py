"""A real Caddy that serves hosts with rules, a file, an app and a 404 page."""

from __future__ import annotations

import http.client
import json
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from moorage.gateway import caddy
from moorage.gateway.config.rules import all_rule_routes
from moorage.products.rules.patterns import HeaderRule, HostRules, RedirectRule

SECRET = "a secret of the gateway's own"


@dataclass(frozen=True)
class Reply:
    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def location(self) -> str:
        return self.headers["location"]


class _AdminConnection(http.client.HTTPConnection):
    def __init__(self, path: Path) -> None:
        super().__init__("localhost", timeout=30)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(30)
        self.sock.connect(str(self._path))


class RuleServer:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.hosts: dict[str, HostRules] = {}
        (folder / "site").mkdir()
        (folder / "site" / "page.html").write_text("a page")
        (folder / "secret.txt").write_text(SECRET)

    def serve(self, *rules: HeaderRule | RedirectRule) -> str:
        """Serve one more host with these rules, and return it."""
        host = f"host-{len(self.hosts)}.localhost"
        self.hosts[host] = HostRules(
            tuple(rule for rule in rules if isinstance(rule, RedirectRule)),
            tuple(rule for rule in rules if isinstance(rule, HeaderRule)),
        )
        self.load()
        return host

    def load(self) -> None:
        connection = _AdminConnection(self.folder / "admin.sock")
        connection.request("POST", "/load", json.dumps(self.config()), {"Content-Type": "application/json"})
        answer = connection.getresponse()
        assert answer.status == 200, answer.read()
        connection.close()

    def config(self) -> dict[str, Any]:
        app = f"unix/{self.folder}/app.sock"
        not_here = {"handler": "static_response", "status_code": 404, "body": "not here"}
        routes = [
            *all_rule_routes(self.hosts),
            {"match": [{"path": ["/app*"]}], "handle": [{"handler": "reverse_proxy", "upstreams": [{"dial": app}]}]},
            {"handle": [{"handler": "file_server", "root": f"{self.folder}/site", "pass_thru": True}, not_here]},
        ]
        said = {"handler": "static_response", "body": "the app", "headers": {"X-Said": ["app"]}}
        servers = {
            "public": {"listen": [f"unix/{self.folder}/public.sock"], "routes": routes},
            "app": {"listen": [app], "routes": [{"handle": [said]}]},
        }
        for server in servers.values():
            server["automatic_https"] = {"disable": True}
        return {
            "admin": {"listen": f"unix/{self.folder}/admin.sock", "config": {"persist": False}},
            "logging": {"logs": {"default": {"level": "ERROR"}}},
            "apps": {"http": {"servers": servers}},
        }

    def fetch(self, host: str, target: str, *, headers: str = "") -> Reply:
        """Send exactly this target, which a client library would normalise."""
        request = f"GET {target} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n{headers}\r\n"
        received = self._exchange(request.encode())
        # Just after a reload, the old server may accept a connection and close it unread.
        while not received:
            received = self._exchange(request.encode())
        head, _, body = received.partition(b"\r\n\r\n")
        status, *lines = head.decode().split("\r\n")
        pairs = [line.split(":", 1) for line in lines]
        assert len({name.lower() for name, _ in pairs}) == len(pairs), lines
        return Reply(int(status.split()[1]), {name.lower(): value.strip(" ") for name, value in pairs}, body)

    def _exchange(self, request: bytes) -> bytes:
        received = b""
        with socket.socket(socket.AF_UNIX) as client:
            client.settimeout(30)
            client.connect(f"{self.folder}/public.sock")
            client.sendall(request)
            while piece := client.recv(65536):
                received += piece
        return received

    def locate(self, host: str, target: str) -> str | None:
        """Return the Location header, or None without a redirect."""
        return self.fetch(host, target).headers.get("location")


@contextmanager
def running_rule_server() -> Iterator[RuleServer]:
    # The path of a unix socket must be short, and the test's folder is long.
    with tempfile.TemporaryDirectory(prefix="rules") as folder:
        server = RuleServer(Path(folder))
        path = server.folder / "caddy.json"
        path.write_text(json.dumps(server.config()))
        env = {"HOME": folder, "XDG_DATA_HOME": folder, "XDG_CONFIG_HOME": folder, "SECRET": SECRET}
        with subprocess.Popen([str(caddy.find_caddy()), "run", "--config", str(path)], env=env) as process:
            try:
                while not (server.folder / "public.sock").exists() or not (server.folder / "admin.sock").exists():
                    assert process.poll() is None
                    time.sleep(0.02)
                yield server
            finally:
                process.kill()
