"""Load for the comparison of function hosts: `wrk` if installed, else our own generator.

Both sides of a comparison get the same one, on the client's core.
"""

from __future__ import annotations

import json
import math
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from bench.figures import percentile
from bench.function_sockets import HOST, Sockets, expect_all, get
from bench.load import BadAnswer
from bench.machine import CLIENT_CORE, on_core

# wrk hands its findings to `done`; one line of JSON is easier to read than what it prints.
_REPORT = """
function done(summary, latency, requests)
  local errors = summary.errors
  io.write(string.format(
    '\\n{"answered": %d, "us": %d, "p50_us": %d, "p99_us": %d, "refused": %d, "broken": %d}\\n',
    summary.requests, summary.duration, latency:percentile(50), latency:percentile(99),
    errors.status, errors.connect + errors.read + errors.write + errors.timeout))
end
"""
_DRAW = """
local requests = {}
function init(args)
  for number, path in ipairs(PATHS) do requests[number] = wrk.format("GET", path) end
end
function request() return requests[math.random(#requests)] end
"""


@dataclass(frozen=True)
class Measured:
    answered: int
    seconds: float
    p50_ms: float
    p99_ms: float

    @property
    def rate(self) -> float:
        return self.answered / self.seconds


class Generator(Protocol):
    name: str

    def drive(self, port: int, paths: Sequence[str], *, connections: int, seconds: float, host: str = HOST) -> Measured:
        """Keep the connections busy with GETs of random paths; raises BadAnswer where not all were answered 200."""
        ...


class Own:
    name = "bench.function_sockets"

    def drive(self, port: int, paths: Sequence[str], *, connections: int, seconds: float, host: str = HOST) -> Measured:
        with on_core(CLIENT_CORE), Sockets(port, [get(path, host) for path in paths], connections) as sockets:
            done = expect_all(sockets.run(seconds))
        return Measured(
            done.answered,
            done.seconds,
            percentile(done.latencies, 0.5) * 1000,
            percentile(done.latencies, 0.99) * 1000,
        )


class Wrk:
    name = "wrk"

    def __init__(self, executable: str) -> None:
        self._executable = executable

    def drive(self, port: int, paths: Sequence[str], *, connections: int, seconds: float, host: str = HOST) -> Measured:
        with tempfile.TemporaryDirectory() as folder, on_core(CLIENT_CORE):
            script = Path(folder) / "load.lua"
            script.write_text(lua(paths, host))
            argv = [self._executable, "-t1", f"-c{connections}", f"-d{math.ceil(seconds)}s", "-s", str(script)]
            said = subprocess.run(
                [*argv, f"http://127.0.0.1:{port}{paths[0]}"], capture_output=True, text=True, check=True
            )
        return read_report(said.stdout)


def lua(paths: Sequence[str], host: str = HOST) -> str:
    """Return the script that makes wrk ask for these paths at random. For one path it needs none of that."""
    named = "" if host == HOST else f'wrk.headers["Host"] = {json.dumps(host)}\n'
    if len(paths) == 1:
        return named + _REPORT
    table = ", ".join(json.dumps(path) for path in paths)
    return f"{named}local PATHS = {{ {table} }}\n{_DRAW}{_REPORT}"


def read_report(said: str) -> Measured:
    report = json.loads(next(line for line in reversed(said.splitlines()) if line.startswith("{")))
    if report["refused"] or report["broken"] or not report["answered"]:
        raise BadAnswer(f"not all requests were answered 200: {report}")
    return Measured(
        report["answered"], report["us"] / 1e6, p50_ms=report["p50_us"] / 1000, p99_ms=report["p99_us"] / 1000
    )


def best() -> Generator:
    executable = shutil.which("wrk")
    return Wrk(executable) if executable else Own()
