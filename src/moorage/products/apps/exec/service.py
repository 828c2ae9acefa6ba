"""One-off commands: a process in its own sandbox beside the app.

Nothing is stored, and the command is killed when its reader stops.
"""

from __future__ import annotations

import asyncio
import codecs
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import aclosing
from typing import NamedTuple

from moorage.core.kit.masking import Masker
from moorage.errors import RateLimited
from moorage.runtime.engines.ports import CommandEnd, OutputStream

MAX_CONCURRENT_COMMANDS = 4  # of one organization
TAIL_BYTES = 2**20  # of each stream, where the output is not streamed


class Prepared(NamedTuple):
    """Command that is ready to run."""

    run: Callable[[Callable[[OutputStream, bytes], None]], Awaitable[CommandEnd]]
    hidden: list[str]  # secret values, masked in the output
    timeout_s: float


# Called with the organization id, the project name, the command and its timeout; raises NotFound and Conflict.
Prepare = Callable[[int, str, str, float], Awaitable[Prepared]]


class Piece(NamedTuple):
    """Part of a command's output."""

    stream: OutputStream
    text: str


class Kept(NamedTuple):
    """Exit of a command and the end of its output."""

    end: CommandEnd
    stdout: str
    stderr: str
    is_cut: bool


class CommandSlots:
    """Limits the concurrent commands of each organization."""

    def __init__(self, limit: int = MAX_CONCURRENT_COMMANDS) -> None:
        self._limit = limit
        self._running: Counter[int] = Counter()

    def acquire(self, org_id: int) -> Callable[[], None]:
        """Take a slot; return its release function, safe to repeat. Raises RateLimited."""
        if self._running[org_id] >= self._limit:
            raise RateLimited(f"{self._limit} commands of this organization run already")
        self._running[org_id] += 1
        is_held = [True]

        def release() -> None:
            if is_held:
                is_held.clear()
                self._running[org_id] -= 1
                self._running += Counter()  # removes the counts of zero

        return release


class MaskedText:
    """Decodes a stream and masks secrets; holds bytes that may begin a secret."""

    def __init__(self, masker: Masker) -> None:
        self._masker = masker
        self._held = b""
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def feed(self, data: bytes) -> str:
        data = self._held + data
        end = self._masker.safe_end(data)
        self._held = data[end:]
        return self._decoder.decode(self._masker.lines(data[:end]))

    def end(self) -> str:
        return self._decoder.decode(self._masker.lines(self._held), final=True)


class Tail:
    """Last bytes of a text."""

    def __init__(self, limit: int = TAIL_BYTES) -> None:
        self._limit = limit
        self._data = bytearray()
        self.is_cut = False

    def add(self, text: str) -> None:
        self._data += text.encode()
        if len(self._data) > 2 * self._limit:  # Cut rarely, because each cut copies the rest.
            self._cut()

    def text(self) -> str:
        self._cut()
        return self._data.decode("utf-8", "ignore")  # The cut may split a character.

    def _cut(self) -> None:
        if len(self._data) > self._limit:
            self.is_cut = True
            del self._data[: -self._limit]


async def follow(command: Prepared) -> AsyncIterator[Piece | CommandEnd]:
    """Run a command; yield its output, then its exit. Closing kills the command.

    Output that was not read yet is buffered in memory; the engine's output limit bounds it.
    """
    pieces: asyncio.Queue[Piece | None] = asyncio.Queue()
    masker = Masker(command.hidden)
    texts: dict[OutputStream, MaskedText] = {"stdout": MaskedText(masker), "stderr": MaskedText(masker)}

    def put(stream: OutputStream, data: bytes) -> None:
        if text := texts[stream].feed(data):
            pieces.put_nowait(Piece(stream, text))

    running = asyncio.ensure_future(command.run(put))
    running.add_done_callback(lambda _: pieces.put_nowait(None))
    try:
        while (piece := await pieces.get()) is not None:
            yield piece
        for stream, each in texts.items():
            if rest := each.end():
                yield Piece(stream, rest)
        yield running.result()
    finally:
        running.cancel()
        await asyncio.wait({running})


async def finish(command: Prepared) -> Kept:
    """Run a command to its end."""
    tails = {"stdout": Tail(), "stderr": Tail()}
    async with aclosing(follow(command)) as output:  # type: ignore[type-var]
        async for each in output:
            if isinstance(each, CommandEnd):
                out, err = tails["stdout"].text(), tails["stderr"].text()
                return Kept(each, out, err, any(tail.is_cut for tail in tails.values()))
            tails[each.stream].add(each.text)
    raise AssertionError("the stream of a command ended without its exit")
