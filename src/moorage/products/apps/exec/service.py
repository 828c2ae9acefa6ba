"""One-off commands: a program in a sandbox of its own beside the app, and what it prints while it runs.

Nothing of a command is kept: it lives as long as whoever asked for it listens.
"""

from __future__ import annotations

import asyncio
import codecs
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import aclosing
from typing import Literal, NamedTuple

from moorage.core.kit.masking import Masker
from moorage.errors import RateLimited
from moorage.runtime.sandbox.runs import main as sandbox
from moorage.runtime.sandbox.runs.main import Finished, Job

AT_ONCE = 4  # commands of one organization
KEPT_BYTES = 2**20

Stream = Literal["stdout", "stderr"]


class Prepared(NamedTuple):
    """A command that can be run."""

    job: Job
    hidden: list[str]  # values that nobody is shown


# Organization, project and command in; raises NotFound and Conflict.
Prepare = Callable[[int, str, str], Awaitable[Prepared]]


class Piece(NamedTuple):
    """Some of what a command has printed."""

    stream: Stream
    text: str


class Kept(NamedTuple):
    """How a command ended, and the end of what it printed."""

    finished: Finished
    stdout: str
    stderr: str
    is_cut: bool


class Places:
    """How many commands run for each organization."""

    def __init__(self, most: int = AT_ONCE) -> None:
        self._most = most
        self._taken: Counter[int] = Counter()

    def take(self, org_id: int) -> Callable[[], None]:
        """Return what gives the place back, which is safe to repeat; raises RateLimited."""
        if self._taken[org_id] >= self._most:
            raise RateLimited(f"{self._most} commands of this organization run already")
        self._taken[org_id] += 1
        is_held = [True]

        def give_back() -> None:
            if is_held:
                is_held.clear()
                self._taken[org_id] -= 1
                self._taken += Counter()  # drops those that are at nought

        return give_back


class MaskedText:
    """Turns the bytes of a stream into text without secrets. What may be the begin of one waits for what follows."""

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
    """The end of a text."""

    def __init__(self, most: int = KEPT_BYTES) -> None:
        self._most = most
        self._data = bytearray()
        self.is_cut = False

    def add(self, text: str) -> None:
        self._data += text.encode()
        if len(self._data) > 2 * self._most:  # Not each time: what is left is moved.
            self._cut()

    def text(self) -> str:
        self._cut()
        return self._data.decode("utf-8", "ignore")  # The cut may go through a character.

    def _cut(self) -> None:
        if len(self._data) > self._most:
            self.is_cut = True
            del self._data[: -self._most]


async def follow(command: Prepared) -> AsyncIterator[Piece | Finished]:
    """Run a command, yield what it prints as it comes, and last how it ended. Whoever stops listening ends it.

    What nobody has taken yet is held in memory, which is no more than the job may print.
    """
    pieces: asyncio.Queue[Piece | None] = asyncio.Queue()
    masker = Masker(command.hidden)
    texts: dict[Stream, MaskedText] = {"stdout": MaskedText(masker), "stderr": MaskedText(masker)}

    def put(stream: Stream, data: bytes) -> None:
        if text := texts[stream].feed(data):
            pieces.put_nowait(Piece(stream, text))

    running = asyncio.ensure_future(sandbox.run(command.job, put))
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
    async with aclosing(follow(command)) as said:  # type: ignore[type-var]
        async for each in said:
            if isinstance(each, Finished):
                out, err = tails["stdout"].text(), tails["stderr"].text()
                return Kept(each, out, err, any(tail.is_cut for tail in tails.values()))
            tails[each.stream].add(each.text)
    raise AssertionError("a command ends with how it ended")
