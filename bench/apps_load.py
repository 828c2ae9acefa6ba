"""Visitors of apps: requests at a steady rate, half of them on connections that are kept and half on fresh ones.

A request is sent when it is due, whether or not those before it have been answered, so that an outage costs as many
requests as it would cost visitors. Nothing is tried twice: what got no whole answer of an app has failed.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Self

from bench.load import BadAnswer, Reply, split_reply

ANSWER_S = 15.0
KEPT = 16  # connections that are kept: each is used in its turn
GREETING = b"ok "  # Every answer of an app begins with it, and no page of the gateway does.

OnEnd = Callable[["_Exchange", str | None], None]


@dataclass
class Seen:
    """Results of the requests."""

    requests: int = 0
    answered: int = 0
    failures: Counter[str] = field(default_factory=Counter)  # by what went wrong
    longest_gap_s: float = 0.0  # between two answers
    slowest_s: float = 0.0
    _last_at: float | None = None

    @property
    def failed(self) -> int:
        return self.failures.total()

    def note(self, took_s: float, why: str | None) -> None:
        self.slowest_s = max(self.slowest_s, took_s)
        if why is not None:
            self.failures[why] += 1
            return
        now = time.perf_counter()
        if self._last_at is not None:
            self.longest_gap_s = max(self.longest_gap_s, now - self._last_at)
        self._last_at = now
        self.answered += 1


class _Exchange(asyncio.Protocol):
    """One connection with at most one request under way; says how that ended: None for well."""

    def __init__(self, on_end: OnEnd) -> None:
        self._on_end = on_end
        self._transport: Any = None
        self._timer: asyncio.TimerHandle | None = None
        self._buffer = b""
        self.sent_at = 0.0
        self.is_open = True

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport

    def ask(self, request: bytes, sent_at: float) -> None:
        self.sent_at = sent_at
        self._timer = asyncio.get_running_loop().call_later(ANSWER_S, self._end, "no answer in time")
        self._transport.write(request)

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        try:
            found = split_reply(self._buffer)
        except BadAnswer as error:
            self._end(str(error))
            return
        if found is not None:
            if b"\r\nConnection: close\r\n" in self._buffer:
                self.is_open = False
            self._buffer = b""
            self._end(_fault(found[0]))

    def connection_lost(self, exc: Exception | None) -> None:
        self.is_open = False
        self._end("the connection ended before the answer did")

    def _end(self, why: str | None) -> None:
        """Say how the request under way ended; nothing where there is none."""
        if self._timer is None:
            return
        self._timer.cancel()
        self._timer = None
        if why is not None:
            self.is_open = False
        self._on_end(self, why)

    def close(self) -> None:
        self.is_open = False
        self._transport.close()


def _fault(reply: Reply) -> str | None:
    if reply.status == 200 and reply.body.startswith(GREETING):
        return None
    return f"{reply.status}: {reply.body[:80]!r}"


class Traffic:
    """Sends requests to all hosts in turn for as long as it is open; a context, on a thread of its own."""

    def __init__(self, port: int, hosts: Sequence[str], rate: float) -> None:
        self.seen = Seen()
        self._port = port
        self._kept_requests = [_request(host, "keep-alive") for host in hosts]
        self._fresh_requests = [_request(host, "close") for host in hosts]
        self._pause_s = 1 / rate
        self._kept: deque[_Exchange] = deque()  # those that are idle
        self._under_way: set[asyncio.Task[None] | _Exchange] = set()
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._run()))

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Send no more, and wait until every request has come to its end."""
        self._is_over.set()
        self._thread.join()

    async def _run(self) -> None:
        due = time.perf_counter()
        while not self._is_over.is_set():
            self._send(self.seen.requests)
            self.seen.requests += 1
            due += self._pause_s
            await asyncio.sleep(max(due - time.perf_counter(), 0))
        while self._under_way:
            await asyncio.sleep(0.01)
        for exchange in self._kept:
            exchange.close()

    def _send(self, number: int) -> None:
        """Send a request: a fresh connection and a kept one take turns, each of them going round all hosts."""
        turn, is_fresh = divmod(number, 2)
        sent_at = time.perf_counter()
        if is_fresh:
            self._open(self._fresh_requests[turn % len(self._fresh_requests)], self._end_fresh, sent_at)
            return
        request = self._kept_requests[turn % len(self._kept_requests)]
        exchange = self._idle() if turn >= KEPT else None
        if exchange is None:
            self._open(request, self._end_kept, sent_at)
        else:
            self._under_way.add(exchange)
            exchange.ask(request, sent_at)

    def _idle(self) -> _Exchange | None:
        """Return a connection that is kept. One that was closed while nothing was under way is no visitor's loss."""
        while self._kept:
            exchange = self._kept.popleft()
            if exchange.is_open:
                return exchange
        return None

    def _open(self, request: bytes, on_end: OnEnd, sent_at: float) -> None:
        task = asyncio.create_task(self._ask_anew(request, on_end, sent_at))
        self._under_way.add(task)
        task.add_done_callback(self._under_way.discard)

    async def _ask_anew(self, request: bytes, on_end: OnEnd, sent_at: float) -> None:
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(ANSWER_S):
                _, exchange = await loop.create_connection(lambda: _Exchange(on_end), "127.0.0.1", self._port)
        except (OSError, TimeoutError) as error:
            self.seen.note(time.perf_counter() - sent_at, f"cannot connect: {error}")
            return
        self._under_way.add(exchange)
        exchange.ask(request, sent_at)

    def _end_fresh(self, exchange: _Exchange, why: str | None) -> None:
        self._under_way.discard(exchange)
        self.seen.note(time.perf_counter() - exchange.sent_at, why)
        exchange.close()

    def _end_kept(self, exchange: _Exchange, why: str | None) -> None:
        self._under_way.discard(exchange)
        self.seen.note(time.perf_counter() - exchange.sent_at, why)
        if exchange.is_open:
            self._kept.append(exchange)
        else:
            exchange.close()


def _request(host: str, connection: str) -> bytes:
    return f"GET / HTTP/1.1\r\nHost: {host}\r\nConnection: {connection}\r\n\r\n".encode()
