"""Stand-in for the edge: a real HTTP server on a unix socket that keeps its routes.

It runs no functions. A test sets the outcome of each call, and the stand-in writes the records of the edge.
"""

from __future__ import annotations

import asyncio
import itertools
import json
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from aiohttp import web

from moorage.runtime.edge import spool
from moorage.runtime.edge.spool import SpoolWriter

_starts = itertools.count(1)
ORG = 1


@dataclass(frozen=True)
class Fate:
    """Outcome of a call, step by step; the edge dies at the first step that is False."""

    starts: bool = True
    ends: bool = True
    answers: bool = True
    refusal: int | None = None
    error: str | None = None
    result: Any = "done"
    waits: asyncio.Event | None = None  # held between its start and its end


@dataclass
class EdgeStandIn:
    socket: Path
    spool: SpoolWriter | None = None
    now: Callable[[], int] = lambda: 1_000
    fate: Callable[[dict[str, Any]], Fate] = lambda call: Fate()
    routes: dict[int, dict[str, Any]] = field(default_factory=dict)
    pushes: list[str] = field(default_factory=list)
    calls: list[dict[str, Any]] = field(default_factory=list)
    ran: Counter[str] = field(default_factory=Counter)  # number of runs by activation id
    known: set[str] = field(default_factory=set)  # activation ids of runs that it has received
    _runner: web.AppRunner | None = None
    _started: str = ""

    async def start(self) -> None:
        self._started = f"{self.now() / 1000 + next(_starts) / 1e6:.6f}"
        self.routes = {}
        app = web.Application()
        app.add_routes(
            [
                web.put("/routes", self._put),
                web.patch("/routes", self._change),
                web.post("/invoke", self._invoke),
                web.get("/health", self._health),
                web.post("/known", self._known),
            ]
        )
        self._runner = web.AppRunner(app, shutdown_timeout=0.1)
        await self._runner.setup()
        self.socket.parent.mkdir(parents=True, exist_ok=True)
        await web.UnixSite(self._runner, str(self.socket), backlog=2048).start()

    async def stop(self) -> None:
        if self._runner is not None:
            await self._runner.cleanup()
        self._runner = None
        self.socket.unlink(missing_ok=True)

    async def _health(self, _: web.Request) -> web.Response:
        return web.json_response({"routes": len(self.routes), "started": self._started})

    async def _known(self, request: web.Request) -> web.Response:
        return web.json_response({"known": (await request.json())["activation"] in self.known})

    async def _put(self, request: web.Request) -> web.Response:
        self.pushes.append("all")
        self.routes = {route["id"]: route for route in (await request.json())["routes"]}
        return web.json_response({})

    async def _change(self, request: web.Request) -> web.Response:
        self.pushes.append("change")
        body = await request.json()
        for route in body["set"]:
            if route["id"] not in self.routes or self.routes[route["id"]]["revision"] < route["revision"]:
                self.routes[route["id"]] = route
        for dropped in body["drop"]:
            self.routes.pop(dropped, None)
        return web.json_response({})

    async def _invoke(self, request: web.Request) -> web.Response:
        call = await request.json()
        self.calls.append(call)
        fate = self.fate(call)
        if fate.refusal is not None:
            return web.json_response({"success": False, "error": {}}, status=fate.refusal)
        started = self.now()
        if fate.starts:
            self.ran[call["activation"]] += 1
            self._record(spool.START, call, started)
        if fate.waits is not None:
            await fate.waits.wait()
        if fate.starts and fate.ends:
            self._record(spool.END, call, started, fate.error)
        if not (fate.starts and fate.ends and fate.answers):
            assert request.transport is not None
            request.transport.abort()
            return web.Response()
        return web.json_response(_outcome(call, fate))

    def _record(self, kind: int, call: dict[str, Any], started: int, error: str | None = None) -> None:
        if self.spool is not None and (kind == spool.END or call["door"] == "schedule"):
            door = spool.SCHEDULE if call["door"] == "schedule" else spool.API
            at = (call["function"], ORG, 1, 128, started, 5_000, 0, call["schedule"] or 0)
            activation, text = call["activation"].encode(), (error or "").encode()
            self.spool.append(spool.encode(kind, door, error is None, False, *at, activation, text))


def _outcome(call: dict[str, Any], fate: Fate) -> dict[str, Any]:
    return {
        "status": "success" if fate.error is None else "error",
        "result": json.loads(json.dumps(fate.result)) if fate.error is None else None,
        "error": fate.error,
        "durationMs": 5.0,
        "version": 1,
        "activationId": call["activation"],
    }


@asynccontextmanager
async def running(stand_in: EdgeStandIn) -> AsyncIterator[EdgeStandIn]:
    await stand_in.start()
    try:
        yield stand_in
    finally:
        await stand_in.stop()
