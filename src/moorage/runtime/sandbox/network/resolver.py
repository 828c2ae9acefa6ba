"""DNS forwarder from a sandbox's loopback to the host's resolvers."""

from __future__ import annotations

import asyncio
import secrets
import socket
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

UPSTREAM_TIMEOUT_S = 2.0  # per resolver of the host
MAX_PENDING_QUERIES = 64  # of one sandbox
MAX_STREAMS = 8  # TCP connections of one sandbox

_PORT = 53
_HEADER = 12
_MAX_QUERY_BYTES = 4096
_MAX_ANSWER_BYTES = 65535
_STREAM_IDLE_S = 10.0
_SERVER_FAILURE = 2
_REFUSED = 5


class Upstream:
    """The host's resolvers from its resolv.conf, which is read again when it changes."""

    def __init__(self, conf: Path) -> None:
        self._conf = conf
        self._stamp: tuple[int, int] | None = None
        self._servers: list[str] = []

    def servers(self) -> list[str]:
        try:
            info = self._conf.stat()
            if self._stamp != (info.st_mtime_ns, info.st_ino):
                self._servers = _parse_servers(self._conf.read_text())
                self._stamp = (info.st_mtime_ns, info.st_ino)
        except OSError:
            return self._servers or ["127.0.0.1"]
        return self._servers

    async def resolve(self, query: bytes, *, stream: bool) -> bytes:
        """Send a query to one resolver after the other; return SERVFAIL if none answers."""
        send = _query_tcp if stream else _query_udp
        sent = _with_id(query, secrets.token_bytes(2))
        for server in self.servers():
            try:
                async with asyncio.timeout(UPSTREAM_TIMEOUT_S):
                    answer = await send(server, sent)
            except (OSError, TimeoutError, asyncio.IncompleteReadError):
                continue
            return _with_id(answer, query[:2])
        return failure(query, _SERVER_FAILURE)


def _parse_servers(text: str) -> list[str]:
    lines = (line.split() for line in text.splitlines())
    servers = [words[1] for words in lines if len(words) > 1 and words[0] == "nameserver"]
    return servers or ["127.0.0.1"]  # the default of resolv.conf(5)


def _with_id(message: bytes, id_: bytes) -> bytes:
    return id_ + message[2:]


def failure(query: bytes, code: int) -> bytes:
    """Return an answer without records: the question with a response code."""
    flags = bytes([0x80 | (query[2] & 0x79), 0x80 | code])
    return query[:2] + flags + b"\0\1" + bytes(6) + query[_HEADER : question_end(query)]


def question_end(message: bytes) -> int | None:
    """Return the end of a message's question; None unless it has exactly one."""
    if len(message) < _HEADER or message[4:6] != b"\0\1":
        return None
    at = _HEADER
    while at < len(message) and message[at]:
        if message[at] > 63:
            return None
        at += 1 + message[at]
    return at + 5 if at + 5 <= len(message) else None


def _is_answer(answer: bytes, query: bytes) -> bool:
    end = question_end(query)
    is_reply = len(answer) >= _HEADER and answer[:2] == query[:2] and bool(answer[2] & 0x80)
    return is_reply and (answer[4:6] == b"\0\0" or answer[_HEADER:end].lower() == query[_HEADER:end].lower())


async def _query_udp(server: str, query: bytes) -> bytes:
    """Query from a new port, which a forged answer has to guess besides the ID."""
    loop = asyncio.get_running_loop()
    family = socket.AF_INET6 if ":" in server else socket.AF_INET
    with socket.socket(family, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK) as sock:
        sock.connect(socket.getaddrinfo(server, _PORT, family, flags=socket.AI_NUMERICHOST)[0][4])
        sock.send(query)
        while True:
            answer = await loop.sock_recv(sock, _MAX_ANSWER_BYTES)
            if _is_answer(answer, query):
                return answer


async def _query_tcp(server: str, query: bytes) -> bytes:
    reader, writer = await asyncio.open_connection(server, _PORT)
    try:
        writer.write(len(query).to_bytes(2, "big") + query)
        answer = await reader.readexactly(int.from_bytes(await reader.readexactly(2), "big"))
    finally:
        writer.close()
    if not _is_answer(answer, query):
        raise ConnectionError("the resolver answered another question")
    return answer


class Resolver:
    """Serves one sandbox. Closing it cancels pending queries."""

    def __init__(self, upstream: Upstream, udp: socket.socket, tcp: socket.socket, *, outside: bool) -> None:
        self._upstream = upstream
        self._udp, self._tcp = udp, tcp
        self._outside = outside
        self._queries: set[asyncio.Task[None]] = set()
        self._streams: set[asyncio.Task[None]] = set()
        self._loop = asyncio.get_running_loop()
        for sock in (udp, tcp):
            sock.setblocking(False)
        self._loop.add_reader(udp, self._datagram_ready)
        self._loop.add_reader(tcp, self._stream_ready)

    def close(self) -> None:
        for sock in (self._udp, self._tcp):
            self._loop.remove_reader(sock)
            sock.close()
        for task in (*self._queries, *self._streams):
            task.cancel()

    def _datagram_ready(self) -> None:
        try:
            query, client = self._udp.recvfrom(_MAX_QUERY_BYTES + 1)
        except OSError:  # No datagram, or an error report: the client of an earlier answer had closed its socket.
            return
        if len(query) <= _MAX_QUERY_BYTES and question_end(query) and len(self._queries) < MAX_PENDING_QUERIES:
            self._start(self._queries, self._answer_datagram(query, client))

    async def _answer_datagram(self, query: bytes, client: Any) -> None:
        answer = await self._answer(query, stream=False)
        try:
            self._udp.sendto(answer, client)
        except OSError:
            return  # Datagrams may be lost; the client repeats its query.

    def _stream_ready(self) -> None:
        try:
            client, _ = self._tcp.accept()
        except OSError:
            return
        if len(self._streams) < MAX_STREAMS:
            self._start(self._streams, self._answer_stream(client))
        else:
            client.close()

    async def _answer_stream(self, client: socket.socket) -> None:
        reader, writer = await asyncio.open_connection(sock=client)
        try:
            while True:
                async with asyncio.timeout(_STREAM_IDLE_S):
                    query = await reader.readexactly(int.from_bytes(await reader.readexactly(2), "big"))
                if len(query) > _MAX_QUERY_BYTES or not question_end(query):
                    return
                answer = await self._answer(query, stream=True)
                writer.write(len(answer).to_bytes(2, "big") + answer)
                async with asyncio.timeout(_STREAM_IDLE_S):
                    await writer.drain()
        except (OSError, TimeoutError, asyncio.IncompleteReadError):
            return
        finally:
            writer.transport.abort()

    async def _answer(self, query: bytes, *, stream: bool) -> bytes:
        if not self._outside:
            return failure(query, _REFUSED)
        return await self._upstream.resolve(query, stream=stream)

    def _start(self, tasks: set[asyncio.Task[None]], work: Coroutine[Any, Any, None]) -> None:
        task = self._loop.create_task(work)
        tasks.add(task)
        task.add_done_callback(tasks.discard)
