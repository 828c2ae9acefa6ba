"""Output of a push for its client. The push continues when the client disconnects."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator

from moorage.products.repositories.server.pktline import FATAL, FLUSH, PROGRESS, band, packet

KEEPALIVE_INTERVAL_S = 5.0  # Proxies close idle connections, and only a write detects a closed one.
MAX_BUFFERED_BYTES = 2**20
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")


class View:
    def __init__(self, room: int) -> None:
        """`room` is the data of a side-band packet; with 0 only git's output is sent."""
        self._room = room
        self._queue: asyncio.Queue[bytes | None] = asyncio.Queue()
        self._buffered = 0
        self._held = b""
        self._gone = False

    def show(self, raw: bytes) -> None:
        """Forward a packet of git. A flush is held back: the client stops at the last one."""
        if raw == FLUSH:
            self._put(self._held)
            self._held = raw
            return
        self._put(self._held + raw)
        self._held = b""

    def say(self, text: str) -> None:
        """Send lines as `remote: …`; they are dropped if the client reads too slowly."""
        if self._room and self._buffered < MAX_BUFFERED_BYTES:
            for line in text.splitlines() or [""]:
                self._put(band(PROGRESS, _CONTROL.sub("", line).encode(errors="replace") + b"\n", self._room))

    def fail(self, why: str) -> None:
        """Send a fatal error instead of git's response."""
        self._held = b""
        if self._room:
            self._put(band(FATAL, f"{why}\n".encode(), self._room) + FLUSH)

    def end(self) -> None:
        self._put(self._held)
        self._queue.put_nowait(None)

    async def chunks(self) -> AsyncIterator[bytes]:
        """Yield the output, until the end or until the client disconnects."""
        try:
            while True:
                try:
                    async with asyncio.timeout(KEEPALIVE_INTERVAL_S):
                        chunk = await self._queue.get()
                except TimeoutError:
                    if self._room:
                        yield packet(bytes([PROGRESS]))
                    continue
                if chunk is None:
                    return
                self._buffered -= len(chunk)
                yield chunk
        finally:
            self._gone = True

    def _put(self, data: bytes) -> None:
        if data and not self._gone:
            self._buffered += len(data)
            self._queue.put_nowait(data)
