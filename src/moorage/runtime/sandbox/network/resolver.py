"""Names for a sandbox: its questions, asked on its own loopback, are put to the host's resolvers and answered back."""

from __future__ import annotations

import asyncio
import secrets
import socket
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

PATIENCE_S = 2.0  # per resolver of the host
MOST_IN_FLIGHT = 64  # questions of one sandbox
MOST_STREAMS = 8  # TCP connections of one sandbox

_PORT = 53
_HEADER = 12
_LONGEST_QUESTION = 4096
_LONGEST_ANSWER = 65535
_STREAM_IDLE_S = 10.0
_SERVER_FAILURE = 2
_REFUSED = 5


class Upstream:
    """The host's resolvers, as its resolv.conf names them. The file is read again when it changes."""

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

    async def ask(self, question: bytes, *, stream: bool) -> bytes:
        """Put a question to one resolver after the other; when none answers, the answer says so."""
        ask_one = _ask_stream if stream else _ask_datagram
        asked = _with_id(question, secrets.token_bytes(2))
        for server in self.servers():
            try:
                async with asyncio.timeout(PATIENCE_S):
                    answer = await ask_one(server, asked)
            except (OSError, TimeoutError, asyncio.IncompleteReadError):
                continue
            return _with_id(answer, question[:2])
        return failure(question, _SERVER_FAILURE)


def _parse_servers(text: str) -> list[str]:
    lines = (line.split() for line in text.splitlines())
    found = [words[1] for words in lines if len(words) > 1 and words[0] == "nameserver"]
    return found or ["127.0.0.1"]  # as resolv.conf(5) has it


def _with_id(message: bytes, id_: bytes) -> bytes:
    return id_ + message[2:]


def failure(question: bytes, code: int) -> bytes:
    """Make an answer without records: the question again, with a response code."""
    flags = bytes([0x80 | (question[2] & 0x79), 0x80 | code])
    return question[:2] + flags + b"\0\1" + bytes(6) + question[_HEADER : question_end(question)]


def question_end(message: bytes) -> int | None:
    """Find where the only question of a message ends; None when the message does not have exactly one."""
    if len(message) < _HEADER or message[4:6] != b"\0\1":
        return None
    at = _HEADER
    while at < len(message) and message[at]:
        if message[at] > 63:
            return None
        at += 1 + message[at]
    return at + 5 if at + 5 <= len(message) else None


def _is_answer(answer: bytes, asked: bytes) -> bool:
    end = question_end(asked)
    is_reply = len(answer) >= _HEADER and answer[:2] == asked[:2] and bool(answer[2] & 0x80)
    return is_reply and (answer[4:6] == b"\0\0" or answer[_HEADER:end].lower() == asked[_HEADER:end].lower())


async def _ask_datagram(server: str, asked: bytes) -> bytes:
    """Ask from a port of its own, so that a forged answer has to guess it as well as the number of the question."""
    loop = asyncio.get_running_loop()
    family = socket.AF_INET6 if ":" in server else socket.AF_INET
    with socket.socket(family, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK) as sock:
        sock.connect(socket.getaddrinfo(server, _PORT, family, flags=socket.AI_NUMERICHOST)[0][4])
        sock.send(asked)
        while True:
            answer = await loop.sock_recv(sock, _LONGEST_ANSWER)
            if _is_answer(answer, asked):
                return answer


async def _ask_stream(server: str, asked: bytes) -> bytes:
    reader, writer = await asyncio.open_connection(server, _PORT)
    try:
        writer.write(len(asked).to_bytes(2, "big") + asked)
        answer = await reader.readexactly(int.from_bytes(await reader.readexactly(2), "big"))
    finally:
        writer.close()
    if not _is_answer(answer, asked):
        raise ConnectionError("the resolver answered another question")
    return answer


class Resolver:
    """Serves one sandbox on the sockets that its process made. Closing it ends every question in flight."""

    def __init__(self, upstream: Upstream, udp: socket.socket, tcp: socket.socket, *, outside: bool) -> None:
        self._upstream = upstream
        self._udp, self._tcp = udp, tcp
        self._outside = outside
        self._questions: set[asyncio.Task[None]] = set()
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
        for task in (*self._questions, *self._streams):
            task.cancel()

    def _datagram_ready(self) -> None:
        try:
            question, client = self._udp.recvfrom(_LONGEST_QUESTION + 1)
        except OSError:  # Nothing is there, or the kernel reports that an earlier answer found its asker gone.
            return
        if len(question) <= _LONGEST_QUESTION and question_end(question) and len(self._questions) < MOST_IN_FLIGHT:
            self._start(self._questions, self._answer_datagram(question, client))

    async def _answer_datagram(self, question: bytes, client: Any) -> None:
        answer = await self._answer(question, stream=False)
        try:
            self._udp.sendto(answer, client)
        except OSError:
            return  # Datagrams may be lost; the asker asks again.

    def _stream_ready(self) -> None:
        try:
            client, _ = self._tcp.accept()
        except OSError:
            return
        if len(self._streams) < MOST_STREAMS:
            self._start(self._streams, self._answer_stream(client))
        else:
            client.close()

    async def _answer_stream(self, client: socket.socket) -> None:
        reader, writer = await asyncio.open_connection(sock=client)
        try:
            while True:
                async with asyncio.timeout(_STREAM_IDLE_S):
                    question = await reader.readexactly(int.from_bytes(await reader.readexactly(2), "big"))
                if len(question) > _LONGEST_QUESTION or not question_end(question):
                    return
                answer = await self._answer(question, stream=True)
                writer.write(len(answer).to_bytes(2, "big") + answer)
                async with asyncio.timeout(_STREAM_IDLE_S):
                    await writer.drain()
        except (OSError, TimeoutError, asyncio.IncompleteReadError):
            return
        finally:
            writer.transport.abort()

    async def _answer(self, question: bytes, *, stream: bool) -> bytes:
        if not self._outside:
            return failure(question, _REFUSED)
        return await self._upstream.ask(question, stream=stream)

    def _start(self, tasks: set[asyncio.Task[None]], work: Coroutine[Any, Any, None]) -> None:
        task = self._loop.create_task(work)
        tasks.add(task)
        task.add_done_callback(tasks.discard)
