"""Log lines of invocations as events, shared by the streams of a function.

Many streams may follow a function that prints a megabyte in one line. A thread reads and encodes it once for all of
them: 50 streams that each did so kept the event loop from other requests for a tenth of a second.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import NamedTuple

import msgspec

from moorage.core.kit.events import Event
from moorage.products.functions.logs import log_text
from moorage.products.functions.logs.log_files import FunctionLogs
from moorage.products.functions.records import schemas
from moorage.products.functions.records.tables import Invocation
from moorage.runtime.edge import spool

MAX_ENCODED_LINES = 100  # of an invocation; the events of more lines take many times the memory of their text
MAX_KEPT_BYTES = 4 * 2**20
_encode = msgspec.json.Encoder().encode


class _Key(NamedTuple):
    """Identity of a log text: text that is printed after the response changes the reference or the size."""

    row_id: int
    reference: str | None
    stored_size: int


class _Lines(NamedTuple):
    """Lines of an invocation: encoded events, or the log block of too many lines."""

    events: list[Event]
    block: bytes
    size: int

    def following(self, activation_id: str, sent: int) -> Iterable[Event]:
        """Return the events after the first `sent` lines. Those of many lines are made one by one."""
        return self.events[sent:] if not self.block else _made_one_by_one(self.block, activation_id, sent)


def _made_one_by_one(block: bytes, activation_id: str, sent: int) -> Iterator[Event]:
    for count, entry in enumerate(spool.log_entries(block)):
        if count >= sent:
            yield Event("log", schemas.LogLine.of(entry, activation_id))


class LogEvents:
    """Reads log lines for streams. Used within one event loop."""

    def __init__(self, logs: FunctionLogs) -> None:
        self._logs = logs
        self._reading: dict[_Key, asyncio.Task[_Lines]] = {}
        self._kept: OrderedDict[_Key, _Lines] = OrderedDict()
        self._kept_bytes = 0

    async def after(self, row: Invocation, stored: bytes | None, sent: int) -> Iterable[Event]:
        """Return the events of the log lines of an invocation, except the first `sent` ones."""
        if not stored and not row.log_ref:
            return ()
        key = _Key(row.id, row.log_ref, len(stored or b""))
        lines = self._kept.get(key)
        if lines is None:
            reading = self._reading.get(key) or self._start(key, row, stored)
            lines = await asyncio.shield(reading)  # A stream that ends does not end the read of the others.
        return lines.following(row.activation_id, sent)

    def _start(self, key: _Key, row: Invocation, stored: bytes | None) -> asyncio.Task[_Lines]:
        reading = asyncio.create_task(asyncio.to_thread(self._read, row, stored))
        self._reading[key] = reading
        reading.add_done_callback(lambda _: self._keep(key))
        return reading

    def _keep(self, key: _Key) -> None:
        reading = self._reading.pop(key)
        if reading.cancelled() or reading.exception() is not None:
            return
        self._kept[key] = reading.result()
        self._kept_bytes += reading.result().size
        while self._kept_bytes > MAX_KEPT_BYTES:
            _, oldest = self._kept.popitem(last=False)
            self._kept_bytes -= oldest.size

    def _read(self, row: Invocation, stored: bytes | None) -> _Lines:
        block = log_text.block_of(self._logs, row, stored)
        is_long = block.count(b"\n") > MAX_ENCODED_LINES
        entries = [] if is_long else list(islice(spool.log_entries(block), MAX_ENCODED_LINES + 1))
        if is_long or len(entries) > MAX_ENCODED_LINES:
            return _Lines([], block, len(block))
        encoded = [_encode(schemas.LogLine.of(entry, row.activation_id)) for entry in entries]
        return _Lines([Event("log", msgspec.Raw(each)) for each in encoded], b"", sum(map(len, encoded)))
