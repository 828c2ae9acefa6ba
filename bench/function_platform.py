"""The platform under test: `moorage up` on a core of its own, and the few calls of its API that the benchmarks make."""

from __future__ import annotations

import asyncio
import contextlib
import http.client
import io
import json
import os
import sys
import time
import zipfile
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import quote

from bench import machine, processes, stores
from bench.function_peers import GREETING, Target
from bench.machine import SERVER_CORE, on_core
from bench.stores import Seat

T = TypeVar("T")
R = TypeVar("R")

CALL_S = 60.0
UPLOADS = 8  # at once: enough to keep the platform busy
MAIN = {"python": "main.py", "nodejs": "index.js"}
HELLO = {
    "python": f'def main(params):\n    return {{"statusCode": 200, "body": {GREETING!r}}}\n',
    "nodejs": f"exports.main = () => ({{ statusCode: 200, body: {GREETING!r} }});\n",
}
_MODULES = {
    "control": "moorage.platform.control_start",
    "edge": "moorage.runtime.edge.main",
    "invoker": "moorage.runtime.workers.main",
}
BOUNDARY = "the-bench-boundary"


class Refused(Exception):
    """The API did not answer 200."""


@dataclass(frozen=True)
class Platform:
    """A running platform, and one seat for each organization on it."""

    pid: int
    api_port: int
    edge_port: int
    seats: list[Seat]
    data: Path
    gateway_port: int

    def path(self, name: str, seat: int = 0) -> str:
        """Return the public path of a function."""
        return f"/api/v1/web/org_{self.seats[seat].caller.org_id}/default/{name}"

    def target(self, title: str, names: Sequence[str], seat: int = 0) -> Target:
        return Target(title, self.pid, self.edge_port, tuple(self.path(name, seat) for name in names))

    def process(self, role: str) -> int:
        """Return the id of the control, edge or invoker process; raises NotReady while there is none."""
        for pid in machine.tree_of(self.pid):
            with suppress(OSError):  # It ended since it was found.
                if _MODULES[role] in machine.command_of(pid):
                    return pid
        raise processes.NotReady(f"there is no {role} process")

    def call(self, method: str, path: str, body: Any = None, seat: int = 0) -> Any:
        """Call the API with JSON and return the answer's data; raises Refused."""
        raw = json.dumps(body).encode() if body is not None else None
        return self._ask(method, path, raw, "application/json", seat)

    def create(self, name: str, runtime: str, source: str, seat: int = 0, **fields: object) -> Any:
        """Make a function of one file."""
        form = {"name": name, "runtime": runtime, **fields}
        return self._upload("/v1/functions", runtime, source, form, seat)

    def deploy(self, name: str, runtime: str, source: str, *, seat: int = 0) -> Any:
        return self._upload(f"/v1/functions/{name}/deploy", runtime, source, {}, seat)

    def create_many(self, names: Sequence[str], runtime: str, source: str, **fields: object) -> None:
        in_parallel(lambda name: self.create(name, runtime, source, 0, **fields), names)

    def invocations(self, name: str) -> list[dict[str, Any]]:
        """Return all that is recorded of a function."""
        found: list[dict[str, Any]] = []
        while True:
            page = len(found) // 100 + 1
            got = self.call("GET", f"/v1/functions/{name}/invocations?page={page}&pageSize=100")
            found += got["items"]
            if len(got["items"]) < 100:
                return found

    def invoked(self, name: str) -> int:
        """Return how many invocations of a function its metrics count."""
        return int(sum(self.call("GET", f"/v1/functions/{name}/metrics")["invocations"]))

    def wait_until_served(self, path: str) -> None:
        """Call a function until it answers 200. It is warm then."""
        wait_until(lambda: get(self.edge_port, path)[0] == 200, f"{path} answers 200")

    def _upload(self, path: str, runtime: str, source: str, fields: dict[str, object], seat: int) -> Any:
        body = multipart(fields, archive(MAIN[runtime.partition(":")[0]], source))
        return self._ask("POST", path, body, f"multipart/form-data; boundary={BOUNDARY}", seat)

    def _ask(self, method: str, path: str, body: bytes | None, kind: str, seat: int) -> Any:
        headers = {"Authorization": f"Bearer {self.seats[seat].token}", "Content-Type": kind}
        connection = http.client.HTTPConnection("127.0.0.1", self.api_port, timeout=CALL_S)
        try:
            connection.request(method, quote(path, safe="/?&=:"), body, headers)
            answer = connection.getresponse()
            said = answer.read()
        finally:
            connection.close()
        if answer.status != 200:
            raise Refused(f"{method} {path}: {answer.status} {said[:500]!r}")
        return json.loads(said)["data"]


@contextmanager
def running(
    folder: Path,
    *,
    seats: int = 1,
    pinned: bool = True,
    rate_limit: int = stores.UNLIMITED,
    user: int | None = None,
    **settings: object,
) -> Iterator[Platform]:
    """Run the whole platform on a fresh data folder: on the server's core, or on all that there are.

    It has the rights of `user`, by default those of this process.
    """
    folder.mkdir(parents=True, exist_ok=True)
    db, taken = asyncio.run(stores.open_seated(folder / "data", seats))
    db.close()
    names = ("api_port", "gateway_port", "edge_port", "metrics_port")
    ports = dict(zip(names, processes.free_ports(len(names)), strict=True))
    env = processes.environment(
        data=folder / "data", rate_limit=rate_limit, log_format="json", log_level="warning", **ports, **settings
    )
    log = folder / "up.log"
    if user is not None:
        env["HOME"] = str(folder)
        _give(folder, user)
    with on_core(SERVER_CORE) if pinned else contextlib.nullcontext():
        process = processes.start([sys.executable, "-m", "moorage.cli.main", "up"], log, env, user=user)
    try:
        assert process.stdout is not None
        processes.wait_for_line(process.stdout.fileno(), "ready: ", log)
        yield Platform(
            process.pid, ports["api_port"], ports["edge_port"], taken, folder / "data", ports["gateway_port"]
        )
    finally:
        processes.stop(process)


def _give(folder: Path, user: int) -> None:
    """Make a user the owner of a folder and all that is in it, and let it through the two folders above."""
    for each in (folder.parent, folder.parent.parent):
        each.chmod(0o711)
    for each in (folder, *folder.rglob("*")):
        os.chown(each, user, user)


def get(port: int, path: str, timeout_s: float = CALL_S) -> tuple[int, bytes]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=timeout_s)
    try:
        connection.request("GET", path)
        answer = connection.getresponse()
        return answer.status, answer.read()
    finally:
        connection.close()


def in_parallel(work: Callable[[T], R], items: Sequence[T]) -> list[R]:
    """Do some work for each item, a few at a time; raises the first error."""
    with ThreadPoolExecutor(UPLOADS) as pool:
        return list(pool.map(work, items))


def wait_until(is_so: Callable[[], bool], what: str, timeout_s: float = 60.0, every_s: float = 0.05) -> None:
    deadline = time.monotonic() + timeout_s
    while True:
        try:
            if is_so():
                return
        except (OSError, http.client.HTTPException, Refused):
            pass  # It is being started.
        if time.monotonic() > deadline:
            raise processes.NotReady(f"waited {timeout_s:.0f} s in vain until {what}")
        time.sleep(every_s)


def archive(name: str, source: str) -> bytes:
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as file:
        file.writestr(name, source)
    return packed.getvalue()


def multipart(fields: dict[str, object], code: bytes) -> bytes:
    parts = [
        f'--{BOUNDARY}\r\nContent-Disposition: form-data; name="{name}"\r\n\r\n{value}\r\n'.encode()
        for name, value in fields.items()
    ]
    head = f'--{BOUNDARY}\r\nContent-Disposition: form-data; name="code"; filename="code.zip"\r\n'.encode()
    return b"".join([*parts, head, b"Content-Type: application/zip\r\n\r\n", code, f"\r\n--{BOUNDARY}--\r\n".encode()])
