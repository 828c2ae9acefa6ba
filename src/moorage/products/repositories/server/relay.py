"""Relays git requests to the machine that has the repository, and authenticates workers of other machines.

Each repository is on one machine. A push or clone that arrives at another one is passed on as it is, with the
client's credential. A worker of another machine fetches with a token of its own, which reads one repository for some
minutes; all machines can sign and check it, because they have the same session secret.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import NamedTuple

from httptools import HttpParserError, HttpResponseParser

from moorage.core.env import Env
from moorage.core.http.answer import Answer, Stream, plain_text
from moorage.core.http.request import Request
from moorage.core.kit.clock import MINUTE_MS
from moorage.core.kit.crypto import derive, sign, verify
from moorage.products.repositories.tables import Repository

TOKEN_PREFIX = "mgit_"  # noqa: S105 - the beginning of a token
TOKEN_MS = 15 * MINUTE_MS
READ_BYTES = 2**16
CONNECT_TIMEOUT_S = 10.0
HEAD_TIMEOUT_S = 300.0
_PASSED_ON = (
    *(b"authorization", b"content-type", b"content-encoding", b"accept", b"git-protocol", b"user-agent"),
    b"x-moorage-deploy",
)
_RETURNED = (b"content-type", b"www-authenticate", b"cache-control")

# Returns `host:port` on this machine at which the API of another machine is reached.
ReachMachine = Callable[[int], Awaitable[str]]


class Grant(NamedTuple):
    """A repository that a worker of another machine may read."""

    org_id: int
    repository_id: int


def make_token(env: Env, repository: Repository) -> str:
    """Return a token with which another machine of the platform reads a repository."""
    text = f"{env.clock.now() + TOKEN_MS}.{repository.org_id}.{repository.id}"
    return f"{TOKEN_PREFIX}{text}.{sign(_key(env), text.encode())}"


def read_token(env: Env, token: str) -> Grant | None:
    """Return the repository of a token; None if it is not valid or has expired."""
    text, _, signature = token.removeprefix(TOKEN_PREFIX).rpartition(".")
    if not text or not verify(_key(env), text.encode(), signature):
        return None
    expires_at, org_id, repository_id = map(int, text.split("."))
    return Grant(org_id, repository_id) if env.clock.now() < expires_at else None


def _key(env: Env) -> bytes:
    return derive(env.session_key, "git between machines")


async def relay(request: Request, address: str, most_bytes: int) -> Answer | Stream:
    """Send a request to the API of another machine, and return its answer as it arrives."""
    host, _, port = address.rpartition(":")
    try:
        async with asyncio.timeout(CONNECT_TIMEOUT_S):
            reader, writer = await asyncio.open_connection(host, int(port))
    except (OSError, TimeoutError):
        return _unreachable()
    response = _Response()
    try:
        await _send(request, writer, most_bytes)
        async with asyncio.timeout(HEAD_TIMEOUT_S):
            while not response.has_head:
                response.feed(await reader.read(READ_BYTES))
    except (OSError, TimeoutError, HttpParserError, EOFError):
        writer.close()
        return _unreachable()
    except BaseException:
        writer.close()
        raise
    return Stream(_body(response, reader, writer), response.headers, response.status)


async def _send(request: Request, writer: asyncio.StreamWriter, most_bytes: int) -> None:
    query = f"?{request.query_string.decode('latin-1')}" if request.query_string else ""
    lines = [f"{request.method} {request.path}{query} HTTP/1.1", "Host: machine", "Connection: close"]
    lines += [f"{name.decode()}: {value}" for name in _PASSED_ON if (value := request.header(name)) is not None]
    if request.method == "POST":
        lines.append("Transfer-Encoding: chunked")
    writer.write("\r\n".join([*lines, "", ""]).encode("latin-1"))
    if request.method == "POST":
        async for chunk in request.chunks(most_bytes):
            if chunk:
                writer.write(b"%x\r\n%b\r\n" % (len(chunk), chunk))
                await writer.drain()
        writer.write(b"0\r\n\r\n")
    await writer.drain()


async def _body(
    response: _Response, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
) -> AsyncIterator[bytes]:
    try:
        while True:
            for chunk in response.take():
                yield chunk
            if response.is_complete:
                return
            response.feed(await reader.read(READ_BYTES))
    finally:
        writer.close()


class _Response:
    """Parses a response while it arrives."""

    def __init__(self) -> None:
        self.status = 0
        self.headers: list[tuple[bytes, bytes]] = []
        self.has_head = False
        self.is_complete = False
        self._chunks: list[bytes] = []
        self._parser = HttpResponseParser(self)

    def feed(self, data: bytes) -> None:
        """Parse received bytes; raises HttpParserError, and EOFError where the connection ended early."""
        if not data:
            raise EOFError("the machine closed the connection")
        self._parser.feed_data(data)

    def take(self) -> list[bytes]:
        chunks, self._chunks = self._chunks, []
        return chunks

    def on_header(self, name: bytes, value: bytes) -> None:
        if name.lower() in _RETURNED:
            self.headers.append((name.lower(), value))

    def on_headers_complete(self) -> None:
        self.status = self._parser.get_status_code()
        self.has_head = True

    def on_body(self, chunk: bytes) -> None:
        self._chunks.append(chunk)

    def on_message_complete(self) -> None:
        self.is_complete = True


def _unreachable() -> Answer:
    return plain_text("The machine that has this repository does not answer; try again in a moment", 503)
