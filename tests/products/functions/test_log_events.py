"""Log lines of an invocation for many streams at once."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterable
from types import SimpleNamespace
from typing import Any

import pytest

from moorage.core.http import sse
from moorage.core.kit.events import Event
from moorage.products.functions.logs import log_text, loglines
from moorage.products.functions.records import log_events
from moorage.products.functions.records.log_events import LogEvents
from moorage.runtime.edge import spool

pytestmark = pytest.mark.anyio

STREAMS = 50


class Reads:
    """Counts the reads of log text, and lets them fail."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.count = 0
        self.fails = False
        self._block_of = log_text.block_of
        monkeypatch.setattr(log_text, "block_of", self._read)

    def _read(self, *arguments: Any) -> bytes:
        self.count += 1
        if self.fails:
            raise OSError("the disk is gone")
        return self._block_of(*arguments)


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> Reads:
    return Reads(monkeypatch)


def row_of(number: int = 1) -> Any:
    return SimpleNamespace(id=number, org_id=1, function_id=1, log_ref=None, activation_id=f"call{number}")


def stored(*texts: bytes) -> bytes:
    return loglines.pack(b"".join(spool.log_entry(spool.STDOUT, 0, text) for text in texts))


def messages(events: Iterable[Event]) -> list[str]:
    lines = [sse.wire(event).decode() for event in events]
    return [json.loads(line.partition("data: ")[2])["message"] for line in lines]


async def test_a_long_line_is_read_once_for_all_streams(reads: Reads) -> None:
    lines, text = LogEvents(None), stored(b"x" * 1_000_000 + b"\n", b"end\n")  # type: ignore[arg-type]

    found = await asyncio.gather(*(lines.after(row_of(), text, 0) for _ in range(STREAMS)))
    later = await lines.after(row_of(), text, 1)

    assert reads.count == 1
    assert all(messages(events) == ["x" * 1_000_000, "end"] for events in found)
    assert messages(later) == ["end"]


async def test_text_that_was_printed_after_the_response_is_read_again(reads: Reads) -> None:
    lines = LogEvents(None)  # type: ignore[arg-type]

    first = await lines.after(row_of(), stored(b"first\n"), 0)
    second = await lines.after(row_of(), stored(b"first\n", b"second\n"), 1)

    assert (messages(first), messages(second)) == (["first"], ["second"])
    assert reads.count == 2


async def test_many_lines_are_made_one_by_one(reads: Reads) -> None:
    count = log_events.MAX_ENCODED_LINES + 1
    lines = LogEvents(None)  # type: ignore[arg-type]

    events = await lines.after(row_of(), stored(*(b"%d\n" % number for number in range(count))), 2)

    assert not isinstance(events, list)
    assert messages(events) == [str(number) for number in range(2, count)]


async def test_texts_over_the_limit_are_not_kept(reads: Reads, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_events, "MAX_KEPT_BYTES", 1_000)
    lines = LogEvents(None)  # type: ignore[arg-type]

    for number in (1, 2, 1):
        assert messages(await lines.after(row_of(number), stored(b"x" * 600), 0)) == ["x" * 600]

    assert reads.count == 3


async def test_a_failed_read_is_tried_again_by_the_next_stream(reads: Reads) -> None:
    lines = LogEvents(None)  # type: ignore[arg-type]
    reads.fails = True
    with pytest.raises(OSError, match="the disk is gone"):
        await lines.after(row_of(), stored(b"text\n"), 0)
    reads.fails = False

    assert messages(await lines.after(row_of(), stored(b"text\n"), 0)) == ["text"]


async def test_a_stream_that_ends_leaves_the_read_to_the_others(reads: Reads) -> None:
    lines, text = LogEvents(None), stored(b"text\n")  # type: ignore[arg-type]
    ended = asyncio.create_task(lines.after(row_of(), text, 0))
    other = asyncio.create_task(lines.after(row_of(), text, 0))
    await asyncio.sleep(0)
    ended.cancel()

    assert messages(await other) == ["text"]
    assert reads.count == 1
