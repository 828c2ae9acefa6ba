"""The first hour on a machine: `make up` in a new clone with an empty home folder, and a second time.

The clone's path has a space. The last start has no network, so it fails if anything is fetched.
"""

from __future__ import annotations

import os
import re
import select
import signal
import subprocess
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from bench import processes
from bench.figures import Figure, at_most

ROOT = Path(__file__).parents[1]
WARM_BAR, AGAIN_BAR, SILENCE_BAR = at_most(25), at_most(3), at_most(3)
LIMIT_S = 900.0
STOP_TIMEOUT_S = 30.0
OFFLINE = dict.fromkeys(("HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "https_proxy"), "http://127.0.0.1:9")
_DATABASES = re.compile(r"^setup: database software: (?:ready|not complete)")


@dataclass(frozen=True)
class Sizes:
    tests: str | None  # tests of `make test` whose silence is measured; None for no run


FULL = Sizes(tests="tests/architecture")
TINY = Sizes(tests=None)


@dataclass
class Watched:
    """The output of a command, with the longest time between two lines."""

    process: subprocess.Popen[bytes]
    began: float = field(default_factory=time.monotonic)
    lines: list[str] = field(default_factory=list)
    silence_s: float = 0.0
    ended_s: float = 0.0

    def read_until(self, pattern: re.Pattern[str] | None) -> None:
        """Read lines until one matches, or to the end."""
        assert self.process.stdout is not None
        handle, last, buffer = self.process.stdout.fileno(), time.monotonic(), b""
        while time.monotonic() - self.began < LIMIT_S:
            if not select.select([handle], [], [], 1)[0]:
                continue
            chunk = os.read(handle, 65536)
            now = time.monotonic()
            self.silence_s, last = max(self.silence_s, now - last), now
            buffer += chunk
            *complete, buffer = buffer.split(b"\n")
            self.lines += [line.decode(errors="replace") for line in complete]
            if not chunk or (pattern and any(pattern.match(line.decode(errors="replace")) for line in complete)):
                self.ended_s = now - self.began
                if pattern and not chunk:
                    raise processes.NotReady("\n".join(self.lines[-20:]))
                return
        raise processes.NotReady(f"nothing after {LIMIT_S:.0f} s:\n" + "\n".join(self.lines[-20:]))

    def megabytes(self) -> float:
        """Return the megabytes that the steps of the setup wrote."""
        by_step: dict[str, float] = {}
        for line in self.lines:
            if match := re.match(r"setup: \[(\d)/\d\].*: (\d+) MB written", line):
                by_step[match[1]] = float(match[2])
        return sum(by_step.values())


def run(folder: Path, sizes: Sizes = FULL) -> list[Figure]:
    home, first, checkout = (folder / name for name in ("home", "first checkout", "my checkout"))
    home.mkdir()
    for clone in (first, checkout):
        subprocess.run(["git", "clone", "--quiet", str(ROOT), str(clone)], check=True)
    cold = _start(first, home, {})
    warm = _start(checkout, home, {}, until_databases=True)
    again = _start(checkout, home, OFFLINE)
    figures = [
        Figure("first start: make up to ready, cold cache", cold.ended_s, "s"),
        Figure("first start: written by the setup, cold cache", cold.megabytes(), "MB"),
        Figure("first start: make up to ready, warm cache", warm.ended_s, "s", bar=WARM_BAR),
        Figure("first start: second make up to ready, without network", again.ended_s, "s", bar=AGAIN_BAR),
        Figure("first start: longest silence of make up", max(cold.silence_s, warm.silence_s), "s", bar=SILENCE_BAR),
    ]
    if sizes.tests is not None:
        with _command(checkout, home, {}, "test", f"ARGS={sizes.tests}") as tests:
            tests.read_until(None)
        figures.append(Figure("first start: longest silence of make test", tests.silence_s, "s", bar=SILENCE_BAR))
    return figures


def _start(checkout: Path, home: Path, extra: Mapping[str, str], *, until_databases: bool = False) -> Watched:
    """Run `make up` to its `ready:` line, then stop it as Ctrl-C does."""
    with _command(checkout, home, extra, "up") as up:
        up.read_until(re.compile(r"^ready: "))
        until_ready = Watched(up.process, up.began, list(up.lines), up.silence_s, up.ended_s)
        if until_databases and not any(map(_DATABASES.match, up.lines)):
            up.read_until(_DATABASES)
    return until_ready


@contextmanager
def _command(checkout: Path, home: Path, extra: Mapping[str, str], *goals: str) -> Iterator[Watched]:
    names = [f"MOORAGE_{name}_PORT" for name in ("API", "GATEWAY", "EDGE", "METRICS")]
    ports = dict(zip(names, map(str, processes.free_ports(len(names))), strict=True))
    own = ("HOME", "VIRTUAL_ENV", "UV_CACHE_DIR", "XDG_CACHE_HOME", "MAKEFLAGS", "MAKELEVEL")
    kept = {name: text for name, text in os.environ.items() if name not in own and not name.startswith("MOORAGE_")}
    process = subprocess.Popen(
        ["make", *goals], cwd=checkout, env=kept | {"HOME": str(home)} | ports | dict(extra),
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True,
    )  # fmt: skip
    try:
        yield Watched(process)
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGINT)
            try:
                process.wait(STOP_TIMEOUT_S)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
        assert process.stdout is not None
        process.stdout.close()
