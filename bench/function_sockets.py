"""A load generator for function hosts in pure Python: keep-alive HTTP/1.1 on sockets and epoll.

It keeps every connection busy, to measure the maximum throughput, or sends at a fixed rate however slow the responses
are, to measure latency at that rate. Without an event loop it needs about a third of the CPU of `bench.load` per
request, which matters because the edge is fast.
"""

from __future__ import annotations

import random
import select
import socket
import time
from array import array
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from types import TracebackType
from typing import Self

from bench.load import BadAnswer, Reply, split_reply

STALL_S = 30.0  # A server that hangs must not hang the benchmark.
OnAnswer = Callable[[Reply, float, float], None]  # the answer, when it was asked for, when it was whole
SHOWN = 5


HOST = "127.0.0.1"


def get(path: str, host: str = HOST) -> bytes:
    return f"GET {path} HTTP/1.1\r\nHost: {host}\r\n\r\n".encode()


@dataclass
class Outcome:
    """Results of a load, filled while it runs."""

    answered: int = 0  # with 200
    failed: int = 0  # with anything else, or not at all
    seconds: float = 0.0
    latencies: array[float] = field(default_factory=lambda: array("d"))
    failures: list[str] = field(default_factory=list)  # the first few

    def fail(self, why: str) -> None:
        self.failed += 1
        if len(self.failures) < SHOWN:
            self.failures.append(why)


class _Line:
    """One connection, with at most one request under way."""

    __slots__ = ("buffer", "is_busy", "since", "sock")

    def __init__(self, port: int) -> None:
        self.sock = socket.create_connection(("127.0.0.1", port), timeout=STALL_S)
        self.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.sock.setblocking(False)
        self.buffer = b""
        self.since = 0.0
        self.is_busy = False


class Sockets:
    """Connections to one server. Requests are random choices of the given ones, with the same seed in every run."""

    def __init__(self, port: int, requests: Sequence[bytes], connections: int) -> None:
        self._port = port
        self._requests = requests
        self._draw = random.Random(7)
        self._poll = select.epoll()
        self._lines: dict[int, _Line] = {}
        self._free: deque[_Line] = deque()
        for _ in range(connections):
            self._connect()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        for line in self._lines.values():
            line.sock.close()
        self._poll.close()

    def run(
        self,
        seconds: float,
        *,
        most: int | None = None,
        rate: float | None = None,
        on_answer: OnAnswer | None = None,
    ) -> Outcome:
        """Send for `seconds`, or until `most` were sent, and wait for the last answer.

        Without a `rate`, a connection sends again as soon as it was answered. With one, the latency of a request counts
        from the moment it was due, so that a server that falls behind cannot hide it.
        """
        outcome, sent = Outcome(), 0
        started = heard_at = time.perf_counter()
        while True:
            now = time.perf_counter()
            more = now - started < seconds and (most is None or sent < most)
            while more and self._free and (rate is None or started + sent / rate <= now):
                self._send(self._free.popleft(), now if rate is None else started + sent / rate)
                sent += 1
                more = most is None or sent < most
            if not more and len(self._free) == len(self._lines):
                break
            for descriptor, _ in self._poll.poll(0.001 if rate is not None and more else 1.0):
                self._receive(self._lines[descriptor], outcome, on_answer)
                heard_at = now
            if now - heard_at > STALL_S and len(self._free) < len(self._lines):
                raise TimeoutError(f"no answer in {STALL_S:.0f} s")
        outcome.seconds = time.perf_counter() - started
        return outcome

    def _connect(self) -> None:
        line = _Line(self._port)
        self._lines[line.sock.fileno()] = line
        self._poll.register(line.sock.fileno(), select.EPOLLIN)
        self._free.append(line)

    def _replace(self, line: _Line) -> None:
        self._poll.unregister(line.sock.fileno())
        del self._lines[line.sock.fileno()]
        line.sock.close()
        if not line.is_busy:
            self._free.remove(line)
        self._connect()

    def _send(self, line: _Line, since: float) -> None:
        requests = self._requests
        line.since, line.is_busy = since, True
        with suppress(ConnectionError):  # Reading the connection reports the error.
            line.sock.send(requests[0] if len(requests) == 1 else self._draw.choice(requests))

    def _receive(self, line: _Line, outcome: Outcome, on_answer: OnAnswer | None) -> None:
        try:
            data = line.sock.recv(65536)
        except ConnectionError:
            data = b""
        if not data:
            if line.is_busy:
                outcome.fail("the connection ended before the answer did")
            self._replace(line)
            return
        line.buffer += data
        found = split_reply(line.buffer)
        if found is None:
            return
        now = time.perf_counter()
        reply, end = found
        line.buffer = line.buffer[end:]
        line.is_busy = False
        self._free.append(line)
        if reply.status != 200:
            outcome.fail(f"{reply.status}: {reply.body[:200]!r}")
            return
        outcome.answered += 1
        outcome.latencies.append(now - line.since)
        if on_answer is not None:
            on_answer(reply, line.since, now)


def expect_all(outcome: Outcome) -> Outcome:
    """Return the outcome; raises unless every response was 200."""
    if outcome.failed:
        raise BadAnswer(f"{outcome.failed} of {outcome.failed + outcome.answered} failed: {outcome.failures}")
    return outcome
