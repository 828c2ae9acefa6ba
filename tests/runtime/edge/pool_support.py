"""The pool with a fake invoker: tests hand out sandboxes and act as their workers."""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
import struct
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from itertools import count
from typing import Any

from moorage.runtime.edge import spool
from moorage.runtime.edge.calls.call import LARGE_BYTES, Call
from moorage.runtime.edge.calls.caps import Caps
from moorage.runtime.edge.calls.function import AnyFunction, Function, Route
from moorage.runtime.edge.calls.pool import Pool
from moorage.runtime.edge.connections.answers import Failure
from moorage.runtime.workers import frames

WAIT_S = 30.0
ENTRY = spool.log_entry(spool.STDOUT, 5, b"said\n")
_numbers = count(1)


class Invoker:
    """Records requests and messages, without any action."""

    def __init__(self) -> None:
        self.is_memory_low = False
        self.sandbox: bool | None = True
        self.takes: list[dict[str, Any]] = []
        self.messages: list[dict[str, Any]] = []

    def take(self, request: dict[str, Any]) -> int:
        self.takes.append(request)
        return len(self.takes)

    def send(self, message: dict[str, Any]) -> None:
        self.messages.append(message)

    def sent(self, verb: str) -> list[Any]:
        return [message[verb] for message in self.messages if verb in message]


class PlainCall(Call):
    """A call that stores its outcome, and the number of records at that time."""

    def __init__(self, lab: Lab, function: AnyFunction, params: bytes = b"{}") -> None:
        super().__init__(function, b"%032x" % next(_numbers), params)
        self.is_large = len(params) > LARGE_BYTES
        self.outcome = ""
        self.times = 0
        self.recorded = 0
        self._lab = lab

    def check(self, status: int, head: bytes, body: bytes) -> None:
        json.loads(body)

    def reply(self, status: int, kind: int, body: bytes, run_us: int) -> None:
        self._came_out(body.decode())

    def fail(self, message: str, run_us: int) -> None:
        self._came_out(f"failed: {message}")

    def refuse(self, failure: Failure) -> None:
        self._came_out(f"refused: {failure.status}")

    def _came_out(self, outcome: str) -> None:
        self.outcome = outcome
        self.times += 1
        self.recorded = len(self._lab.of(self))

    async def done(self) -> str:
        await until(lambda: self.outcome)
        return self.outcome


@dataclass
class Worker:
    """The worker's end of an instance's socket."""

    sandbox: int
    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    load: dict[str, Any] = field(default_factory=dict)

    async def next_frame(self) -> tuple[int, bytes]:
        async with asyncio.timeout(WAIT_S):
            head = await self.reader.readexactly(4)
            body = await self.reader.readexactly(int.from_bytes(head, "little"))
        return body[0], body[1:]

    async def next_call(self) -> tuple[int, str]:
        """Return the number and the activation id of the next call."""
        kind, body = await self.next_frame()
        assert kind == frames.CALL
        number, _, activation, _ = struct.unpack_from("<IB32s13s", body)
        return number, activation.decode()

    def send(self, kind: int, body: bytes) -> None:
        self.writer.write(frames.HEAD.pack(len(body) + 1, kind) + body)

    def loaded(self, *, ok: bool = True, load_us: int = 10, log: bytes = b"", message: bytes = b"") -> None:
        self.send(frames.LOADED, frames.LOADED_HEAD.pack(ok, load_us, len(log)) + log + message)

    def reply(
        self, number: int, body: bytes = b"1", *, outcome: int = 0, run_us: int = 0, log: bytes = b"", kind: int = 2
    ) -> None:
        head = frames.REPLY_HEAD.pack(number, outcome, 200, kind, run_us, 0, len(log))
        self.send(frames.REPLY, head + log + body)

    async def answer(self, body: bytes = b"1") -> str:
        """Answer the next call; return its activation id."""
        number, activation = await self.next_call()
        self.reply(number, body)
        return activation

    async def is_quiet(self) -> bool:
        """Whether the socket is empty."""
        try:
            async with asyncio.timeout(0.1):
                await self.reader.readexactly(1)
        except TimeoutError:
            return True
        return False

    def end(self) -> None:
        self.writer.close()


class Lab:
    """A pool, its functions and its workers."""

    def __init__(self, caps: Caps) -> None:
        self.invoker = Invoker()
        self.records: list[bytes] = []
        self.functions: dict[int, AnyFunction] = {}
        self.pool = Pool(self.invoker, self, caps, self.functions.get)
        self.is_disk_full = False
        self._given = 0
        self._sandbox_ids = count(1)
        self._workers: list[Worker] = []

    def append(self, record: bytes, log: bytes | memoryview = b"") -> None:
        if self.is_disk_full:
            raise OSError(28, "No space left on device")
        self.records.append(record + bytes(log))

    def limit_log(self, log: bytes | memoryview, org_id: int) -> bytes | memoryview:
        return log

    def append_plain(self, packed: bytes) -> None:
        size = spool.LENGTH_SIZE + spool.HEAD_SIZE
        for at in range(0, len(packed), size):
            self.append(packed[at + spool.LENGTH_SIZE : at + size])

    def function(self, **changed: Any) -> AnyFunction:
        made = make_function(**changed)
        self.functions[made.id] = made
        return made

    def replace(self, old: AnyFunction, **changed: Any) -> AnyFunction:
        new = self.function(**{"id": old.id, "revision": old.route.revision + 1, "version": 2, **changed})
        self.pool.retire(old, new)
        return new

    def call(self, function: AnyFunction, params: bytes = b"{}") -> PlainCall:
        call = PlainCall(self, function, params)
        self.pool.submit(call)
        return call

    async def give(self) -> Worker:
        """Hand out a sandbox for the oldest pending take."""
        await until(lambda: len(self.invoker.takes) > self._given)
        self._given += 1
        ours, theirs = socket.socketpair()
        theirs.setblocking(False)
        sandbox = next(self._sandbox_ids)
        self.pool.sandbox_taken(self._given, sandbox, "waiting", theirs)
        worker = Worker(sandbox, *await asyncio.open_unix_connection(sock=ours))
        kind, body = await worker.next_frame()
        assert kind == frames.LOAD
        worker.load = json.loads(body)
        self._workers.append(worker)
        return worker

    async def give_loaded(self) -> Worker:
        worker = await self.give()
        worker.loaded()
        return worker

    async def warm(self, function: AnyFunction, calls: int = 1) -> Worker:
        """Return the worker of an instance that has answered some calls."""
        first = self.call(function)
        worker = await self.give_loaded()
        await worker.answer()
        await first.done()
        for _ in range(calls - 1):
            call = self.call(function)
            await worker.answer()
            await call.done()
        return worker

    def of(self, call: Call) -> list[spool.Record]:
        return [record for record in self.recorded() if record.activation == call.activation.decode()]

    def recorded(self) -> list[spool.Record]:
        return [spool.decode(record, 0, len(record)) for record in self.records]

    def ended(self, worker: Worker, **changed: Any) -> None:
        report = {"cell": worker.sandbox, "code": 9, "oom": False, "out": "", "err": "", "memory_mb": 128}
        self.pool.sandbox_ended({**report, **changed})

    def close(self) -> None:
        for worker in self._workers:
            worker.end()


@asynccontextmanager
async def opened(**caps: Any) -> AsyncIterator[Lab]:
    lab = Lab(Caps(**caps))
    watching = asyncio.create_task(lab.pool.run())
    try:
        yield lab
    finally:
        watching.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await watching
        lab.close()
        await asyncio.sleep(0)


def make_function(**changed: Any) -> AnyFunction:
    number = next(_numbers)
    route = {
        "id": number,
        "org": "1",
        "name": f"f-{number}",
        "revision": 1,
        "version": 1,
        "runtime": "python:3.11",
        "digest": "d",
        "main": "main.py",
        "timeout_ms": 30_000,
        "memory_mb": 128,
        "env": [],
    }
    return Function(Route(**{**route, **changed}), "http://api")


async def until(condition: Callable[[], Any]) -> None:
    deadline = time.monotonic() + WAIT_S
    while not condition():
        assert time.monotonic() < deadline, "it has not come true"
        await asyncio.sleep(0.002)
