"""A real gateway that gets real certificates, and HTTP clients for it."""

from __future__ import annotations

import asyncio
import json
import ssl
import subprocess
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from urllib.parse import parse_qs, urlsplit

from moorage.gateway import caddy
from moorage.gateway.config import tls
from moorage.settings import Settings


@contextmanager
def running_gateway(settings: Settings) -> Iterator[None]:
    path = caddy.write_config(settings)
    path.write_text(json.dumps(tls.apply_tls(json.loads(path.read_text()), settings)))
    command = [str(caddy.find_caddy()), "run", "--config", str(path)]
    with subprocess.Popen(command, env=caddy.environment(settings), stderr=subprocess.DEVNULL) as process:
        try:
            while not asyncio.run(caddy.is_ready(settings)):
                assert process.poll() is None
                time.sleep(0.02)
            yield
        finally:
            process.kill()


@asynccontextmanager
async def serving_ask(port: int, is_granted: Callable[[str], Awaitable[bool]]) -> AsyncIterator[list[str]]:
    """Serve the gateway's permission requests for certificates; yields the names."""
    asked: list[str] = []

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        url = urlsplit(head.split(" ")[1])
        assert url.path == tls.ASK_PATH
        (domain,) = parse_qs(url.query)["domain"]
        asked.append(domain)
        status = "200 OK" if await is_granted(domain) else "404 Not Found"
        writer.write(f"HTTP/1.1 {status}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n".encode())
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(talk, "127.0.0.1", port)
    try:
        yield asked
    finally:
        server.close()


@dataclass(frozen=True)
class Visit:
    status: int
    headers: dict[str, str]
    body: str


async def visit(port: int, host: str, path: str = "/", *, root: str | None = None) -> Visit:
    """Fetch a page over HTTP, or over TLS if a root certificate is given."""
    context = None if root is None else ssl.create_default_context(cadata=root)
    name = None if root is None else host
    reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=context, server_hostname=name)
    writer.write(f"GET {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n".encode())
    head, _, body = (await reader.read()).decode().partition("\r\n\r\n")
    writer.close()
    status, *lines = head.split("\r\n")
    headers = dict(line.split(": ", 1) for line in lines)
    return Visit(int(status.split()[1]), {name.lower(): value for name, value in headers.items()}, body)


async def protocol_of(port: int, host: str, root: str) -> str | None:
    """Return the protocol that ALPN selects for a client with HTTP/2."""
    context = ssl.create_default_context(cadata=root)
    context.set_alpn_protocols(["h2", "http/1.1"])
    _, writer = await asyncio.open_connection("127.0.0.1", port, ssl=context, server_hostname=host)
    chosen: str | None = writer.get_extra_info("ssl_object").selected_alpn_protocol()
    writer.transport.abort()
    return chosen
