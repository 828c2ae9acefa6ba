"""Client of the agent in the pod of one build."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import field
from pathlib import Path

import msgspec

from moorage.core.kit.records import dataclass
from moorage.runtime.builds.pods import wire
from moorage.runtime.builds.pods.wire import Call, Event, Part
from moorage.runtime.builds.ports import BuildFailed, Sink

CONNECT_TIMEOUT_S = 10.0
SILENCE_S = 4 * wire.PING_S
RECONNECT_FOR_S = 45.0  # The agent waits longer for the platform.
RETRY_S = 0.5
BROKEN = (OSError, TimeoutError, asyncio.IncompleteReadError, ssl.SSLError, asyncio.LimitOverrunError, ValueError)


class PodLost(Exception):
    """The pod of a build is gone or cannot be reached; the text is a sentence about it. The build may start again."""


@dataclass(frozen=True)
class Session:
    """Each call is repeated while the pod runs and its connection breaks; raises PodLost and BuildFailed."""

    host: str
    token: str = field(repr=False)
    context: ssl.SSLContext
    check: Callable[[], Awaitable[None]]  # raises PodLost or BuildFailed if the pod has ended
    reconnect_s: float = RECONNECT_FOR_S

    async def begin(self, order: bytes, archive: Path) -> None:
        """Send the order and the source."""
        call = Call(self.token, "begin", order_bytes=len(order), source_bytes=archive.stat().st_size)

        async def send() -> None:
            async with self._open(call) as (reader, writer):
                writer.write(order)
                await wire.send_file(writer, archive)
                answer = await reader.readuntil(b"\n")
                if answer != wire.ACCEPTED:
                    raise PodLost(f"its agent refused the source ({answer.decode(errors='replace').strip()})")

        await self._repeat(send)

    async def follow(self, sink: Sink) -> Event:
        """Pass on the output until the build ends; return its last event, which is a success."""
        last: Event | None = None
        after = lines = 0

        async def read() -> None:
            nonlocal last, after, lines
            async with self._open(Call(self.token, "events", after=after)) as (reader, _):
                while last is None:
                    async with asyncio.timeout(SILENCE_S):
                        event = _decode(await reader.readuntil(b"\n"))
                    lines += 1
                    if event.number <= after:
                        continue
                    after = event.number
                    if event.stream:
                        sink.write(event.stream, event.text)
                    last = event if event.is_last else None

        await self._repeat(read, progress=lambda: lines)
        assert last is not None
        if last.error:
            raise BuildFailed(last.error)
        if last.fault:
            raise PodLost(f"its agent failed ({last.fault})")
        return last

    async def fetch(self, part: Part, target: Path) -> str:
        """Write a file of the result; return its SHA-256."""
        digest = ""

        async def receive() -> None:
            nonlocal digest
            sha256 = hashlib.sha256()
            async with self._open(Call(self.token, "part", name=part.name)) as (reader, _):
                await wire.receive_file(reader, part.size, target, sha256.update)
            digest = sha256.hexdigest()

        await self._repeat(receive)
        return digest

    async def _repeat(self, attempt: Callable[[], Awaitable[None]], progress: Callable[[], int] = lambda: 0) -> None:
        """Repeat a call that fails; the time for repetitions begins anew after each progress."""
        loop, failing_since, seen = asyncio.get_running_loop(), 0.0, progress()
        while True:
            try:
                await attempt()
                return
            except BROKEN as error:
                await self.check()
                if not failing_since or progress() != seen:
                    failing_since, seen = loop.time(), progress()
                if loop.time() - failing_since > self.reconnect_s:
                    why = str(error) or type(error).__name__
                    raise PodLost(f"its pod cannot be reached at {self.host} ({why})") from error
            await asyncio.sleep(RETRY_S)

    @contextlib.asynccontextmanager
    async def _open(self, call: Call) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
        async with asyncio.timeout(CONNECT_TIMEOUT_S):
            reader, writer = await asyncio.open_connection(
                self.host, wire.PORT, ssl=self.context, server_hostname=wire.HOST, limit=wire.MAX_LINE_BYTES
            )
        try:
            writer.write(wire.encode(call) + b"\n")
            yield reader, writer
        finally:
            writer.close()


def _decode(line: bytes) -> Event:
    try:
        return wire.decode_event(line)
    except msgspec.MsgspecError as error:
        raise ValueError(f"the agent of the build sent an invalid line: {error}") from None
