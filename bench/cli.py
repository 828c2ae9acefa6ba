"""The command line: time to its help, to the status, and from a folder to a live page; overhead of the client."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import httpx2

from bench.figures import Figure, at_most, median, ratio_at_most
from bench.projects import CALL_S, Harbor, Visitor, running_harbor
from moorage.client import Client

HELP_BAR = at_most(150)
STATUS_BAR = at_most(400)
STATIC_BAR = at_most(2)
EXPRESS_BAR = at_most(12)
OVERHEAD_BAR = ratio_at_most(1.15)
COMMAND_S = 300.0
EXPRESS = Path(__file__).parents[1] / "examples" / "express"


@dataclass(frozen=True)
class Sizes:
    helps: int
    statuses: int
    sites: int
    files: int  # of a static site
    apps: int
    calls: int  # of each client, in one round
    rounds: int


FULL = Sizes(helps=15, statuses=15, sites=7, files=20, apps=3, calls=400, rounds=7)
TINY = Sizes(helps=1, statuses=1, sites=1, files=5, apps=1, calls=5, rounds=1)


@dataclass(frozen=True)
class User:
    """A user of the command line with an own home, signed in by the environment."""

    harbor: Harbor
    home: Path

    def run(self, *words: str) -> float:
        """Run a command that has to succeed; return its seconds."""
        env = {name: value for name, value in os.environ.items() if not name.startswith("MOORAGE_")}
        env |= {
            "HOME": str(self.home),
            "XDG_CONFIG_HOME": str(self.home),
            "MOORAGE_URL": f"http://127.0.0.1:{self.harbor.api_port}",
            "MOORAGE_TOKEN": self.harbor.tokens[0],
        }
        program = Path(sys.executable).parent / "moorage"
        started = time.perf_counter()
        done = subprocess.run(
            [str(program), *words], env=env, capture_output=True, text=True, timeout=COMMAND_S, check=False
        )
        if done.returncode != 0:
            raise RuntimeError(f"moorage {' '.join(words)}: {done.stdout}{done.stderr}")
        return time.perf_counter() - started


def run(folder: Path, sizes: Sizes = FULL) -> list[Figure]:
    with running_harbor(folder, seats=1) as harbor:
        home = folder / "home"
        home.mkdir()
        user = User(harbor, home)
        return [
            *_helps(user, sizes),
            *_sites(user, sizes),
            *_apps(user, sizes),
            *_statuses(user, sizes),
            _overhead(harbor, sizes),
        ]


def _helps(user: User, sizes: Sizes) -> list[Figure]:
    user.run("--help")  # compiles the modules
    taken = [user.run("--help") * 1000 for _ in range(sizes.helps)]
    return [Figure("cli: moorage --help, median", median(taken), "ms", bar=HELP_BAR)]


def _statuses(user: User, sizes: Sizes) -> list[Figure]:
    """Measure after the deployments, so that there is something to show."""
    user.run("status")
    taken = [user.run("status") * 1000 for _ in range(sizes.statuses)]
    return [Figure("cli: moorage status, median", median(taken), "ms", bar=STATUS_BAR)]


def _sites(user: User, sizes: Sizes) -> list[Figure]:
    """Deploy folders of static files, each as a new project, until a visitor sees the page."""
    return _deployments(
        user, f"cli: moorage deploy of {sizes.files} static files to live, median", sizes.sites, STATIC_BAR.limit,
        lambda number: _site(user.harbor.folder / f"site-{number}", sizes.files),
    )  # fmt: skip


def _apps(user: User, sizes: Sizes) -> list[Figure]:
    """Deploy the Express example with other sources each time; the first deployment fills the cache of packages."""
    _deployments(user, "", 1, 0, lambda _: _express(user.harbor.folder / "app-first"))
    return _deployments(
        user, "cli: moorage deploy of Express with cached packages to live, median", sizes.apps, EXPRESS_BAR.limit,
        lambda number: _express(user.harbor.folder / f"app-{number}"),
    )  # fmt: skip


def _deployments(user: User, title: str, count: int, limit_s: float, make: Callable[[int], Path]) -> list[Figure]:
    taken = []
    for number in range(count):
        folder = make(number)
        with Visitor(user.harbor, folder.name) as visitor:
            started = time.perf_counter()
            user.run("deploy", str(folder))
            taken.append(visitor.wait_for(folder.name) - started)
    return [Figure(title, median(taken), "s", bar=at_most(limit_s))]


def _site(folder: Path, files: int) -> Path:
    folder.mkdir()
    for number in range(files):
        name = "index.html" if number == 0 else f"page-{number}.html"
        (folder / name).write_text(f"<!doctype html><h1>{folder.name}</h1>{'text ' * 400}")
    return folder


def _express(folder: Path) -> Path:
    shutil.copytree(EXPRESS, folder)
    source = (folder / "server.js").read_text()
    (folder / "server.js").write_text(source.replace("'nameless'", json.dumps(folder.name)))
    return folder


def _overhead(harbor: Harbor, sizes: Sizes) -> Figure:
    """Compare CPU time of the same calls, alternating, each on one kept-alive connection, with decoded JSON."""
    url, token = f"http://127.0.0.1:{harbor.api_port}", harbor.tokens[0]
    plain: list[float] = []
    ours: list[float] = []
    headers = {"authorization": f"Bearer {token}"}
    with httpx2.Client(base_url=url, headers=headers, timeout=CALL_S) as http, Client(url, token=token) as client:

        def with_httpx() -> None:
            http.get("/v1/projects", params={"limit": 20}).raise_for_status().json()

        def with_client() -> None:
            client.projects.list(limit=20)

        for call in (with_httpx, with_client):  # connects
            call()
        for _ in range(sizes.rounds):
            plain.append(_cpu_us(with_httpx, sizes.calls))
            ours.append(_cpu_us(with_client, sizes.calls))
    return Figure("cli: CPU of a call of moorage.client", min(ours), "us", min(plain), "httpx2 alone", bar=OVERHEAD_BAR)


def _cpu_us(call: Callable[[], None], times: int) -> float:
    started = time.process_time()
    for _ in range(times):
        call()
    return (time.process_time() - started) / times * 1e6
