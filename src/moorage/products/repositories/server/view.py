"""What one client sees of its push. The push goes on whether anybody looks or not."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator

from moorage.products.repositories.server.pktline import FATAL, FLUSH, PROGRESS, band, packet

BEAT_S = 5.0  # Proxies close what is silent for long, and only what is written to is found to be gone.
MOST_WAITING = 2**20
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")


class View:
    def __init__(self, room: int) -> None:
        """`room` is what a packet of the side band may carry; with 0 the client hears git's own answer only."""
        self._room = room
        self._queue: asyncio.Queue[bytes | None] = asyncio.Queue()
        self._waiting = 0
        self._held = b""
        self._gone = False

    def show(self, raw: bytes) -> None:
        """Pass on one packet of git's. A flush is held back, since after the last one the client hears no more."""
        if raw == FLUSH:
            self._put(self._held)
            self._held = raw
            return
        self._put(self._held + raw)
        self._held = b""

    def say(self, text: str) -> None:
        """Show lines as `remote: …`. They are dropped where the client reads too slowly, and git's answer never is."""
        if self._room and self._waiting < MOST_WAITING:
            for line in text.splitlines() or [""]:
                self._put(band(PROGRESS, _CONTROL.sub("", line).encode(errors="replace") + b"\n", self._room))

    def fail(self, why: str) -> None:
        """Say the last words in the place of git's answer."""
        self._held = b""
        if self._room:
            self._put(band(FATAL, f"{why}\n".encode(), self._room) + FLUSH)

    def end(self) -> None:
        self._put(self._held)
        self._queue.put_nowait(None)

    async def chunks(self) -> AsyncIterator[bytes]:
        """Yield what the client gets, until the end or until it goes away."""
        try:
            while True:
                try:
                    async with asyncio.timeout(BEAT_S):
                        chunk = await self._queue.get()
                except TimeoutError:
                    if self._room:
                        yield packet(bytes([PROGRESS]))
                    continue
                if chunk is None:
                    return
                self._waiting -= len(chunk)
                yield chunk
        finally:
            self._gone = True

    def _put(self, data: bytes) -> None:
        if data and not self._gone:
            self._waiting += len(data)
            self._queue.put_nowait(data)
