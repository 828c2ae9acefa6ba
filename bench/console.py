"""The web console in a real Chromium: its first load, and a long list. `console_idle` measures open tabs.

Tasks of the page are judged by the CPU time of its main thread: on a busy machine their duration is that of others.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from playwright.sync_api import Browser, Page

from bench import apps_platform, browser, function_platform
from bench.apps_platform import Port
from bench.figures import Figure, at_most, median
from bench.function_platform import in_parallel

SCRIPT_BAR = at_most(180)
INTERACTIVE_BAR = at_most(1000)
TASK_BAR = at_most(50)
LOADED_S = 60

# Notes when the page shows its data, and every task that keeps the page from answering for more than 50 ms.
WATCH = """
window.bench = {shownAt: 0, tasks: []};
new PerformanceObserver((list) => {
  for (const entry of list.getEntries()) bench.tasks.push([entry.startTime, entry.duration]);
}).observe({type: "longtask", buffered: true});
new MutationObserver(() => {
  const isShown = document.querySelector("main h1") && !document.querySelector(".skeleton");
  if (isShown && !bench.shownAt) bench.shownAt = performance.now();
}).observe(document, {childList: true, subtree: true});
"""
# Interactive: the data is drawn, and no task that was running then goes on.
INTERACTIVE = """() => new Promise((resolve) => requestAnimationFrame(() => setTimeout(() => {
  const ends = bench.tasks.map(([start, duration]) => start + duration).filter((end) => end > bench.shownAt);
  resolve(Math.max(bench.shownAt, ...ends));
})))"""
SCRIPTS = """() => performance.getEntriesByType("resource").filter((each) => each.name.endsWith(".js"))
  .reduce((sum, each) => sum + each.encodedBodySize, 0)"""
# Scrolls like a person with a wheel: one screen each frame, until all rows were there and the last one is in view.
SCROLL = """(wanted) => new Promise((resolve) => {
  const step = () => {
    scrollBy(0, innerHeight);
    const isWhole = document.querySelector("table").ariaRowCount > wanted && !document.querySelector(".table-end");
    if (isWhole && scrollY + innerHeight >= document.documentElement.scrollHeight - 1) resolve();
    else requestAnimationFrame(step);
  };
  step();
})"""

# Locators would be tasks of the page too, so that none is used.
FOCUS_FILTER = "() => document.querySelector('.list-tools input').focus()"
SORT = "() => document.querySelector('th button').click()"


@dataclass(frozen=True)
class Sizes:
    loads: int
    projects: int
    lists: int  # times that the list is paged through


FULL = Sizes(loads=9, projects=500, lists=5)
TINY = Sizes(loads=1, projects=60, lists=1)


@dataclass(frozen=True)
class Task:
    cpu_ms: float
    duration_ms: float


def run(folder: Path, sizes: Sizes = FULL) -> list[Figure]:
    with apps_platform.running(folder) as started, browser.chromium() as chromium:
        port = replace(started, tokens=[str(started.call("POST", "/v1/auth/demo")["token"])])  # an operator
        in_parallel(lambda number: make_site(port, number), range(sizes.projects))
        return [*_first_load(port, chromium, sizes), *_list(port, chromium, sizes)]


def _first_load(port: Port, chromium: Browser, sizes: Sizes) -> Iterator[Figure]:
    interactive, cpu, script = [], [], 0
    for _ in range(sizes.loads):
        with tab(port, chromium, "/") as page:
            interactive.append(float(page.evaluate(INTERACTIVE)))
            cpu.append(_cpu_ms(page))
            script = int(page.evaluate(SCRIPTS))
    yield Figure("console: script of the first load, compressed", script / 1024, "KB", bar=SCRIPT_BAR)
    yield Figure("console: first load to interactive, median", median(interactive), "ms", bar=INTERACTIVE_BAR)
    yield Figure("console: first load, CPU time of the page's process, median", median(cpu), "ms")


def _cpu_ms(page: Page) -> float:
    session = page.context.new_cdp_session(page)
    session.send("Performance.enable")
    listed = {each["name"]: each["value"] for each in session.send("Performance.getMetrics")["metrics"]}
    return float(listed["ProcessTime"]) * 1000


def _list(port: Port, chromium: Browser, sizes: Sizes) -> Iterator[Figure]:
    """Page through the list, filter it and sort it."""
    acts: dict[str, Callable[[Page], object]] = {
        "paged": lambda page: page.evaluate(SCROLL, sizes.projects),
        "filtered": _type_into_filter,
        "sorted": lambda page: page.evaluate(SORT),
    }
    longest: dict[str, list[Task]] = {name: [] for name in acts}
    for _ in range(sizes.lists):
        with tab(port, chromium, "/projects") as page:
            for name, act in acts.items():
                longest[name].append(_longest_task(chromium, page, act))
    for name, tasks in longest.items():
        title = f"console: longest task, {sizes.projects} projects {name}"
        yield Figure(f"{title}, CPU time", median([task.cpu_ms for task in tasks]), "ms", bar=TASK_BAR)
        yield Figure(f"{title}, duration", median([task.duration_ms for task in tasks]), "ms")


def _type_into_filter(page: Page) -> None:
    page.evaluate(FOCUS_FILTER)
    page.keyboard.type("site")


def _longest_task(chromium: Browser, page: Page, act: Callable[[Page], object]) -> Task:
    """Return the largest CPU time and duration of a task of the page's main thread during an act."""
    chromium.start_tracing(page=page, categories=["disabled-by-default-devtools.timeline"])
    act(page)
    page.evaluate("() => new Promise((resolve) => requestAnimationFrame(() => setTimeout(resolve, 100)))")
    events = json.loads(chromium.stop_tracing())["traceEvents"]
    threads = {
        (each["pid"], each["tid"])
        for each in events
        if each["name"] == "thread_name" and each["args"]["name"] == "CrRendererMain"
    }
    tasks = [each for each in events if each["name"] == "RunTask" and (each["pid"], each["tid"]) in threads]
    return Task(*(max(each.get(name, 0) for each in tasks) / 1000 for name in ("tdur", "dur")))


@contextmanager
def tab(port: Port, chromium: Browser, path: str) -> Iterator[Page]:
    """Open a page with an empty cache, signed in, and wait until it shows its data."""
    organization = port.call("GET", "/v1/me")["organizations"][0]["organizationId"]
    kept = {"token": port.tokens[0], "kind": "session", "organizationId": organization}  # as the sign-in page does
    with chromium.new_context(viewport={"width": 1440, "height": 900}) as context:
        page = context.new_page()
        page.add_init_script(f"localStorage.setItem('moorage.session', {json.dumps(json.dumps(kept))})")
        page.add_init_script(WATCH)
        page.goto(f"http://localhost:{port.api_port}{path}")
        deadline = time.monotonic() + LOADED_S
        while not page.evaluate("() => bench.shownAt"):
            assert time.monotonic() < deadline, f"{path} shows no data"
            page.wait_for_timeout(20)
        yield page


def make_site(port: Port, number: int) -> None:
    page = f"<!doctype html><title>Site {number}</title><p>All ships are in."
    port.upload(f"site-{number:03}", function_platform.archive("index.html", page))
