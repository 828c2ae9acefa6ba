"""Redeploy of apps with unchanged dependencies: from the request to the page of the new release."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path

from bench import apps_platform
from bench.apps_platform import Port, Work
from bench.figures import Figure, at_most, median
from bench.projects import Visitor

REDEPLOY_BAR = at_most(6)  # seconds, on 2 cores
NONE = at_most(0)

EXPRESS = {
    "package.json": '{"name": "quay", "private": true, "scripts": {"start": "node server.js"},'
    ' "dependencies": {"express": "^4.21.0"}}\n',
    "server.js": """const express = require('express'), fs = require('fs'), app = express();
const text = `ok ${fs.readFileSync('release.txt', 'utf8')} `;
app.get('/', (_, answer) => answer.send(text));
app.listen(process.env.PORT);
""",
}
FASTAPI = {
    "requirements.txt": "fastapi\nuvicorn\n",
    "main.py": """from fastapi import FastAPI
from fastapi.responses import PlainTextResponse

app = FastAPI()
TEXT = f"ok {open('release.txt').read()} "

@app.get("/", response_class=PlainTextResponse)
def root() -> str:
    return TEXT
""",
}
FRAMEWORKS = {"express": ("Express", "nodejs", EXPRESS), "fastapi": ("FastAPI", "python", FASTAPI)}


@dataclass(frozen=True)
class Sizes:
    redeploys: int  # of each app
    names: tuple[str, ...] = tuple(FRAMEWORKS)


FULL = Sizes(redeploys=7)
TINY = Sizes(redeploys=1, names=("express",))


def run(folder: Path, sizes: Sizes = FULL) -> list[Figure]:
    with apps_platform.running(folder) as port:
        return [figure for name in sizes.names for figure in _measure(port, folder, name, sizes)]


def _measure(port: Port, folder: Path, name: str, sizes: Sizes) -> list[Figure]:
    title, language, files = FRAMEWORKS[name]
    work = Work(port, folder / name)
    work.push({**files, "release.txt": "r0"})
    started = time.perf_counter()
    port.create(name, work.repository, language, "mini")
    first_s = time.perf_counter() - started
    taken = []
    with Visitor(port, name) as visitor:
        for number in range(1, sizes.redeploys + 1):
            work.push({"release.txt": f"r{number}"})
            started = time.perf_counter()
            uuid = port.deploy(name)
            taken.append(visitor.wait_for(f"ok r{number} ") - started)
            port.see_live(uuid)
    swaps = port.swaps(name)
    return [
        Figure(f"redeploy: {title}, first deployment", first_s, "s"),
        Figure(f"redeploy: {title}, unchanged dependencies, median", median(taken), "s", bar=REDEPLOY_BAR),
        Figure(
            f"redeploy: {title}, failed requests in all switches", sum(swap["failed"] for swap in swaps), "", bar=NONE
        ),
        Figure(f"redeploy: {title}, longest gap in a switch", max(swap["longestGapMs"] for swap in swaps), "ms"),
    ]
