"""Live stream of a function: its log lines, and each invocation as it ends."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import AsyncIterator
from dataclasses import field
from functools import partial

from moorage.core.db.store import Database
from moorage.core.db.tx import Tx
from moorage.core.kit.events import Event
from moorage.core.kit.records import dataclass
from moorage.products.functions.records import invocations
from moorage.products.functions.records import tables as records
from moorage.products.functions.records.log_events import LogEvents
from moorage.products.functions.records.recorder import Recorder
from moorage.products.functions.records.schemas import InvocationSummary
from moorage.products.functions.records.tables import Invocation

BATCH = 100
# On PostgreSQL another process may store records without a notification in this one.
POLL_INTERVAL_S = {"postgresql": 0.4, "sqlite": 5.0}
MAX_TRACKED = 1_000  # invocations with a count of sent lines, to send only their late lines


@dataclass
class Feed:
    """State of one stream."""

    db: Database
    lines: LogEvents
    org_id: int
    function_id: int
    last: int  # row id of the latest sent invocation
    _sent: OrderedDict[int, int] = field(default_factory=OrderedDict)  # log lines that were sent, by row id

    async def next_events(self) -> AsyncIterator[Event]:
        """Yield the events of new invocations, oldest first."""
        read = partial(invocations.after, org_id=self.org_id, function_id=self.function_id, last=self.last)
        for row in await self.db.read(lambda tx: read(tx, most=BATCH)):
            async for event in self._unsent(row):
                yield event
            self.last = row.id
            yield Event("invocation", InvocationSummary.of(row), id=str(row.id))

    async def late_lines(self, grown: set[int]) -> AsyncIterator[Event]:
        """Yield lines that were stored after their invocation was sent."""
        for row_id in sorted(grown & self._sent.keys()):
            row = await self.db.read(partial(_find, org_id=self.org_id, row_id=row_id))
            if row is not None:
                async for event in self._unsent(row):
                    yield event

    async def _unsent(self, row: Invocation) -> AsyncIterator[Event]:
        """Yield the unsent log lines of an invocation."""
        stored = row.small_logs
        if row.stored_size > records.SMALL:
            stored = await self.db.read(lambda tx: records.read_logs(tx, self.org_id, row))
        count = self._sent.get(row.id, 0)
        for event in await self.lines.after(row, stored, count):
            count += 1
            yield event
        self._sent[row.id] = count
        if len(self._sent) > MAX_TRACKED:
            self._sent.popitem(last=False)


def _find(tx: Tx, org_id: int, row_id: int) -> Invocation | None:
    return tx.find(records.FIND, org_id=org_id, id=row_id)


def start_after(tx: Tx, org_id: int, function_id: int, last: int | None, tail: int) -> int:
    """Return the row id after which a stream starts: `last`, else `tail` rows back."""
    return last if last is not None else invocations.id_before_newest(tx, org_id, function_id, tail)


async def follow(db: Database, recorder: Recorder, org_id: int, function_id: int, last: int) -> AsyncIterator[Event]:
    """Yield the events after the row id `last` until the client disconnects."""
    feed = Feed(db, recorder.log_events, org_id, function_id, last)
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
