"""Wake-ups: datagrams between processes, which may be lost."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from moorage.core.kit.processes.wakeups import WakeupReceiver, WakeupSender

pytestmark = pytest.mark.anyio


async def test_a_receiver_gets_messages_and_replaces_the_socket_of_a_dead_process(tmp_path: Path) -> None:
    (tmp_path / "events.sock").touch()
    received, arrived = list[bytes](), asyncio.Event()

    def on_message(message: bytes) -> None:
        received.append(message)
        arrived.set()

    receiver = WakeupReceiver(tmp_path / "events.sock", on_message)
    receiver.open()
    WakeupSender(tmp_path / "events.sock").send(b"records")
    await asyncio.wait_for(arrived.wait(), 10)
    receiver.close()

    assert received == [b"records"]


async def test_a_sender_needs_no_receiver(tmp_path: Path) -> None:
    sender = WakeupSender(tmp_path / "events.sock")

    sender.send(b"records")
    receiver = WakeupReceiver(tmp_path / "events.sock", lambda _: None)
    receiver.open()
    for _ in range(10_000):  # far more than the buffer of the socket holds
        sender.send(b"records")
    receiver.close()

    assert (tmp_path / "events.sock").is_socket()
