"""Server-sent events: a helper for routes that follow something as it happens."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any

from moorage.http.answer import Stream, encode

# Proxies drop a connection that is silent for a minute; a comment keeps it open.
BEAT_S = 15.0
LONGEST_S = 30 * 60.0


@dataclass(frozen=True, slots=True)
class Event:
    name: str
    data: Any
    id: str | None = None

    def wire(self) -> bytes:
        # JSON has no raw line breaks, so one `data:` line always holds it.
        head = f"id: {self.id}\n" if self.id is not None else ""
        return f"{head}event: {self.name}\ndata: ".encode() + encode(self.data) + b"\n\n"


def stream(events: AsyncIterator[Event], *, beat_s: float = BEAT_S, longest_s: float = LONGEST_S) -> Stream:
    headers = [
        (b"content-type", b"text/event-stream; charset=utf-8"),
        (b"cache-control", b"no-store"),
        (b"x-accel-buffering", b"no"),
    ]
    return Stream(_chunks(events, beat_s, longest_s), headers)


async def _chunks(events: AsyncIterator[Event], beat_s: float, longest_s: float) -> AsyncIterator[bytes]:
    """Yield events as they come, a comment while none do, and end with the source or after the longest time."""
    loop = asyncio.get_running_loop()
    ends_at = loop.time() + longest_s
    yield b": open\n\n"
    async with aclosing(events) as source:  # type: ignore[type-var]
        coming: asyncio.Task[Event] | None = None
        try:
            while (left := ends_at - loop.time()) > 0:
                coming = coming or asyncio.ensure_future(anext(source))
                done, _ = await asyncio.wait({coming}, timeout=min(beat_s, left))
                if not done:
                    if loop.time() >= ends_at:
                        return
                    yield b": beat\n\n"
                    continue
                try:
                    event = coming.result()
                except StopAsyncIteration:
                    return
                coming = None
                yield event.wire()
        finally:
            if coming is not None:
                coming.cancel()
                await asyncio.wait({coming})
