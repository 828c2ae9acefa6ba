"""A small app for tests of the gateway: it says its name, echoes, streams and takes uploads."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path

from aiohttp import web


@dataclass
class Backend:
    name: str
    address: str = ""
    asked: int = 0
    go_on: asyncio.Event = field(default_factory=asyncio.Event)  # lets a stream say its second event
    runner: web.AppRunner | None = None

    async def stop(self) -> None:
        """End as a process that is killed does: what is idle is closed, and nobody listens any more."""
        assert self.runner is not None
        await self.runner.cleanup()

    async def say_name(self, request: web.Request) -> web.Response:
        self.asked += 1
        return web.Response(text=self.name, headers={"Server": "own/1", "Cache-Control": "private"})

    async def say_headers(self, request: web.Request) -> web.Response:
        return web.json_response({name.lower(): value for name, value in request.headers.items()})

    async def say_status(self, request: web.Request) -> web.Response:
        return web.Response(status=int(request.match_info["status"]), text="the app's own words")

    async def take(self, request: web.Request) -> web.Response:
        digest, size = hashlib.sha256(), 0
        async for piece in request.content.iter_chunked(65536):
            digest.update(piece)
            size += len(piece)
        return web.json_response({"sha256": digest.hexdigest(), "size": size})

    async def give(self, request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        for _ in range(int(request.query["mb"])):
            await response.write(b"x" * 2**20)
        return response

    async def stream(self, request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        await response.write(b"data: one\n\n")
        await self.go_on.wait()
        await response.write(b"data: two\n\n")
        return response

    async def echo(self, request: web.Request) -> web.WebSocketResponse:
        socket = web.WebSocketResponse()
        await socket.prepare(request)
        async for message in socket:
            await socket.send_str(f"{self.name}: {message.data}")
        return socket


@contextlib.asynccontextmanager
async def running_backend(name: str, *, port: int = 0, socket: Path | None = None) -> AsyncIterator[Backend]:
    backend = Backend(name)
    app = web.Application(client_max_size=2**30)
    app.add_routes(
        [
            web.get("/headers", backend.say_headers),
            web.get("/status/{status}", backend.say_status),
            web.post("/take", backend.take),
            web.get("/give", backend.give),
            web.route("*", "/stream", backend.stream),
            web.get("/echo", backend.echo),
            web.route("*", "/{path:.*}", backend.say_name),
        ]
    )
    backend.runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
    await backend.runner.setup()
    site = web.UnixSite(backend.runner, socket) if socket else web.TCPSite(backend.runner, "127.0.0.1", port)
    await site.start()
    if socket is None:
        backend.address = f"127.0.0.1:{backend.runner.addresses[0][1]}"
    try:
        yield backend
    finally:
        await backend.stop()
