"""Apps: failed requests during redeploys, rollbacks, restarts of control, and sleep.

The apps are as small as their languages allow, so that the platform is measured. All steps run on one platform, in an
order that lets some apps fall asleep while others are measured.
"""

from __future__ import annotations

import http.client
import os
import signal
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path

from bench import apps_platform, machine
from bench.apps_load import GREETING, Seen, Traffic
from bench.apps_platform import Port, Shim, Work
from bench.figures import Figure, at_most, median, percentile
from bench.function_platform import Refused, in_parallel, wait_until
from bench.load import split_reply
from bench.projects import CALL_S, Visitor
from moorage.runtime.sandbox.usage import process_tree

NONE = at_most(0)
ROLLBACK_BAR = at_most(3)
ADOPTED_BAR = at_most(3)
SERVES_BAR = at_most(2)
WAKE_BAR = at_most(2)
IDLE_MINUTES = 1  # the least that can be set
ASLEEP_S = 300.0  # A gateway keeps a connection to an app for two minutes, and one that has a connection stays awake.
LOOK_S = 0.02
LANGUAGES = ("nodejs", "python")
SIGNALS = (signal.SIGTERM, signal.SIGKILL)

# Both are in the same repository. Each process says which release it is, and a word that no other process says.
SMALL = {
    "server.js": """const http = require('http'), fs = require('fs'), { randomUUID } = require('crypto');
const text = `ok ${fs.readFileSync('release.txt', 'utf8')} ${randomUUID()}`;
http.createServer((_, answer) => answer.end(text)).listen(Number(process.env.PORT), process.env.HOST);
""",
    "main.py": """import os, uuid
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

TEXT = f"ok {open('release.txt').read()} {uuid.uuid4()}".encode()

class Handler(BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.send_header("Content-Length", str(len(TEXT)))
        self.end_headers()
        self.wfile.write(TEXT)

    def log_message(self, *_):
        pass

ThreadingHTTPServer((os.environ["HOST"], int(os.environ["PORT"])), Handler).serve_forever()
""",
}
FASTAPI = {
    "requirements.txt": "fastapi\nuvicorn\n",
    "main.py": """import uuid
from fastapi import FastAPI
from fastapi.responses import PlainTextResponse

app = FastAPI()
TEXT = f"ok fastapi {uuid.uuid4()}"

@app.get("/", response_class=PlainTextResponse)
def root() -> str:
    return TEXT
""",
}


@dataclass(frozen=True)
class Sizes:
    rate: float  # of requests, in all of them
    redeploys: int
    rollbacks: int
    apps: int  # that run while the control process restarts
    restarts: int  # by each signal
    around_s: float  # how long requests are sent before a restart, and after it
    sleepers: int  # of each language
    fastapi: int  # more that sleep, with dependencies to install


FULL = Sizes(rate=200, redeploys=20, rollbacks=20, apps=20, restarts=3, around_s=3, sleepers=5, fastapi=2)
TINY = Sizes(rate=20, redeploys=3, rollbacks=2, apps=2, restarts=1, around_s=0.3, sleepers=1, fastapi=0)


def run(folder: Path, sizes: Sizes = FULL) -> list[Figure]:
    with apps_platform.running(folder, app_idle_minutes=IDLE_MINUTES) as port:
        small = Work(port, folder / "small")
        small.push({**SMALL, "release.txt": "one"})
        sleepers = _Sleepers.make(port, small.repository, sizes)
        return [
            *_redeploys(port, sizes),
            *sleepers.measured(),
            *_restarts(port, small.repository, sizes),
        ]


# Redeploys, under load; and rollbacks.


@dataclass
class _Steady:
    """An app that is redeployed in every way there is."""

    port: Port
    work: Work
    name: str = "steady"
    live: str = ""
    releases: dict[str, str] = field(default_factory=dict)  # the newest deployment of each

    def create(self) -> None:
        self.work.push({**SMALL, "release.txt": "r0"})
        self._is_live("r0", self.port.create(self.name, self.work.repository, "nodejs", "mini"))

    def push(self) -> None:
        release = f"r{len(self.releases)}"
        self.work.push({"release.txt": release})
        self._is_live(release, self.port.deploy(self.name))

    def restart(self) -> None:
        self._is_live(self.live, self.port.deploy(self.name, "restart"))

    def roll_back(self) -> None:
        """Bring back the release that was live before this one."""
        release = [each for each in self.releases if each != self.live][-1]
        self._is_live(release, self.port.roll_back(self.name, self.releases[release]))

    def _is_live(self, release: str, uuid: str) -> None:
        """Return when a visitor has seen the release, and its deployment has succeeded."""
        with Visitor(self.port, self.name) as visitor:
            visitor.wait_for(f"ok {release} ")
        self.port.see_live(uuid)
        self.releases.pop(release, None)
        self.releases[release] = uuid
        self.live = release


def _redeploys(port: Port, sizes: Sizes) -> list[Figure]:
    app = _Steady(port, Work(port, port.folder / "steady"))
    app.create()
    turns = (app.push, app.restart, app.roll_back)
    with Traffic(port.gateway_port, [_host(app.name)], sizes.rate) as traffic:
        for number in range(sizes.redeploys):
            turns[number % len(turns)]()
    title = f"apps: {sizes.redeploys} redeploys at {sizes.rate:g} requests/s"
    swaps = port.swaps(app.name)
    taken = [_timed(app.roll_back) for _ in range(sizes.rollbacks)]
    return [
        *_visits(title, traffic.seen),
        Figure(f"{title}: longest time without an answer", 1000 * traffic.seen.longest_gap_s, "ms"),
        Figure(f"{title}: failed, of the platform's own requests", sum(each["failed"] for each in swaps), ""),
        Figure(f"{title}: longest gap of those", max(each["longestGapMs"] for each in swaps), "ms"),
        Figure("apps: rollback to live, p50", percentile(taken, 0.5), "s"),
        Figure("apps: rollback to live, p95", percentile(taken, 0.95), "s", bar=ROLLBACK_BAR),
    ]


def _timed(work: Callable[[], None]) -> float:
    started = time.perf_counter()
    work()
    return time.perf_counter() - started


def _visits(title: str, seen: Seen) -> list[Figure]:
    for why, count in seen.failures.most_common(5):
        print(f"{title}: {count} failed with {why}", flush=True)
    return [
        Figure(f"{title}: requests", seen.requests, ""),
        Figure(f"{title}: failed requests", seen.failed, "", bar=NONE),
        Figure(f"{title}: slowest answer", 1000 * seen.slowest_s, "ms"),
    ]


# Sleep.


@dataclass(frozen=True)
class _Sleepers:
    """Apps of the free tier, without requests until they sleep."""

    port: Port
    names: dict[str, list[str]]  # by kind
    shims: list[Shim]

    @classmethod
    def make(cls, port: Port, small: str, sizes: Sizes) -> _Sleepers:
        names = {language: [f"{language}-{number}" for number in range(sizes.sleepers)] for language in LANGUAGES}
        in_parallel(lambda name: port.create(name, small, name.partition("-")[0], "free"), _flat(names))
        if sizes.fastapi:
            names["fastapi"] = [f"fastapi-{number}" for number in range(sizes.fastapi)]
            work = Work(port, port.folder / "fastapi")
            work.push(FASTAPI)
            in_parallel(lambda name: port.create(name, work.repository, "python", "free"), names["fastapi"])
        return cls(port, names, list(port.shims().values()))

    def measured(self) -> Iterator[Figure]:
        """Wake one after the other, when all of them sleep."""
        wait_until(lambda: not any(shim.is_alive for shim in self.shims), "all apps sleep", ASLEEP_S, 0.5)
        for kind, names in self.names.items():
            taken = [_first_byte(self.port.gateway_port, _host(name)) for name in names]
            yield Figure(f"apps: wake a small {kind} app, p50", percentile(taken, 0.5), "s")
            yield Figure(f"apps: wake a small {kind} app, p95", percentile(taken, 0.95), "s", bar=WAKE_BAR)


def _flat(names: dict[str, list[str]]) -> list[str]:
    return [name for each in names.values() for name in each]


def _first_byte(port: int, host: str) -> float:
    """Ask an app that sleeps, and return how long it took until the first byte came; the answer has to be the app's."""
    with closing(socket.create_connection(("127.0.0.1", port), timeout=CALL_S)) as connection:
        started = time.perf_counter()
        connection.sendall(f"GET / HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n".encode())
        buffer = connection.recv(65536)
        taken = time.perf_counter() - started
        while more := connection.recv(65536):
            buffer += more
    found = split_reply(buffer)
    if found is None or found[0].status != 200 or not found[0].body.startswith(GREETING):
        raise Refused(f"{host} did not wake: {buffer[:500]!r}")
    return taken


# The control process restarts.


@dataclass(frozen=True)
class _Restart:
    adopted_s: float  # since the new control process started
    serves_s: float  # the same, until its API answered
    away_s: float  # since the old one was told to end, until the API answered
    renewed: int  # apps that another process answers for
    seen: Seen


def _restarts(port: Port, small: str, sizes: Sizes) -> list[Figure]:
    others = set(port.shims())
    names = [f"app-{number}" for number in range(sizes.apps)]
    languages = dict(zip(names, LANGUAGES * sizes.apps, strict=False))
    in_parallel(lambda name: port.create(name, small, languages[name], "micro"), names)
    shims = [shim for key, shim in port.shims().items() if key not in others]
    if len(shims) != sizes.apps:
        raise Refused(f"{sizes.apps} apps should run, and {len(shims)} do")
    figures = _memory(shims)
    for number in SIGNALS:
        done = [_restart(port, names, shims, number, sizes) for _ in range(sizes.restarts)]
        figures += _judged(f"apps: {number.name} of the control process, {sizes.apps} apps", done)
    return figures


def _memory(shims: list[Shim]) -> list[Figure]:
    """The processes beside an app: its shim, and process 1 of its sandbox."""
    beside = [[shim.pid, *process_tree.children(shim.pid)] for shim in shims]
    return [
        Figure("apps: memory of a shim (PSS)", median([machine.memory_of([pids[0]]).pss_mb for pids in beside]), "MB"),
        Figure("apps: with the sandbox's first process", median([machine.memory_of(p).pss_mb for p in beside]), "MB"),
    ]


def _restart(port: Port, names: list[str], shims: list[Shim], number: signal.Signals, sizes: Sizes) -> _Restart:
    before = _answers(port, names)
    with Traffic(port.gateway_port, [_host(name) for name in names], sizes.rate) as traffic:
        time.sleep(sizes.around_s)
        known, old = apps_platform.shim_sockets(), port.control()
        told_at = time.clock_gettime(time.CLOCK_BOOTTIME)
        os.kill(old, number)
        wait_until(lambda: _are_adopted(shims, known), "all apps are adopted", every_s=LOOK_S)
        adopted_at = time.clock_gettime(time.CLOCK_BOOTTIME)
        wait_until(lambda: bool(port.call("GET", "/v1/projects?limit=1")), "the API answers", every_s=LOOK_S)
        serves_at = time.clock_gettime(time.CLOCK_BOOTTIME)
        if not _are_adopted(shims, known):
            raise Refused("not all apps were adopted for good")
        time.sleep(sizes.around_s)
    after, started_at = _answers(port, names), _started_at(port.control())
    return _Restart(
        adopted_s=adopted_at - started_at,
        serves_s=serves_at - started_at,
        away_s=serves_at - told_at,
        renewed=sum(before[name] != after[name] for name in names),
        seen=traffic.seen,
    )


def _are_adopted(shims: list[Shim], known: set[str]) -> bool:
    """Return whether every shim has a new connection: one to the new control process.

    A shim closes connections without its token, so a lasting connection is authenticated.
    """
    new = apps_platform.shim_sockets() - known
    return all(shim.connections(new) for shim in shims)


def _started_at(pid: int) -> float:
    """Return when a process started, by the clock that runs since the machine did."""
    return (process_tree.started(pid) or 0) * process_tree.TICK_US / 1e6


def _answers(port: Port, names: list[str]) -> dict[str, bytes]:
    return {name: _answer(port, name) for name in names}


def _answer(port: Port, name: str) -> bytes:
    with closing(http.client.HTTPConnection("127.0.0.1", port.gateway_port, timeout=CALL_S)) as connection:
        connection.request("GET", "/", headers={"Host": _host(name)})
        return connection.getresponse().read()


def _judged(title: str, done: list[_Restart]) -> list[Figure]:
    seen = Seen(requests=sum(each.seen.requests for each in done))
    for each in done:
        seen.failures += each.seen.failures
        seen.slowest_s = max(seen.slowest_s, each.seen.slowest_s)
    return [
        *_visits(title, seen),
        Figure(f"{title}: apps that were started anew", sum(each.renewed for each in done), "", bar=NONE),
        Figure(f"{title}: start to all adopted, worst", max(each.adopted_s for each in done), "s", bar=ADOPTED_BAR),
        Figure(f"{title}: start to API answers, worst", max(each.serves_s for each in done), "s", bar=SERVES_BAR),
        Figure(f"{title}: signal to API answers, worst", max(each.away_s for each in done), "s"),
    ]


def _host(name: str) -> str:
    return f"{name}.localhost"
