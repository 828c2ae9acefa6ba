"""Live stream of a function: its log lines, and each invocation as it ends."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import AsyncIterator, Iterator
from dataclasses import field
from functools import partial
from typing import NamedTuple

from moorage.core.db.store import Database
from moorage.core.db.tx import Tx
from moorage.core.kit.events import Event
from moorage.core.kit.records import dataclass
from moorage.products.functions.logs import log_text
from moorage.products.functions.logs.log_files import FunctionLogs
from moorage.products.functions.records import invocations
from moorage.products.functions.records import tables as records
from moorage.products.functions.records.recorder import Recorder
from moorage.products.functions.records.schemas import InvocationSummary, LogLine
from moorage.products.functions.records.tables import Invocation
from moorage.runtime.edge import spool

BATCH = 100
# On PostgreSQL another process may store records without a notification in this one.
POLL_INTERVAL_S = {"postgresql": 0.4, "sqlite": 5.0}
MAX_TRACKED = 1_000  # invocations with a count of sent lines, to send only their late lines


class SentLines(NamedTuple):
    """Number of log lines of an invocation that were sent."""

    activation_id: str
    lines: int


@dataclass
class Feed:
    """State of one stream."""

    db: Database
    logs: FunctionLogs
    org_id: int
    function_id: int
    last: int  # row id of the latest sent invocation
    _sent: OrderedDict[int, SentLines] = field(default_factory=OrderedDict)

    async def next_events(self) -> AsyncIterator[Event]:
        """Yield the events of new invocations, oldest first."""
        read = partial(invocations.after, org_id=self.org_id, function_id=self.function_id, last=self.last)
        for row in await self.db.read(lambda tx: read(tx, most=BATCH)):
            block = await self._read_logs(row)
            for event in self._lines(row.id, row.activation_id, block):
                yield event
            self.last = row.id
            yield Event("invocation", InvocationSummary.of(row), id=str(row.id))

    async def late_lines(self, grown: set[int]) -> AsyncIterator[Event]:
        """Yield lines that were stored after their invocation was sent."""
        for row_id in sorted(grown & self._sent.keys()):
            row = await self.db.read(partial(_find, org_id=self.org_id, row_id=row_id))
            block = await self._read_logs(row) if row is not None else b""
            for event in self._lines(row_id, self._sent[row_id].activation_id, block):
                yield event

    async def _read_logs(self, row: Invocation) -> bytes:
        stored = row.small_logs
        if row.stored_size > records.SMALL:
            stored = await self.db.read(lambda tx: records.read_logs(tx, self.org_id, row))
        if not stored and not row.log_ref:
            return b""
        return await asyncio.to_thread(log_text.block_of, self.logs, row, stored)

    def _lines(self, row_id: int, activation_id: str, block: bytes) -> Iterator[Event]:
        """Yield the unsent log lines of an invocation, lazily because logs may be long."""
        sent = self._sent[row_id].lines if row_id in self._sent else 0
        count = 0
        for count, entry in enumerate(spool.log_entries(block), 1):
            if count > sent:
                yield Event("log", LogLine.of(entry, activation_id))
        self._sent[row_id] = SentLines(activation_id, count)
        if len(self._sent) > MAX_TRACKED:
            self._sent.popitem(last=False)


def _find(tx: Tx, org_id: int, row_id: int) -> Invocation | None:
    return tx.find(records.FIND, org_id=org_id, id=row_id)


def start_after(tx: Tx, org_id: int, function_id: int, last: int | None, tail: int) -> int:
    """Return the row id after which a stream starts: `last`, else `tail` rows back."""
    return last if last is not None else invocations.id_before_newest(tx, org_id, function_id, tail)


async def follow(db: Database, recorder: Recorder, org_id: int, function_id: int, last: int) -> AsyncIterator[Event]:
    """Yield the events after the row id `last` until the client disconnects."""
    feed = Feed(db, recorder.logs, org_id, function_id, last)
    with recorder.changed.following(function_id) as follower:
        while True:
            is_idle = True
            async for event in feed.late_lines(follower.take_grown()):
                yield event
            async for event in feed.next_events():
                is_idle = False
                yield event
            if is_idle:
                await follower.wait(POLL_INTERVAL_S[db.dialect])
