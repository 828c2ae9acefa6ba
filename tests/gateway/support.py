"""A real Caddy with the gateway's configuration, and a client that sends exactly what a test says."""

from __future__ import annotations

import asyncio
import json
import socket
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.ports import free_port

from moorage.gateway import caddy
from moorage.settings import Settings, as_environment, load


@dataclass(frozen=True)
class Reply:
    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def error(self) -> dict[str, Any]:
        envelope = json.loads(self.body)
        assert envelope["success"] is False
        error: dict[str, Any] = envelope["error"]
        return error


def make_settings(data: Path, **fields: Any) -> Settings:
    ports = {"gateway_port": free_port(), "edge_port": free_port(), "api_port": free_port()}
    return load(data=data, **(ports | fields))


@contextmanager
def running_caddy(settings: Settings) -> Iterator[subprocess.Popen[bytes]]:
    command, env = caddy.command(settings), caddy.environment(settings)
    with subprocess.Popen(command, env=env, stderr=subprocess.PIPE) as process:
        try:
            while not asyncio.run(caddy.is_ready(settings)):
                assert process.poll() is None
                time.sleep(0.02)
            yield process
        finally:
            process.kill()


@contextmanager
def running_edge(settings: Settings) -> Iterator[None]:
    command = [sys.executable, "-m", "moorage.runtime.edge.main"]
    with subprocess.Popen(command, env=as_environment(settings), stdout=subprocess.PIPE) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == b"listening\n"
            yield
        finally:
            process.kill()


def exchange(settings: Settings, sent: bytes) -> bytes:
    received = b""
    with socket.create_connection(("127.0.0.1", settings.gateway_port), timeout=10) as client:
        client.sendall(sent)
        while piece := client.recv(65536):
            received += piece
    return received


def fetch(settings: Settings, host: str, path: str = "/", *, method: str = "GET", headers: str = "") -> Reply:
    """Send one request with exactly this host and path, which a client library would tidy up."""
    request = f"{method} {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n{headers}\r\n"
    return read_reply(exchange(settings, request.encode()))


async def get(settings: Settings, host: str, path: str = "/", headers: str = "", *, method: str = "GET") -> Reply:
    return await asyncio.to_thread(fetch, settings, host, path, method=method, headers=headers)


@asynccontextmanager
async def busy_clients(
    settings: Settings, request: bytes, count: int, *, reconnecting: int = 0
) -> AsyncIterator[list[Reply]]:
    """Clients that ask the same again and again, some on a fresh connection each time.

    One whose answer or connection breaks off fails the test.
    """
    replies: list[Reply] = []
    is_over = asyncio.Event()

    async def ask(keeps: bool) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", settings.gateway_port)
        while not is_over.is_set():
            writer.write(request)
            replies.append(await _whole_reply(reader))
            if not keeps:
                writer.close()
                reader, writer = await asyncio.open_connection("127.0.0.1", settings.gateway_port)
        writer.close()

    tasks = [asyncio.create_task(ask(number >= reconnecting)) for number in range(count)]
    try:
        yield replies
        is_over.set()
        async with asyncio.timeout(20):
            await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()


async def _whole_reply(reader: asyncio.StreamReader) -> Reply:
    head = await reader.readuntil(b"\r\n\r\n")
    if b"Content-Length: " in head:
        length = int(head.partition(b"Content-Length: ")[2].partition(b"\r\n")[0])
        return read_reply(head + await reader.readexactly(length))
    return read_reply(head + await reader.readuntil(b"0\r\n\r\n"))


class NoAnswer(Exception):
    """The connection was closed before anything came."""


def read_reply(answer: bytes) -> Reply:
    if not answer:
        raise NoAnswer
    head, _, body = answer.partition(b"\r\n\r\n")
    status, *lines = head.decode().split("\r\n")
    headers = {name.lower(): value for name, value in (line.split(": ", 1) for line in lines)}
    if headers.get("transfer-encoding") == "chunked":
        body = b"".join(_chunks(body))
    return Reply(int(status.split()[1]), headers, body)


def _chunks(body: bytes) -> Iterator[bytes]:
    """Yield the pieces of a body that was sent in chunks; raises where it ends too early."""
    while True:
        size, _, rest = body.partition(b"\r\n")
        length = int(size, 16)
        assert rest[length : length + 2] == b"\r\n"
        if length == 0:
            return
        yield rest[:length]
        body = rest[length + 2 :]


def make_release(folder: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return folder
