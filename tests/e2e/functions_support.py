"""What the end-to-end tests of functions share: a started platform, spoken to as its users speak to it."""

from __future__ import annotations

import contextlib
import io
import itertools
import json
import os
import signal
import socket
import time
import zipfile
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from http.client import HTTPConnection, HTTPException, HTTPResponse
from pathlib import Path
from typing import Any, TypeVar

import pytest
from tests.platform.running import Running, running

T = TypeVar("T")
Body = str | bytes | None

MB = 2**20
LANGUAGES = ("python", "nodejs")
# For tests of the edge and the control process, to which the language of a function makes no difference.
ANY_LANGUAGE = pytest.mark.parametrize("language", ["python", pytest.param("nodejs", marks=pytest.mark.twin)])
MAIN_FILES = {"python": "main.py", "nodejs": "index.js"}
FORM_EDGE = "----moorage-e2e"
CHILDREN = {
    "control": "moorage.platform.control_start",
    "invoker": "moorage.runtime.workers.main",
    "edge": "moorage.runtime.edge.main",
}

# Answers with its params, so that a test sees exactly what a function was given.
ECHO = {
    "python": "def main(params):\n    return {'statusCode': 200, 'body': params}\n",
    "nodejs": "exports.main = (params) => ({ statusCode: 200, body: params });\n",
}

_numbers = itertools.count(1)


def new_name(stem: str) -> str:
    """Return a function name that nothing else on the platform has."""
    return f"{stem}-{next(_numbers)}"


@dataclass(frozen=True)
class Answer:
    """An answer over HTTP; header names are lower case, repeated headers stand several times."""

    status: int
    headers: list[tuple[str, str]]
    body: bytes

    def header(self, name: str) -> str | None:
        return next((value for key, value in self.headers if key == name), None)

    def all_of(self, name: str) -> list[str]:
        return [value for key, value in self.headers if key == name]

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def activation(self) -> str:
        found = self.header("x-openwhisk-activation-id")
        assert found is not None
        assert len(found) == 32
        return found

    @property
    def error(self) -> dict[str, Any]:
        """Return the error of a failure envelope, which every failure of the gateway has to be."""
        assert self.header("content-type") == "application/json"
        envelope = self.json
        assert set(envelope) == {"success", "error"}
        assert envelope["success"] is False
        assert set(envelope["error"]) == {"code", "message", "traceId"}
        assert envelope["error"]["traceId"] == self.header("x-request-id")
        error: dict[str, Any] = envelope["error"]
        return error


def read_answer(response: HTTPResponse) -> Answer:
    body = response.read()
    return Answer(response.status, [(name.lower(), value) for name, value in response.getheaders()], body)


@dataclass
class Platform:
    """A started platform, and the token of its first user."""

    running: Running
    token: str
    org: str = field(init=False)

    def __post_init__(self) -> None:
        self.org = self.api("GET", "/v1/whoami")["orgId"]

    # The API.

    def send(self, method: str, path: str, body: Body = None, headers: Mapping[str, str] | None = None) -> Answer:
        """Send a request to the API and return its answer, whatever it is."""
        sent = {"Authorization": f"Bearer {self.token}", **(headers or {})}
        connection = HTTPConnection("127.0.0.1", self.running.ports["api"], timeout=60)
        with contextlib.closing(connection):
            connection.request(method, path, body, sent)
            return read_answer(connection.getresponse())

    def api(self, method: str, path: str, payload: Any = None) -> Any:
        """Send JSON to the API and return the data of its success."""
        body = None if payload is None else json.dumps(payload)
        answer = self.send(method, path, body, {"Content-Type": "application/json"})
        assert answer.status == 200, answer.body
        return answer.json.get("data")

    def create(self, name: str, language: str, code: str | Mapping[str, str | bytes], **fields: Any) -> str:
        """Create a function from the text of its main file, or from several files; return its name."""
        return self._upload("/v1/functions", files_of(language, code), name=name, runtime=language, **fields)

    def deploy(self, name: str, language: str, code: str | Mapping[str, str | bytes]) -> int:
        """Deploy another version; return its number."""
        self._upload(f"/v1/functions/{name}/deploy", files_of(language, code))
        return int(self.api("GET", f"/v1/functions/{name}")["currentVersion"])

    def _upload(self, path: str, files: Mapping[str, str | bytes], **fields: Any) -> str:
        answer = self.send("POST", path, *form(zip_of(files), **fields))
        assert answer.status == 200, answer.body
        return str(answer.json["data"]["name"])

    def invoke(self, name: str, payload: Any = None) -> dict[str, Any]:
        result: dict[str, Any] = self.api("POST", f"/v1/functions/{name}/invoke", payload)
        return result

    def invocations(self, name: str, page_size: int = 100, page: int = 1) -> list[dict[str, Any]]:
        """Return a page of what is recorded of a function, the newest first."""
        path = f"/v1/functions/{name}/invocations?page={page}&pageSize={page_size}"
        items: list[dict[str, Any]] = self.api("GET", path)["items"]
        return items

    def all_invocations(self, name: str) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = []
        for page in itertools.count(1):
            items = self.invocations(name, page=page)
            found += items
            if len(items) < 100:
                return found
        raise AssertionError("unreachable")

    def record_of(self, name: str, activation: str) -> dict[str, Any]:
        """Return the one record of an invocation."""
        (found,) = [item for item in self.invocations(name) if item["activationId"] == activation]
        return found

    # The public address.

    def path(self, name: str, rest: str = "") -> str:
        return f"/api/v1/web/org_{self.org}/default/{name}{rest}"

    def fetch_at_own_host(
        self, name: str, rest: str = "", *, method: str, body: Body | Iterator[bytes], headers: Mapping[str, str]
    ) -> Answer:
        """Call a function at the host of its organization, where replies go out as the function made them."""
        with contextlib.closing(self.connect("edge")) as connection:
            host = {"Host": f"org-{self.org}.localhost"}
            connection.request(method, f"/default/{name}{rest}", body, {**headers, **host})
            return read_answer(connection.getresponse())

    def fetch(
        self,
        name: str,
        rest: str = "",
        *,
        method: str = "GET",
        body: Body | Iterator[bytes] = None,
        headers: Mapping[str, str] | None = None,
        port: str = "edge",
    ) -> Answer:
        """Call a function at its public address, on a connection of its own."""
        connection = self.connect(port)
        with contextlib.closing(connection):
            connection.request(method, self.path(name, rest), body, dict(headers or {}))
            return read_answer(connection.getresponse())

    def connect(self, port: str = "edge") -> HTTPConnection:
        return HTTPConnection("127.0.0.1", self.running.ports[port], timeout=60)

    def exchange(self, sent: bytes, port: str = "edge") -> bytes:
        """Send bytes and return all that comes until the other side closes."""
        with socket.create_connection(("127.0.0.1", self.running.ports[port]), timeout=60) as client:
            client.sendall(sent)
            return b"".join(iter(lambda: client.recv(65536), b""))

    # Its processes.

    def in_flight(self) -> int:
        """Return how many calls the function gateway holds, as it tells the platform itself."""
        with socket.socket(socket.AF_UNIX) as door:
            door.settimeout(10)
            door.connect(str(self.running.data / "run" / "edge.sock"))
            door.sendall(b"GET /health HTTP/1.1\r\nHost: edge\r\nConnection: close\r\n\r\n")
            (answer,) = split_answers(b"".join(iter(lambda: door.recv(65536), b"")))
        return int(answer.json["inFlight"])

    def children(self) -> dict[str, int]:
        """Return the process id of each child by its name."""
        found: dict[str, int] = {}
        for name in filter(str.isdigit, os.listdir("/proc")):
            with contextlib.suppress(OSError):
                stat = Path(f"/proc/{name}/stat").read_text().rpartition(")")[2].split()
                argv = Path(f"/proc/{name}/cmdline").read_bytes().decode().split("\0")
                if int(stat[1]) == self.running.process.pid and stat[0] != "Z":
                    found |= {child: int(name) for child, module in CHILDREN.items() if module in argv}
        return found

    def kill(self, child: str) -> int:
        """End a child as a crash would; return the process id it had."""
        wait_until(lambda: child in self.children())
        pid = self.children()[child]
        os.kill(pid, signal.SIGKILL)
        return pid

    def crash_control(self, timeout_s: float = 60) -> None:
        """Kill the control process, and wait until another answers."""
        pid = self.kill("control")

        def is_back() -> bool:
            with contextlib.suppress(OSError):
                return self.children().get("control", pid) != pid and self.send("GET", "/health").status == 200
            return False

        wait_until(is_back, timeout_s)


def make_platform(running_platform: Running) -> Platform:
    return Platform(running_platform, running_platform.session())


@contextlib.contextmanager
def started(data: Path, **settings: str) -> Iterator[Platform]:
    """Start a platform with settings, and end it whatever happens."""
    env = {"MOORAGE_RATE_LIMIT": "1000000", **{f"MOORAGE_{name.upper()}": value for name, value in settings.items()}}
    with running(data, env=env) as platform:
        yield make_platform(platform)


def files_of(language: str, code: str | Mapping[str, str | bytes]) -> Mapping[str, str | bytes]:
    return {MAIN_FILES[language]: code} if isinstance(code, str) else code


def zip_of(files: Mapping[str, str | bytes]) -> bytes:
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w") as archive:
        for name, data in files.items():
            archive.writestr(name, data)
    return made.getvalue()


def form(archive: bytes, **fields: Any) -> tuple[bytes, dict[str, str]]:
    """Return the body and the headers of an upload."""
    body = b"".join(
        f'--{FORM_EDGE}\r\nContent-Disposition: form-data; name="{key}"\r\n\r\n{value}\r\n'.encode()
        for key, value in fields.items()
    )
    disposition = 'Content-Disposition: form-data; name="code"; filename="code.zip"\r\nContent-Type: application/zip'
    body += f"--{FORM_EDGE}\r\n{disposition}\r\n\r\n".encode() + archive + f"\r\n--{FORM_EDGE}--\r\n".encode()
    return body, {"Content-Type": f"multipart/form-data; boundary={FORM_EDGE}"}


def split_answers(received: bytes, *, heads: frozenset[int] = frozenset()) -> list[Answer]:
    """Cut what a connection gave into its answers; `heads` are the places of those to HEAD, which have no body."""
    answers: list[Answer] = []
    while received:
        head, _, received = received.partition(b"\r\n\r\n")
        first, *lines = head.decode("latin-1").split("\r\n")
        headers = [(line.partition(": ")[0].lower(), line.partition(": ")[2]) for line in lines]
        length = int(dict(headers).get("content-length", "0")) if len(answers) not in heads else 0
        answers.append(Answer(int(first.split()[1]), headers, received[:length]))
        received = received[length:]
    return answers


def at_once(count: int, action: Callable[[int], T]) -> list[T]:
    """Run an action so many times, all at the same time; return what each returned, in order."""
    with ThreadPoolExecutor(count) as threads:
        return list(threads.map(action, range(count)))


@contextlib.contextmanager
def held(platform: Platform, *targets: str) -> Iterator[list[Answer]]:
    """Keep calls waiting for their answers, in the order in which they were sent; those are there when it ends."""
    answers: list[Answer] = []
    with contextlib.ExitStack() as connections:
        waiting: list[HTTPConnection] = []
        for count, target in enumerate(targets, platform.in_flight() + 1):
            connection = connections.enter_context(contextlib.closing(platform.connect()))
            connection.request("GET", target)
            waiting.append(connection)
            wait_until(lambda count=count: platform.in_flight() == count)  # type: ignore[misc]
        yield answers
        answers += [read_answer(connection.getresponse()) for connection in waiting]


def wait_until(condition: Callable[[], object], timeout_s: float = 20) -> None:
    """Return when a condition holds; what fails because something is restarting counts as not yet."""
    deadline = time.monotonic() + timeout_s
    while True:
        with contextlib.suppress(OSError, HTTPException, AssertionError):
            if condition():
                return
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.02)
