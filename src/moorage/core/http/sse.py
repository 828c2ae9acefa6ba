"""Server-sent events for routes that follow logs or state changes."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import aclosing
from dataclasses import field

from moorage.core.http.answer import Headers, Stream, encode
from moorage.core.kit.events import Event
from moorage.core.kit.records import dataclass
from moorage.errors import MoorageError

# Proxies close a connection after a minute without data; a comment keeps it open.
HEARTBEAT_INTERVAL_S = 15.0
MAX_STREAM_S = 30 * 60.0
RECHECK_S = 10.0  # A revoked credential must end its streams within 15 s; this leaves time for the check itself.


def wire(event: Event) -> bytes:
    # Encoded JSON has no raw line breaks, so it always fits one `data:` line.
    head = f"id: {event.id}\n" if event.id is not None else ""
    return f"{head}event: {event.name}\ndata: ".encode() + encode(event.data) + b"\n\n"


@dataclass(slots=True)
class Recheck:
    """Repeated check of an open stream's credential. The dispatcher sets `check`."""

    check: Callable[[], Awaitable[None]] | None = None  # raises MoorageError to end the stream
    every_s: float = RECHECK_S

    def first_s(self) -> float:
        """Return the seconds until the first check, with jitter."""
        return self.every_s * random.uniform(0.5, 1)  # noqa: S311 - no secret depends on it

    async def find_problem(self) -> MoorageError | None:
        try:
            if self.check is not None:
                await self.check()
        except MoorageError as error:
            return error
        return None


async def _at_once() -> None:
    """The turn of a stream that no dispatcher sends."""


@dataclass(slots=True)
class Pace:
    """Throughput limit, set by the dispatcher.

    `reserve` returns the seconds to wait before some bytes are sent; `turn` waits before an event is encoded.
    """

    reserve: Callable[[int], float] = lambda _: 0.0
    turn: Callable[[], Awaitable[None]] = _at_once


@dataclass(slots=True)
class EventStream(Stream):
    """An answer of server-sent events."""

    recheck: Recheck = field(default_factory=Recheck)
    pace: Pace = field(default_factory=Pace)


def stream(
    events: AsyncIterator[Event], *, beat_s: float = HEARTBEAT_INTERVAL_S, longest_s: float = MAX_STREAM_S
) -> EventStream:
    headers: Headers = [
        (b"content-type", b"text/event-stream; charset=utf-8"),
        (b"cache-control", b"no-store"),
        (b"x-accel-buffering", b"no"),
    ]
    recheck, pace = Recheck(every_s=RECHECK_S), Pace()
    return EventStream(_chunks(events, beat_s, longest_s, recheck, pace), headers, recheck=recheck, pace=pace)


async def _chunks(
    events: AsyncIterator[Event], beat_s: float, longest_s: float, recheck: Recheck, pace: Pace
) -> AsyncIterator[bytes]:
    """Yield events as they arrive, and comments as heartbeats in between.

    Ends with the source, after `longest_s`, or with a `closed` event when the recheck of the credential fails.
    """
    now = asyncio.get_running_loop().time
    ends_at, beat_at, check_at = now() + longest_s, now() + beat_s, now() + recheck.first_s()
    yield b": open\n\n"
    async with aclosing(events) as source:  # type: ignore[type-var]
        pending: asyncio.Task[Event] | None = None
        ready, send_at = b"", 0.0  # an event that the throughput limit delays
        try:
            while now() < ends_at:
                if now() >= check_at:  # Checked before sending: the client may not have read for a long time.
                    if (problem := await recheck.find_problem()) is not None:
                        yield wire(Event("closed", {"code": problem.code, "message": problem.message}))
                        return
                    check_at = now() + recheck.every_s
                timers = min(ends_at, beat_at, check_at)
                if ready and now() < send_at:
                    await asyncio.sleep(min(timers, send_at) - now())
                elif not ready:
                    pending = pending or asyncio.ensure_future(anext(source))
                    done, _ = await asyncio.wait({pending}, timeout=max(timers - now(), 0))
                    if done:
                        try:
                            event = pending.result()
                        except StopAsyncIteration:
                            return
                        await pace.turn()
                        ready = wire(event)
                        pending, send_at = None, now() + pace.reserve(len(ready))
                if ready and now() >= send_at:
                    yield ready
                    ready = b""
                elif beat_at <= now() < ends_at:
                    yield b": beat\n\n"
                else:
                    continue
                beat_at = now() + beat_s
        finally:
            if pending is not None:
                pending.cancel()
                await asyncio.wait({pending})
