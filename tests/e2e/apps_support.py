"""What the end-to-end tests of real apps share: repositories of samples, a platform that runs them, visitors."""

from __future__ import annotations

import base64
import contextlib
import json
import os
import shutil
import signal
import socket
import struct
import textwrap
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from http.client import HTTPConnection
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import urlencode

from tests.e2e.functions_support import Answer, Body, read_answer, wait_until
from tests.e2e.projects_support import NOBODY, Event, Sites, is_alive, read_events
from tests.platform.running import running
from tests.products.repositories.support import Checkout
from tests.runtime.engines.engine_support import PRELUDE

T = TypeVar("T")

SAMPLES = Path(__file__).with_name("apps")
LIVE_S = 240.0  # What is fetched from the registries may take its time.
VISIT_S = 60.0
_MASK = b"\x01\x02\x03\x04"
_TEXT, _CLOSE = 1, 8


def checkout_of(sample: str, folder: Path) -> Checkout:
    """Return a repository with a sample in it."""
    work = Checkout.init(folder / sample)
    shutil.copytree(SAMPLES / sample, work.folder, dirs_exist_ok=True, ignore=shutil.ignore_patterns("__pycache__"))
    work.commit()
    return work


def pairs(values: Mapping[str, str]) -> list[dict[str, str]]:
    return [{"name": name, "value": value} for name, value in values.items()]


class Apps(Sites):
    """A started platform, as those who have apps on it, and those who use them, speak to it."""

    # Owners.

    def tenant(self, name: str) -> Apps:
        """Return the platform as another organization sees it."""
        made = self.call("POST", "/v1/orgs", {"name": name})
        headers = {"Content-Type": "application/json", "X-Organization-Id": str(made["organizationId"])}
        answer = self.send("POST", "/v1/api-tokens", json.dumps({"name": name}), headers)
        assert answer.status == 200, answer
        return Apps(self.running, answer.json["data"]["token"])

    def launch(self, name: str, work: Checkout, owner: str = "acme", **fields: Any) -> str:
        """Push a repository and make a project of it; return the uuid of its deployment."""
        self.push(work, f"{owner}/{name}")
        return self.create_project(name, f"{owner}/{name}", **{"slug": "container", "language": "auto", **fields})

    def live(self, uuid: str) -> dict[str, Any]:
        """Wait for a deployment, which has to succeed."""
        wait_until(lambda: self.status(uuid)["terminal"], LIVE_S)
        status = self.status(uuid)
        assert status["status"] == "succeeded", "\n".join(self.log(uuid)[-60:])
        return status

    def change(self, name: str, **fields: Any) -> str:
        """Change an app's settings; return the uuid of the deployment that this leads to."""
        return str(self.call("PATCH", f"/v1/projects/{name}", fields)["triggeredDeploymentUuid"])

    def execute(self, name: str, command: str) -> dict[str, Any]:
        """Run a command beside an app."""
        found: dict[str, Any] = self.call("POST", f"/v1/projects/{name}/exec", {"command": command})
        return found

    def execute_events(self, name: str, command: str) -> list[Event]:
        """Run a command beside an app, and return the events of its stream."""
        headers = {
            "Authorization": f"Bearer {self.token}",
            "Accept": "text/event-stream",
            "Content-Type": "application/json",
        }
        connection = HTTPConnection("127.0.0.1", self.running.ports["api"], timeout=VISIT_S)
        with contextlib.closing(connection):
            connection.request("POST", f"/v1/projects/{name}/exec", json.dumps({"command": command}), headers)
            response = connection.getresponse()
            assert response.status == 200, response.read()
            return list(read_events(response))

    def printed_by(self, name: str, **query: str) -> list[str]:
        """Return what an app has printed, and what the platform said about it."""
        asked = urlencode({"limit": "1000", **query})
        return [line["message"] for line in self.call("GET", f"/v1/projects/{name}/logs?{asked}")["items"]]

    # Users.

    def ask(self, name: str, method: str, path: str, body: Body = None, **headers: str) -> Answer:
        """Send a request to an app through the public gateway, on a connection of its own."""
        port = self.running.ports["gateway"]
        connection = HTTPConnection("127.0.0.1", port, timeout=VISIT_S)
        with contextlib.closing(connection):
            named = {key.replace("_", "-"): value for key, value in headers.items()}
            connection.request(method, path, body, {"Host": f"{name}.localhost:{port}", **named})
            return read_answer(connection.getresponse())

    @contextlib.contextmanager
    def begun(self, name: str, path: str, body: bytes) -> Iterator[Callable[[], Answer]]:
        """Send half of a request; what this gives sends the rest, and returns the answer."""
        port = self.running.ports["gateway"]
        connection = HTTPConnection("127.0.0.1", port, timeout=VISIT_S)
        with contextlib.closing(connection):
            connection.putrequest("POST", path, skip_host=True)
            headers = {"Host": f"{name}.localhost:{port}", "Content-Type": "application/json"}
            for key, value in {**headers, "Content-Length": str(len(body))}.items():
                connection.putheader(key, value)
            connection.endheaders()
            connection.send(body[: len(body) // 2])

            def finish() -> Answer:
                connection.send(body[len(body) // 2 :])
                return read_answer(connection.getresponse())

            yield finish

    def run(self, name: str, code: str) -> Any:
        """Run code inside a lab; return what it left in `answer`."""
        answer = self.ask(name, "POST", "/", PRELUDE + textwrap.dedent(code))
        assert answer.status == 200, answer
        return answer.json

    def web_socket(self, name: str) -> WebSocket:
        return WebSocket.opened(f"{name}.localhost", self.running.ports["gateway"])


@dataclass
class WebSocket:
    """A client of one WebSocket, which speaks short texts."""

    sock: socket.socket
    close_code: int | None = None
    _kept: bytearray = field(default_factory=bytearray)

    @classmethod
    def opened(cls, host: str, port: int) -> WebSocket:
        sock = socket.create_connection(("127.0.0.1", port), timeout=VISIT_S)
        key = base64.b64encode(os.urandom(16)).decode()
        upgrade = "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13"
        sock.sendall(f"GET / HTTP/1.1\r\nHost: {host}:{port}\r\n{upgrade}\r\nSec-WebSocket-Key: {key}\r\n\r\n".encode())
        made = cls(sock)
        while b"\r\n\r\n" not in made._kept:
            made._read_more()
        head, _, rest = bytes(made._kept).partition(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 101"), head
        made._kept[:] = rest
        return made

    def echo(self, text: str) -> str:
        """Send a text and return what comes back."""
        data = text.encode()
        masked = bytes(byte ^ _MASK[number % 4] for number, byte in enumerate(data))
        self.sock.sendall(bytes([0x80 | _TEXT, 0x80 | len(data)]) + _MASK + masked)
        kind, got = self._frame()
        assert kind == _TEXT, (kind, got)
        return got.decode()

    def wait_for_close(self) -> int:
        """Return the code with which the other side closes."""
        kind, data = self._frame()
        assert kind == _CLOSE, (kind, data)
        self.sock.close()
        return int(struct.unpack(">H", data[:2])[0])

    def _frame(self) -> tuple[int, bytes]:
        while len(self._kept) < 2 or len(self._kept) < 2 + self._kept[1]:
            self._read_more()
        kind, size = self._kept[0] & 15, self._kept[1]
        data = bytes(self._kept[2 : 2 + size])
        del self._kept[: 2 + size]
        return kind, data

    def _read_more(self) -> None:
        received = self.sock.recv(4096)
        assert received, "the connection was closed"
        self._kept += received


@contextlib.contextmanager
def started_apps(
    data: Path, program: list[str] | None = None, env: Mapping[str, str] | None = None, **settings: str
) -> Iterator[Apps]:
    """Start a platform for apps; end it, and the apps too, which would outlive it."""
    given = {"rate_limit": "1000000", "codehost_url": NOBODY, "function_pool": "0", **settings}
    told = {f"MOORAGE_{name.upper()}": value for name, value in given.items()}
    try:
        with running(data, program=program, env={**told, **(env or {})}) as platform:
            yield Apps(platform, platform.session())
    finally:
        end_shims(data)


def shims_of(data: Path) -> list[int]:
    """Return the processes that keep the apps of a platform."""
    found = []
    for path in data.glob("run/shims/*/shim.json"):
        with contextlib.suppress(OSError, ValueError):
            found.append(int(json.loads(path.read_text())["pid"]))
    return [pid for pid in found if _is_shim(pid, data)]


def _is_shim(pid: int, data: Path) -> bool:
    with contextlib.suppress(OSError):
        return str(data).encode() in Path(f"/proc/{pid}/cmdline").read_bytes() and is_alive(pid)
    return False


def end_shims(data: Path) -> None:
    shims = shims_of(data)
    for pid in shims:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGTERM)
    wait_until(lambda: not any(map(is_alive, shims)), 30)


def eventually(read: Callable[[], T], is_so: Callable[[T], object], timeout_s: float = 30) -> T:
    """Read until something is so, and return what was read."""
    found: list[T] = []

    def look() -> object:
        found[:] = [read()]
        return is_so(found[0])

    wait_until(look, timeout_s)
    return found[0]
