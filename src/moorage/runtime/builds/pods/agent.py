"""Server in the pod of a build: takes one order, runs it, and hands out its events and the files of its result.

It ends by itself when the platform is away for some time: the platform then builds again in another pod.
"""

from __future__ import annotations

import asyncio
import hmac
import sys
import tarfile
import traceback
from collections.abc import Awaitable, Callable
from dataclasses import field
from pathlib import Path

import msgspec

from moorage.core.disk import is_full
from moorage.core.kit.records import dataclass
from moorage.core.net import pod_identity
from moorage.errors import DiskFull, QuotaExceeded
from moorage.runtime.builds.pods import sources, wire
from moorage.runtime.builds.pods.wire import Call, Event, Order, Part
from moorage.runtime.builds.ports import BuildFailed, Plan, Sink, Stream
from moorage.runtime.images.references import PullFailed

ALONE_S = 60.0  # without any connection of the platform
CALL_TIMEOUT_S = 30.0
FULL = "the disk of the build is full"


@dataclass(frozen=True)
class Outcome:
    """Result of a build, and access to its files."""

    plan: Plan
    files: int
    parts: list[Part]
    fetch: Callable[[str], Awaitable[Path]]  # by the name of a part


Work = Callable[[Order, Path, Sink], Awaitable[Outcome]]  # order, folder of the source


@dataclass(eq=False)
class BuildAgent:
    token: str = field(repr=False)
    work: Work
    folder: Path  # for archives
    source: Path  # empty, or not there yet
    alone_s: float = ALONE_S
    _events: list[bytes] = field(default_factory=list)
    _task: asyncio.Task[None] | None = None
    _outcome: Outcome | None = None
    _connections: int = 0
    _starting: asyncio.Lock = field(default_factory=asyncio.Lock)
    _changed: asyncio.Event = field(default_factory=asyncio.Event)  # replaced at each change

    async def serve(self, host: str, port: int, chain: str) -> None:
        """Serve until the platform is away for some time; then kill the build."""
        context = pod_identity.server_context(chain)
        server = await asyncio.start_server(self._accept, host, port, ssl=context, limit=wire.MAX_LINE_BYTES)
        try:
            await self._until_alone()
        finally:
            server.close()
            if self._task is not None:
                self._task.cancel()
                await asyncio.wait({self._task})

    async def _until_alone(self) -> None:
        alone_s = 0.0
        while alone_s < self.alone_s:
            await asyncio.sleep(min(1.0, self.alone_s / 4))
            alone_s = 0.0 if self._connections else alone_s + min(1.0, self.alone_s / 4)
        print("the platform has not connected for some time: this build ends", file=sys.stderr)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        is_counted = False
        try:
            async with asyncio.timeout(CALL_TIMEOUT_S):
                call = wire.decode_call(await reader.readuntil(b"\n"))
            if not hmac.compare_digest(call.token.encode(), self.token.encode()):
                return
            self._connections += 1
            is_counted = True
            await self._answer(call, reader, writer)
            await writer.drain()
        except (OSError, TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError, msgspec.MsgspecError):
            return
        finally:
            self._connections -= is_counted
            writer.close()

    async def _answer(self, call: Call, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        match call.verb:
            case "begin":
                try:
                    await self._begin(call, reader)
                except (OSError, tarfile.TarError, msgspec.MsgspecError) as error:
                    traceback.print_exc()
                    writer.write(_describe(error).replace("\n", " ").encode() + b"\n")
                else:
                    writer.write(wire.ACCEPTED)
            case "events":
                await self._send_events(call.after, writer)
            case "part" if self._outcome is not None:
                path = await self._outcome.fetch(call.name)
                await wire.send_file(writer, path)

    async def _begin(self, call: Call, reader: asyncio.StreamReader) -> None:
        """Take the order and the source; a repeated call changes nothing."""
        async with self._starting:
            order = wire.decode_order(await reader.readexactly(call.order_bytes))
            archive = self.folder / "source.tar"
            await wire.receive_file(reader, call.source_bytes, archive)
            if self._task is None:
                await asyncio.to_thread(sources.unpack, archive, self.source)
                archive.unlink()
                self._task = asyncio.create_task(self._run(order))

    async def _send_events(self, after: int, writer: asyncio.StreamWriter) -> None:
        position = after
        while True:
            changed = self._changed
            for line in self._events[position:]:
                writer.write(line)
            position = len(self._events)
            await writer.drain()
            if self._task is not None and self._task.done():
                return
            try:
                await asyncio.wait_for(changed.wait(), wire.PING_S)
            except TimeoutError:
                writer.write(wire.encode(Event(number=0)) + b"\n")

    async def _run(self, order: Order) -> None:
        try:
            self._outcome = outcome = await self.work(order, self.source, self)
            self._put(Event(number=0, plan=outcome.plan, files=outcome.files, parts=outcome.parts))
        except (BuildFailed, PullFailed, QuotaExceeded, DiskFull) as error:
            self._put(Event(number=0, error=str(error) or type(error).__name__))
        except Exception as error:  # noqa: BLE001 - reported to the platform
            traceback.print_exc()
            is_room_used = isinstance(error, OSError) and is_full(error)
            self._put(Event(number=0, error=FULL) if is_room_used else Event(number=0, fault=_describe(error)))

    def write(self, stream: Stream, text: str) -> None:
        """Add output of the build: the agent is its sink."""
        for start in range(0, len(text), wire.CHUNK_BYTES):
            self._put(Event(number=0, stream=stream, text=text[start : start + wire.CHUNK_BYTES]))

    def _put(self, event: Event) -> None:
        numbered = msgspec.structs.replace(event, number=len(self._events) + 1)
        self._events.append(wire.encode(numbered) + b"\n")
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()


def _describe(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"
