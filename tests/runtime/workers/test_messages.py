"""The channel between invoker and edge: long messages take linear time."""

from __future__ import annotations

import asyncio
import socket

import pytest

from moorage.runtime.workers.messages import MAX_MESSAGE_BYTES, Channel, Message

pytestmark = pytest.mark.anyio


async def test_long_messages_come_whole_and_in_order() -> None:
    ours, theirs = socket.socketpair()
    heard: list[Message] = []
    sender = Channel(ours, lambda *_: None, lambda: None)
    receiver = Channel(theirs, lambda message, _: heard.append(message), lambda: None)

    for size in (15 * 2**20, 10, 5 * 2**20):
        sender.send({"text": "x" * size})
    async with asyncio.timeout(60):
        while len(heard) < 3:
            await asyncio.sleep(0.01)
    sender.close()
    receiver.close()

    assert [len(message["text"]) for message in heard] == [15 * 2**20, 10, 5 * 2**20]


async def test_a_message_that_is_too_long_closes_the_channel() -> None:
    ours, theirs = socket.socketpair()
    closed = asyncio.Event()
    Channel(theirs, lambda *_: None, closed.set)

    ours.send((MAX_MESSAGE_BYTES + 1).to_bytes(4, "little") + bytes(10))

    async with asyncio.timeout(60):
        await closed.wait()
    rest = ours.recv(1)
    ours.close()

    assert rest == b""
