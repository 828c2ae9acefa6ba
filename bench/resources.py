"""Memory and idle CPU of a platform by what is deployed on it, with the growth for each further thing.

The kinds are added one after another to one platform. The first thing of a kind also loads the modules and starts the
processes that all of its kind share, so it is measured by itself.
"""

from __future__ import annotations

import socketserver
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler
from pathlib import Path

from bench import apps, apps_platform, databases, function_platform, machine
from bench.apps_platform import Port, Work
from bench.figures import Figure
from bench.function_platform import in_parallel

PARTS = {  # of the platform itself, by a part of their command; the rest are apps, databases and sandboxes
    "control": "moorage.platform.control_start",
    "gateway": "caddy run",
    "edge": "moorage.runtime.edge.main",
    "invoker": "moorage.runtime.workers.main",
    "supervisor": "moorage.platform.supervisor",
}
OTHERS = "apps, databases, sandboxes"
MONITOR_INTERVAL_S = 60


@dataclass(frozen=True)
class Sizes:
    sites: int
    apps: int
    databases: int
    monitors: int
    functions: int
    settle_s: float  # after a kind was added
    idle_s: float


FULL = Sizes(sites=200, apps=20, databases=20, monitors=500, functions=1000, settle_s=10, idle_s=20)
TINY = Sizes(sites=2, apps=2, databases=2, monitors=2, functions=2, settle_s=0.1, idle_s=0.2)


@dataclass(frozen=True)
class Usage:
    """Memory and CPU of all processes, by part."""

    memory_mb: dict[str, float]  # without pages of files
    pss_mb: float  # with them
    percent: dict[str, float]  # of a core

    @property
    def total_mb(self) -> float:
        return sum(self.memory_mb.values())

    @property
    def total_percent(self) -> float:
        return sum(self.percent.values())


def run(folder: Path, sizes: Sizes = FULL) -> list[Figure]:
    with _page() as url, apps_platform.running(folder) as port:
        work = Work(port, folder / "small")
        kinds: dict[str, tuple[int, Callable[[int], object]]] = {
            "site": (sizes.sites, lambda number: _site(port, number)),
            "app": (sizes.apps, lambda number: _app(port, work, number)),
            "database": (sizes.databases, lambda number: databases.create(port, f"db-{number}")),
            "monitor": (sizes.monitors, lambda number: _monitor(port, number, url)),
            "function": (sizes.functions, lambda number: _function(port, number)),
        }
        before = _measure(port, sizes)
        figures = [*_whole("resources: nothing deployed", before)]
        for kind, (count, make) in kinds.items():
            make(0)
            first = _measure(port, sizes)
            in_parallel(make, range(1, count))
            every = _measure(port, sizes)
            figures += _growth(kind, count, before, first, every)
            before = every
        figures += _whole("resources: everything deployed", before)
    return figures


def _growth(kind: str, count: int, before: Usage, first: Usage, every: Usage) -> Iterator[Figure]:
    """Return the figures of one kind: its first thing, each further one, and what the whole uses then."""
    name, further = f"resources: {count} {kind}s", max(count - 1, 1)
    yield Figure(f"{name}: memory of the first", first.total_mb - before.total_mb, "MB")
    yield Figure(f"{name}: memory of each further", (every.total_mb - first.total_mb) / further * 1024, "KB")
    for part in (*PARTS, OTHERS):
        grown = (every.memory_mb[part] - first.memory_mb[part]) / further * 1024
        yield Figure(f"{name}: of that, {part}", grown, "KB")
    yield Figure(f"{name}: idle CPU", every.total_percent - before.total_percent, "%")


def _whole(name: str, usage: Usage) -> Iterator[Figure]:
    yield Figure(f"{name}: memory, PSS", usage.pss_mb, "MB")
    yield Figure(f"{name}: memory without pages of files", usage.total_mb, "MB")
    yield Figure(f"{name}: idle CPU", usage.total_percent, "%")
    for part in (*PARTS, OTHERS):
        yield Figure(f"{name}: memory of {part}", usage.memory_mb[part], "MB")
        yield Figure(f"{name}: idle CPU of {part}", usage.percent[part], "%")


def _measure(port: Port, sizes: Sizes) -> Usage:
    time.sleep(sizes.settle_s)
    before, began = _cpu_seconds(port), time.perf_counter()
    time.sleep(sizes.idle_s)
    after, elapsed = _cpu_seconds(port), time.perf_counter() - began
    memory, percent = dict.fromkeys((*PARTS, OTHERS), 0.0), dict.fromkeys((*PARTS, OTHERS), 0.0)
    pss_mb = 0.0
    for pid, part in _processes(port).items():
        with suppress(OSError):  # It ended since it was found.
            memory[part] += machine.own_memory_mb(pid)
            pss_mb += machine.memory_of([pid]).pss_mb
        if pid in before and pid in after:
            percent[part] += (after[pid] - before[pid]) / elapsed * 100
    return Usage(memory, pss_mb, percent)


def _cpu_seconds(port: Port) -> dict[int, float]:
    used = {}
    for pid in _processes(port):
        with suppress(OSError):
            used[pid] = machine.cpu_seconds(pid)
    return used


def _processes(port: Port) -> dict[int, str]:
    """Return the part of every process. Shims are no children of the platform, so their files name them."""
    roots = [port.pid]
    for kept in ("shims", "databases"):
        roots += [shim.pid for shim in apps_platform.shims_of(port.data, kept) if shim.is_alive]
    found = {}
    for pid in (pid for root in roots for pid in machine.tree_of(root)):
        with suppress(OSError):
            command = machine.command_of(pid)
            found[pid] = next((part for part, text in PARTS.items() if text in command), OTHERS)
    return found


def _site(port: Port, number: int) -> None:
    page = f"<!doctype html><title>Site {number}</title><p>All ships are in."
    port.upload(f"site-{number}", function_platform.archive("index.html", page))


def _app(port: Port, work: Work, number: int) -> None:
    if number == 0:
        [organization] = port.call("GET", "/v1/orgs")
        port.call("PATCH", f"/v1/orgs/{organization['organizationId']}", {"createOnPush": False})
        work.push({**apps.SMALL, "release.txt": "one"})
    port.create(f"app-{number}", work.repository, "nodejs", "micro")


def _monitor(port: Port, number: int, url: str) -> None:
    port.call("POST", "/v1/monitors", {"name": f"monitor-{number}", "url": url, "interval": MONITOR_INTERVAL_S})


def _function(port: Port, number: int) -> None:
    code = function_platform.archive(function_platform.MAIN["nodejs"], function_platform.HELLO["nodejs"])
    port.upload_function({"name": f"fn-{number}", "runtime": "nodejs"}, code)


@contextmanager
def _page() -> Iterator[str]:
    """Serve the page that the monitors check, in a thread of the benchmark."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("Content-Length", "2")
            self.end_headers()
            self.wfile.write(b"ok")

        def log_message(self, *_: object) -> None:
            """Log nothing."""

    class Server(socketserver.ThreadingTCPServer):
        daemon_threads = True

        def handle_error(self, *_: object) -> None:
            """Ignore checks that close their connection before the end of the body."""

    with Server(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_address[1]}/"
        server.shutdown()
