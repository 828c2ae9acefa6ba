"""Deployment logs: written as they happen, masked, capped, and followed without loss or duplicates."""

from __future__ import annotations

import asyncio
import contextlib
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal, Protocol, TypeVar

from moorage.core.db.scope import across_organizations
from moorage.core.db.store import Database
from moorage.core.db.tx import Tx
from moorage.core.http.models import Output
from moorage.core.http.sse import Event
from moorage.core.kit.clock import to_wire
from moorage.core.kit.masking import Masker
from moorage.products.projects.deployments import service as deployments
from moorage.products.projects.deployments import tables as rows
from moorage.products.projects.deployments.followers import Followers
from moorage.products.projects.deployments.states import DEPLOYMENT
from moorage.products.projects.deployments.tables import Line

FLUSH_S = 0.03
LOOK_S = 3.0  # A build that prints nothing is still asked for now and then whether anybody wants it.
MOST_LINES = 20_000
MOST_BYTES = 8 * 2**20
LINE_CHARS = 8_192
CUT = f"The log is cut here: it has more than {MOST_LINES:,} lines or {MOST_BYTES // 2**20} MB"
AT_ONCE = 500
# Where processes share a store another one may write, and then nobody tells this one.
POLL_S = {"postgresql": 0.08, "sqlite": 5.0}
_ESCAPES = re.compile(r"\x1b\[[0-9;?]*[ -/]*[@-~]|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)|[\x00-\x08\x0b-\x1f\x7f]")

Stream = Literal["stdout", "stderr", "system"]
T = TypeVar("T")


class Lines(Protocol):
    """Where lines are kept: those of a deployment, or of something else that is built."""

    def last_seq(self, tx: Tx, org_id: int, owner_id: int) -> int: ...

    def add(self, tx: Tx, org_id: int, owner_id: int, lines: Sequence[Line]) -> None: ...


@dataclass(frozen=True)
class DeploymentLines:
    def last_seq(self, tx: Tx, org_id: int, owner_id: int) -> int:
        return tx.one(rows.LAST_SEQ, org_id=org_id, deployment_id=owner_id)

    def add(self, tx: Tx, org_id: int, owner_id: int, lines: Sequence[Line]) -> None:
        deployments.add_lines(tx, org_id, owner_id, list(lines))


class LogWriter:
    """Writes the log of one deployment, or of what else is built, in the background; used as a context.

    `write_unit` is the job's own fenced write: a late job cannot add to the log of one that took over.
    """

    def __init__(
        self,
        write_unit: Callable[[Callable[[Tx], Any]], Awaitable[Any]],
        org_id: int,
        owner_id: int,
        followers: Followers,
        now: Callable[[], int],
        lines: Lines | None = None,
    ) -> None:
        self._write_unit = write_unit
        self._org_id = org_id
        self._owner_id = owner_id
        self._followers = followers
        self._lines: Lines = lines or DeploymentLines()
        self._now = now
        self._mask = Masker(())
        self._seq = 0
        self._bytes = 0
        self._is_cut = False
        self._pending: list[Line] = []
        self._partial: dict[str, str] = {}
        self._wake = asyncio.Event()
        self._flushing = asyncio.Lock()
        self._task: asyncio.Task[Any] | None = None

    async def __aenter__(self) -> LogWriter:
        find = partial(self._lines.last_seq, org_id=self._org_id, owner_id=self._owner_id)
        self._seq = await self._write_unit(find)
        self._task = asyncio.create_task(self._run())
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._task is not None
        self._task.cancel()
        await asyncio.wait({self._task})

    async def guard(self, work: Coroutine[Any, Any, T]) -> T:
        """Do some work, as long as the log can be written: who may not write it has no business going on."""
        assert self._task is not None
        working = asyncio.ensure_future(work)
        try:
            await asyncio.wait({working, self._task}, return_when=asyncio.FIRST_COMPLETED)
            if not working.done():
                self._task.result()
        finally:
            if not working.done():
                working.cancel()
                await asyncio.wait({working})
        return working.result()

    def hide(self, secrets: Iterable[str]) -> None:
        """Mask these values from now on."""
        self._mask = Masker(secrets)

    def say(self, text: str) -> None:
        self.write("system", text if text.endswith("\n") else text + "\n")

    def write(self, stream: Stream, text: str) -> None:
        """Take what was printed: any number of lines, the last of which may not have ended yet."""
        *lines, rest = (self._partial.pop(stream, "") + text.replace("\r\n", "\n")).split("\n")
        for line in lines:
            self._add(stream, line)
        while len(rest) > LINE_CHARS:
            self._add(stream, rest[:LINE_CHARS])
            rest = rest[LINE_CHARS:]
        if rest:
            self._partial[stream] = rest

    async def flush(self) -> None:
        """Return when everything that was taken is stored."""
        async with self._flushing:
            lines, self._pending = self._pending, []
            if not lines:
                return
            add = partial(self._lines.add, org_id=self._org_id, owner_id=self._owner_id, lines=lines)
            await self._write_unit(add)
        self._followers.tell(self._owner_id)

    async def finish(self) -> None:
        """Store what is left, lines that never ended included."""
        for stream, rest in list(self._partial.items()):
            self._add(stream, rest)
        self._partial.clear()
        await self.flush()

    def _add(self, stream: str, line: str) -> None:
        # A progress bar overwrites its line; what stood there last is what a reader would have seen.
        line = _ESCAPES.sub("", self._mask(line.rstrip("\r").rpartition("\r")[2]))[:LINE_CHARS]
        if stream != "system":
            if self._is_cut:
                return
            self._bytes += len(line)
            if self._seq >= MOST_LINES or self._bytes > MOST_BYTES:
                self._is_cut = True
                stream, line = "system", CUT
        self._seq += 1
        self._pending.append(Line(self._seq, self._now(), stream, line))
        self._wake.set()

    async def _run(self) -> None:
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(LOOK_S):
                    await self._wake.wait()
            if not self._wake.is_set():
                await self._write_unit(_nothing)
            self._wake.clear()
            await self.flush()
            await asyncio.sleep(FLUSH_S)


class LogLine(Output, frozen=True):
    message: str
    timestamp: str
    stream: str

    @classmethod
    def of(cls, line: Line) -> LogLine:
        return cls(line.message, to_wire(line.at), line.stream)


class StatusNow(Output, frozen=True):
    status: str


async def follow(
    db: Database, followers: Followers, org_id: int, deployment_id: int, seen: int = 0
) -> AsyncIterator[Event]:
    """Yield the lines of a deployment after one, its status when that changes, and `done` when it has ended."""
    status = ""
    with followers.following(deployment_id) as news:
        while True:
            news.clear()
            # The status is read before the lines: what was written before an end comes before it.
            found = await db.read(partial(deployments.find, org_id=org_id, deployment_id=deployment_id))
            lines = await _lines(db, org_id, deployment_id, seen)
            while lines:
                for line in lines:
                    yield Event("log", LogLine.of(line), id=str(line.seq))
                seen = lines[-1].seq
                lines = await _lines(db, org_id, deployment_id, seen) if len(lines) == AT_ONCE else []
            now = found.status if found is not None else "failed"
            if now != status:
                status = now
                yield Event("status", StatusNow(status))
            if found is None or found.status in DEPLOYMENT.terminal:
                yield Event("done", StatusNow(status))
                return
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(POLL_S[db.dialect]):
                    await news.wait()


async def _lines(db: Database, org_id: int, deployment_id: int, seen: int) -> list[Line]:
    ask = partial(deployments.lines_after, org_id=org_id, deployment_id=deployment_id, seq=seen, most=AT_ONCE)
    return await db.read(ask)


@across_organizations("nothing is read or written")
def _nothing(tx: Tx) -> None:
    """What the fence around it checks is all there is to it."""
