"""The edge's connection to the invoker: requests and ends of sandboxes."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

from moorage.runtime.workers.messages import Channel, Message, close_all

RECONNECT_INTERVAL_S = 0.2


class InvokerLink:
    def __init__(self, path: Path) -> None:
        self._path = path
        self._channel: Channel | None = None
        self._lost = asyncio.Event()
        self._takes: dict[int, Message] = {}
        self._numbers = 0
        self._wanted: dict[str, int] = {}
        self.sandbox: bool | None = None
        self.is_memory_low = False
        self.on_sandbox: Callable[[int, int, str, socket.socket], None]
        self.on_refused: Callable[[int, str], None]
        self.on_ended: Callable[[Message], None]
        self.on_memory: Callable[[], None]
        self.on_replace: Callable[[int], None]

    async def run(self) -> None:
        """Reconnect until cancelled; unanswered takes are repeated after each reconnect."""
        while True:
            self._lost.clear()
            if self._channel is None:
                self._connect()
            if self._channel is not None:
                await self._lost.wait()
            await asyncio.sleep(RECONNECT_INTERVAL_S)

    def take(self, request: Message) -> int:
        """Request a sandbox; `on_sandbox` or `on_refused` gets the returned number."""
        self._numbers += 1
        self._takes[self._numbers] = {"take": self._numbers, **request}
        self.send({"take": self._takes[self._numbers]})
        return self._numbers

    def want(self, sandboxes: dict[str, int]) -> None:
        self._wanted = sandboxes
        self.send({"want": sandboxes})

    def send(self, message: Message) -> None:
        if self._channel is not None:
            self._channel.send(message)

    def _connect(self) -> None:
        sock = socket.socket(socket.AF_UNIX)
        try:
            sock.connect(str(self._path))
        except OSError:
            sock.close()
            return
        self._channel = Channel(sock, self._handle_message, self._disconnected)
        self.send({"want": self._wanted})
        for take in self._takes.values():
            self.send({"take": take})

    def _disconnected(self) -> None:
        self._channel = None
        self._lost.set()

    def _handle_message(self, message: Message, descriptors: list[int]) -> None:
        if "cell" in message:
            self._sandbox_taken(message["cell"], descriptors)
        elif "refused" in message:
            self._takes.pop(message["refused"]["take"], None)
            self.on_refused(message["refused"]["take"], message["refused"]["why"])
        elif "ended" in message:
            self.on_ended(message["ended"])
        elif "replace" in message:
            self.on_replace(message["replace"])
        elif "memory" in message or "hello" in message:
            state: dict[str, Any] = message.get("memory") or message["hello"]
            self.sandbox = state.get("sandbox", self.sandbox)
            self.is_memory_low = state["low"]
            self.on_memory()

    def _sandbox_taken(self, answer: Message, descriptors: list[int]) -> None:
        if self._takes.pop(answer["take"], None) is None:
            close_all(descriptors)
            return
        with contextlib.ExitStack() as stack:
            stack.callback(os.close, descriptors[0])
            sock = socket.socket(fileno=os.dup(descriptors[0]))
        sock.setblocking(False)
        self.on_sandbox(answer["take"], answer["cell"], answer["how"], sock)
