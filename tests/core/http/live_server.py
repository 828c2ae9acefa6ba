"""The real server on a real socket, for tests with raw TCP clients."""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
import shutil
import socket
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

import uvloop
from tests.builders import make_org, make_token, make_user, session_for
from tests.client import Reply

from moorage import app as application
from moorage.app import App
from moorage.core.audit import service as audit
from moorage.core.db.sqlite import SqliteDatabase
from moorage.core.env import Env
from moorage.core.http.server import HEADER_S, UNREAD_S, listen, make_server
from moorage.core.kit.clock import SystemClock
from moorage.core.kit.crypto import KeyRing
from moorage.core.telemetry import Telemetry
from moorage.settings import Settings

LOOPBACK = "127.0.0.1"
PATIENCE_S = 20.0
HEALTH = b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n"
POST = b"POST /v1/orgs HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"


@dataclass(frozen=True)
class Platform:
    """The whole API with its own database, over TCP, with one user."""

    server: LiveServer
    app: App
    db: SqliteDatabase
    token: str
    session: str
    org_id: int


@dataclass
class LiveServer:
    """A server in its own thread, on a free port."""

    port: int
    loop: asyncio.AbstractEventLoop
    crashes: list[dict[str, Any]] = field(default_factory=list)  # unhandled exceptions of the event loop

    @property
    def url(self) -> str:
        return f"http://{LOOPBACK}:{self.port}"

    def is_serving(self) -> bool:
        with self.dial() as wire:
            wire.send(HEALTH)
            return wire.reply().status < 500

    def dial(self) -> Wire:
        return Wire(self.port)

    def ask(self, data: bytes) -> Reply:
        """Send bytes and return the first answer."""
        with self.dial() as wire:
            wire.send(data)
            return wire.reply()


class Closed(Exception):
    """The server closed the connection without another answer."""


class Wire:
    """One TCP connection at the level of bytes."""

    def __init__(self, port: int) -> None:
        self.socket = socket.create_connection((LOOPBACK, port), timeout=PATIENCE_S)
        self._read = b""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.socket.close()

    def send(self, data: bytes) -> None:
        self.socket.sendall(data)

    def send_while_it_can(self, data: bytes) -> None:
        """Send everything before reading, unless the server closes."""
        with contextlib.suppress(ConnectionError):
            self.socket.sendall(data)

    def end(self) -> None:
        """Half-close the connection and continue to read."""
        self.socket.shutdown(socket.SHUT_WR)

    def reply(self, *, is_head: bool = False) -> Reply:
        """Return the next final answer; raises Closed if the server closes."""
        head = self._until(b"\r\n\r\n")
        lines = head.decode("latin-1").split("\r\n")
        status = int(lines[0].split()[1])
        if status == 100:
            return self.reply(is_head=is_head)
        pairs = [line.partition(":") for line in lines[1:] if line]
        headers = {name.lower(): value.strip() for name, _, value in pairs}
        return Reply(status, headers, b"" if is_head else self._body(headers))

    def replies(self) -> list[Reply]:
        """Return all answers until the server closes."""
        found: list[Reply] = []
        with contextlib.suppress(Closed):
            while True:
                found.append(self.reply())
        return found

    def chunk(self) -> bytes:
        """Return the next chunk of a chunked answer."""
        size = int(self._until(b"\r\n"), 16)
        data = self._take(size)
        self._take(2)
        return data

    def head(self) -> bytes:
        return self._until(b"\r\n\r\n")

    def is_closed(self) -> bool:
        """Wait for the server to close; False if it sends data instead."""
        try:
            return not self._read and self.socket.recv(1) == b""
        except ConnectionError:
            return True

    def _body(self, headers: dict[str, str]) -> bytes:
        if headers.get("transfer-encoding") != "chunked":
            return self._take(int(headers.get("content-length", "0")))
        chunks = []
        while chunk := self.chunk():
            chunks.append(chunk)
        return b"".join(chunks)

    def _until(self, mark: bytes) -> bytes:
        while mark not in self._read:
            self._more()
        found, _, self._read = self._read.partition(mark)
        return found

    def _take(self, size: int) -> bytes:
        while len(self._read) < size:
            self._more()
        found, self._read = self._read[:size], self._read[size:]
        return found

    def _more(self) -> None:
        try:
            data = self.socket.recv(65536)
        except ConnectionError:
            data = b""
        if not data:
            raise Closed(f"after {self._read!r}")
        self._read += data


@contextlib.contextmanager
def live_server(app: Any, *, header_s: float = HEADER_S, unread_s: float = UNREAD_S) -> Iterator[LiveServer]:
    """Serve an ASGI application over TCP within the block."""
    ready = threading.Event()
    running: list[tuple[LiveServer, Any]] = []

    async def serve() -> None:
        server = make_server(app, stop_s=1.0, header_s=header_s, unread_s=unread_s)
        sock = listen(LOOPBACK, 0)
        live = LiveServer(sock.getsockname()[1], asyncio.get_running_loop())
        live.loop.set_exception_handler(lambda _, context: live.crashes.append(context))
        running.append((live, server))
        task = asyncio.ensure_future(server.serve(sockets=[sock]))
        while not server.started:
            await asyncio.sleep(0.005)
        ready.set()
        await task

    thread = threading.Thread(target=uvloop.run, args=(serve(),), daemon=True)
    thread.start()
    assert ready.wait(PATIENCE_S), "the server does not start"
    live, server = running[0]
    try:
        yield live
    finally:
        server.should_exit = True
        thread.join(PATIENCE_S)


def request(method: str, target: str, body: bytes = b"", **headers: str) -> bytes:
    """Return a valid request; underscores in header names become dashes."""
    lines = [f"{method} {target} HTTP/1.1", "Host: x"]
    lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
    if body and not re.search("(?i)transfer-encoding|content-length", "".join(lines)):
        lines.append(f"Content-Length: {len(body)}")
    return "\r\n".join([*lines, "", ""]).encode("latin-1") + body


def in_chunks(*parts: bytes) -> bytes:
    return b"".join(b"%x\r\n%b\r\n" % (len(part), part) for part in (*parts, b""))


def as_json(value: Any) -> bytes:
    return json.dumps(value).encode()


@contextlib.contextmanager
def live_platform(folder: Path, template: Path, *, header_s: float = HEADER_S, **given: Any) -> Iterator[Platform]:
    """Serve the real application on a copy of an empty SQLite database within the block."""
    shutil.copyfile(template, folder / "moorage.db")
    settings = Settings(_env_file=None, **{"data": folder / "data", "rate_limit": 1_000_000, **given})
    db = SqliteDatabase(
        folder / "moorage.db", Env.make(settings, SystemClock(), KeyRing((b"k" * 31 + b"1",)), b"s" * 32)
    )
    app = application.build(db, Telemetry(quiet=True))
    token, session, org_id = asyncio.run(_somebody(db))
    with live_server(app.asgi, header_s=header_s) as server:
        yield Platform(server, app, db, token, session, org_id)
        asyncio.run_coroutine_threadsafe(app.close(), server.loop).result(PATIENCE_S)
    db.close()


async def _somebody(db: SqliteDatabase) -> tuple[str, str, int]:
    await db.write(audit.ensure_key)
    user = await make_user(db)
    org = await make_org(db, user)
    return await make_token(db, user, org.id), session_for(db, user), org.id


def check_refused(reply: Reply, status: int = 400) -> None:
    assert reply.status == status
    assert reply.headers["content-type"] == "application/json"
    assert reply.json["success"] is False
    assert reply.error["traceId"] == reply.headers["x-request-id"]


def check_refused_and_closed(wire: Wire, status: int = 400) -> None:
    """Assert that there is exactly one answer, in the envelope, and then the end of the connection."""
    reply = wire.reply()
    check_refused(reply, status)
    assert reply.headers["connection"] == "close"
    assert wire.is_closed()
