"""CPU time of the server for an open tab of the console while nothing happens, for pages of every kind.

`console_streams` measures the pages with a stream, in longer windows.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import mean

from playwright.sync_api import Browser, Page, Request

from bench import apps_platform, browser, machine
from bench.apps_platform import Port, Work
from bench.console import make_site, tab
from bench.figures import Figure, at_most
from bench.function_platform import archive, in_parallel

IDLE_BAR = at_most(0.2)
STREAMS = {
    "logs of an app, a stream": "/projects/app/logs",
    "invocations of a function, a stream": "/functions/tide/invocations",
    "activity, a stream": "/activity",
}
# Of each kind the page that sends the most requests.
PAGES = {
    "home": "/",
    "projects": "/projects",
    "a project": "/projects/site-000",
    "metrics of an app": "/projects/app/metrics",
    "a function": "/functions/tide",
    "a cronjob": "/cronjobs/report",
    "metrics of a database": "/databases/orders/metrics",
    "a monitor": "/monitors/1",
    "the operator": "/operator",
    "machines": "/operator/machines",
}
APP = {
    "package.json": json.dumps({"scripts": {"start": "node server.js"}}),
    "server.js": "require('http').createServer((_, answer) => answer.end('ahoy')).listen(process.env.PORT)",
}
DATABASE = {"name": "orders", "type": "postgresql", "version": "16.4.0", "instanceType": "micro"}
CRONJOB = {"name": "report", "imageSource": "public_image", "publicImage": "localhost:9/nothing:1"}
MONITOR = {"name": "Site", "url": "http://127.0.0.1:9/", "interval": 3600}


@dataclass(frozen=True)
class Sizes:
    projects: int
    idle_s: float  # with a tab, and as long without one
    settle_s: float
    quiet_s: float  # until the platform has ended what the set-up started
    pages: tuple[str, ...] = tuple(PAGES)
    windows: int = 1  # of each page
    has_resources: bool = True  # one of every kind


FULL = Sizes(projects=100, idle_s=10, settle_s=2, quiet_s=15)
TINY = Sizes(projects=1, idle_s=0.5, settle_s=0.1, quiet_s=0.1, pages=("home", "projects"), has_resources=False)


@dataclass
class Requests:
    """Counts what a page asks for."""

    count: int = 0

    def note(self, _: Request) -> None:
        self.count += 1


def run(folder: Path, sizes: Sizes = FULL) -> list[Figure]:
    with apps_platform.running(folder) as started, browser.chromium() as chromium:
        port = replace(started, tokens=[str(started.call("POST", "/v1/auth/demo")["token"])])  # an operator
        in_parallel(lambda number: make_site(port, number), range(sizes.projects))
        if sizes.has_resources:
            _fill(port)
        return list(_idle(port, chromium, sizes))


def _fill(port: Port) -> None:
    """Create one resource of every kind; the app comes from git, which takes no session as a password."""
    token = str(port.call("POST", "/v1/api-tokens", {"name": "bench", "role": "member"})["token"])
    work = Work(replace(port, tokens=[*port.tokens, token]), port.folder / "app", seat=1)
    work.push(APP)
    port.create("app", work.repository, "nodejs", "mini")
    code = archive("main.py", "def main(params):\n    return 'ahoy'\n")
    port.upload_function({"name": "tide", "runtime": "python"}, code)
    port.call("POST", "/v1/databases?wait=20", DATABASE)
    port.call("POST", "/v1/cronjobs", {**CRONJOB, "cronSchedule": "0 0 1 1 *", "instanceType": "micro"})
    port.call("POST", "/v1/monitors", MONITOR)


def _idle(port: Port, chromium: Browser, sizes: Sizes) -> Iterator[Figure]:
    time.sleep(sizes.quiet_s)
    alone = [_percent(port, sizes)]
    opened = {}
    for name in sizes.pages:
        with tab(port, chromium, (PAGES | STREAMS)[name]) as page:
            requests = Requests()
            page.on("request", requests.note)
            percents = [_percent(port, sizes, page) for _ in range(sizes.windows)]
            opened[name] = (mean(percents), requests.count / sizes.windows)
    alone.append(_percent(port, sizes))
    yield Figure("console: idle CPU of the platform without a tab", mean(alone), "%")
    for name, (percent, count) in opened.items():
        yield Figure(f"console: requests of an idle tab, {name}", count / sizes.idle_s * 60, "/min")
        yield Figure(f"console: idle CPU for an open tab, {name}", percent - mean(alone), "%", bar=IDLE_BAR)


def _percent(port: Port, sizes: Sizes, page: Page | None = None) -> float:
    """Return what all processes of the platform use, in percent of a core."""

    def pause(seconds: float) -> None:
        if page is None:
            time.sleep(seconds)
        else:
            page.wait_for_timeout(seconds * 1000)  # lets the browser report its requests

    pause(sizes.settle_s)
    before, began = machine.tree_cpu_times(port.pid), time.perf_counter()
    pause(sizes.idle_s)
    used = machine.cpu_between(before, machine.tree_cpu_times(port.pid))
    return used / (time.perf_counter() - began) * 100
