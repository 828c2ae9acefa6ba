"""Streams that have data at the same moment, and other requests in between."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from moorage.core.http import sending
from moorage.core.http.answer import Stream
from moorage.core.http.limits.turns import Turns

pytestmark = pytest.mark.anyio


async def test_callers_of_the_same_moment_come_in_different_iterations() -> None:
    turns, events = Turns(), []

    async def stream(name: str) -> None:
        await turns.take()
        events.append(name)
        asyncio.get_running_loop().call_soon(events.append, "other")

    await asyncio.gather(*(stream(name) for name in "abc"))
    await asyncio.sleep(0)

    assert events == ["a", "other", "b", "other", "c", "other"]


async def test_a_cancelled_caller_gives_its_turn_to_the_next() -> None:
    turns = Turns()
    waiting = [asyncio.create_task(turns.take()) for _ in range(3)]
    await asyncio.sleep(0)
    waiting[0].cancel()
    waiting[1].cancel()

    done, _ = await asyncio.wait({waiting[2]}, timeout=10)

    assert done == {waiting[2]}


async def test_a_large_chunk_of_a_stream_is_written_in_pieces() -> None:
    body = bytes(range(256)) * 1000
    sent: list[bytes] = []

    async def chunks() -> AsyncIterator[bytes]:
        yield b"small"
        yield body

    async def send(message: dict[str, Any]) -> None:
        sent.append(message["body"])

    await sending._pump(send, Stream(chunks(), []), Turns())

    assert b"".join(sent) == b"small" + body
    assert max(map(len, sent)) == sending.PIECE_BYTES
