"""A whole platform, started as a user would, on free ports."""

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
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.ports import free_port


def kind_of(argv: list[str]) -> str:
    modules = {"moorage.runtime.edge.main": "edge", "moorage.runtime.workers.main": "invoker"}
    named = next((kind for module, kind in modules.items() if module in argv), "control")
    return "gateway" if "caddy" in argv[0] else named


@dataclass
class Running:
    """A started `moorage up`."""

    process: subprocess.Popen[str]
    said: list[str]
    ports: dict[str, int]
    data: Path

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.ports['api']}"

    def children(self) -> dict[str, int]:
        """Return the pid of each child by what it is."""
        found = {}
        for name in os.listdir("/proc"):
            if not name.isdigit():
                continue
            with contextlib.suppress(OSError):
                stat = Path(f"/proc/{name}/stat").read_text()
                argv = Path(f"/proc/{name}/cmdline").read_bytes().decode(errors="replace").split("\0")
                if int(stat.rpartition(")")[2].split()[1]) == self.process.pid:
                    found[kind_of(argv)] = int(name)
        return found

    def get(self, path: str, *, token: str | None = None, port: str = "api") -> tuple[int, Any]:
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        return self.call("GET", path, headers=headers, port=port)

    def call(
        self, method: str, path: str, *, headers: dict[str, str] | None = None, json_body: Any = None, port: str = "api"
    ) -> tuple[int, Any]:
        body = json.dumps(json_body).encode() if json_body is not None else None
        sent = {"Content-Type": "application/json", **(headers or {})}
        request = urllib.request.Request(f"http://127.0.0.1:{self.ports[port]}{path}", body, sent, method=method)
        try:
            with urllib.request.urlopen(request, timeout=10) as answer:
                return answer.status, _parsed(answer.read())
        except urllib.error.HTTPError as error:
            return error.code, _parsed(error.read())

    def token(self) -> str:
        """Return the token of the file that the printed command reads."""
        line = next(line for line in self.said if line.startswith("try:"))
        return Path(line.partition("$(cat ")[2].rstrip(")").strip("'")).read_text().strip()

    def session(self) -> str:
        """Log in as the demo user; a session acts on any organization of that user."""
        status, answer = self.call("POST", "/v1/auth/demo")
        assert status == 200, answer
        return str(answer["data"]["token"])

    def wait_until(self, condition: Any, timeout_s: float = 20) -> None:
        deadline = time.monotonic() + timeout_s
        while True:
            with contextlib.suppress(OSError):
                if condition():
                    return
            assert time.monotonic() < deadline, "waited in vain"
            time.sleep(0.05)

    def stop(self) -> int:
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(15)


def _parsed(body: bytes) -> Any:
    try:
        return json.loads(body)
    except ValueError:
        return body.decode(errors="replace")


def free_ports() -> dict[str, int]:
    return {name: free_port() for name in ("api", "gateway", "edge", "metrics")}


def command(
    data: Path, ports: dict[str, int], *extra: str, program: list[str] | None = None, part: str = "up"
) -> list[str]:
    flags = [argument for name, port in ports.items() for argument in (f"--{name}-port", str(port))]
    return [*(program or [sys.executable, "-m", "moorage.cli.main"]), part, "--data", str(data), *flags, *extra]


def clean_environment() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if not name.startswith("MOORAGE_")}


@contextlib.contextmanager
def running(
    data: Path,
    *extra: str,
    ports: dict[str, int] | None = None,
    program: list[str] | None = None,
    env: dict[str, str] | None = None,
    part: str = "up",
) -> Iterator[Running]:
    """Start the platform or a part of it, wait until it says `ready:`, and end it whatever happens."""
    ports = ports or free_ports()
    process = subprocess.Popen(
        command(data, ports, *extra, program=program, part=part),
        env={**clean_environment(), **(env or {})},
        stdout=subprocess.PIPE,
        stderr=(data.parent / f"{data.name}.log").open("a"),
        text=True,
        cwd="/",
    )
    platform = Running(process, [], ports, data)
    try:
        assert process.stdout is not None
        for line in process.stdout:
            platform.said.append(line.rstrip())
            if line.startswith("ready:"):
                break
        else:
            raise AssertionError(f"it never became ready: {(data.parent / f'{data.name}.log').read_text()}")
        yield platform
    finally:
        if process.poll() is None:
            process.terminate()
            try:
                process.wait(15)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        assert process.stdout is not None
        process.stdout.close()
