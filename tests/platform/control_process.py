"""A control process by itself, without the gateways: quick to start, and easy to kill."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.platform.running import clean_environment, free_ports


@dataclass
class Replied:
    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def data(self) -> Any:
        assert self.status == 200, self.body
        return self.json["data"]


@dataclass
class ControlProcess:
    """The control process of a data folder, which can be killed and started again."""

    data: Path
    log: Path
    flags: list[str]
    ports: dict[str, int] = field(default_factory=free_ports)
    process: subprocess.Popen[bytes] | None = None
    token: str = ""

    def start(self) -> None:
        while not self._is_started():
            # A program of another test run took the port meanwhile.
            assert "Address already in use" in self.log.read_text(), self.log.read_text()
            self.log.unlink()
            self.ports = free_ports()
        if not self.token:
            kind = {"Content-Type": "application/json"}
            self.token = self.call("POST", "/v1/auth/demo", b"{}", kind).data["token"]

    def _is_started(self) -> bool:
        argv = [sys.executable, "-m", "moorage.cli.main", "serve", "--data", str(self.data), *self.flags]
        argv += ["--api-port", str(self.ports["api"]), "--metrics-port", str(self.ports["metrics"])]
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(argv, env=clean_environment(), cwd="/", stdout=log, stderr=log)
        process, ready = self.process, f"http://127.0.0.1:{self.ports['metrics']}/ready"
        wait_for(lambda: process.poll() is not None or urllib.request.urlopen(ready, timeout=2).status == 200)
        return process.poll() is None

    def kill(self) -> None:
        if self.process is not None:
            os.kill(self.process.pid, signal.SIGKILL)
            self.process.wait()
            self.process = None

    def call(
        self, method: str, path: str, body: bytes | Iterator[bytes] | None = None, headers: dict[str, str] | None = None
    ) -> Replied:
        """Send a request; a body that is an iterator is sent in chunks, without a length."""
        url = f"http://127.0.0.1:{self.ports['api']}{path}"
        sent = {"Authorization": f"Bearer {self.token}", **(headers or {})}
        request = urllib.request.Request(url, body, sent, method=method)
        try:
            with urllib.request.urlopen(request, timeout=180) as answer:
                return Replied(answer.status, _names(answer.headers.items()), answer.read())
        except urllib.error.HTTPError as error:
            return Replied(error.code, _names(error.headers.items()), error.read())


def _names(headers: list[tuple[str, str]]) -> dict[str, str]:
    return {name.lower(): value for name, value in headers}


@contextlib.contextmanager
def control_process(folder: Path, *flags: str, data: Path | None = None) -> Iterator[ControlProcess]:
    """Start one and kill it in the end, whatever happens."""
    made = ControlProcess(data or folder / "data", folder / "log", list(flags))
    try:
        made.start()
        yield made
    finally:
        made.kill()


def wait_for(condition: Callable[[], object], timeout_s: float = 180) -> None:
    deadline = time.monotonic() + timeout_s
    while True:
        with contextlib.suppress(OSError):
            if condition():
                return
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.02)
