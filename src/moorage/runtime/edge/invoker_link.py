"""The gateway's connection to the invoker: asks for cells, hears of their ends, and comes back after a restart."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

from moorage.runtime.workers.messages import Channel, Message, close_all

RETRY_S = 0.2


class InvokerLink:
    def __init__(self, path: Path) -> None:
        self._path = path
        self._channel: Channel | None = None
        self._takes: dict[int, Message] = {}
        self._numbers = 0
        self._wanted: dict[str, int] = {}
        self.sandbox: bool | None = None
        self.is_memory_low = False
        self.on_cell: Callable[[int, int, str, socket.socket], None]
        self.on_refused: Callable[[int, str], None]
        self.on_ended: Callable[[Message], None]
        self.on_memory: Callable[[], None]

    async def run(self) -> None:
        """Stay connected until cancelled. What was asked and not answered is asked again."""
        while True:
            if self._channel is None:
                self._connect()
            await asyncio.sleep(RETRY_S)

    def take(self, request: Message) -> int:
        """Ask for a cell; the answer comes to `on_cell` or `on_refused` under the number that is returned."""
        self._numbers += 1
        self._takes[self._numbers] = {"take": self._numbers, **request}
        self.tell({"take": self._takes[self._numbers]})
        return self._numbers

    def want(self, cells: dict[str, int]) -> None:
        self._wanted = cells
        self.tell({"want": cells})

    def tell(self, message: Message) -> None:
        if self._channel is not None:
            self._channel.send(message)

    def _connect(self) -> None:
        sock = socket.socket(socket.AF_UNIX)
        try:
            sock.connect(str(self._path))
        except OSError:
            sock.close()
            return
        self._channel = Channel(sock, self._heard, self._lost)
        self.tell({"want": self._wanted})
        for take in self._takes.values():
            self.tell({"take": take})

    def _lost(self) -> None:
        self._channel = None

    def _heard(self, message: Message, descriptors: list[int]) -> None:
        if "cell" in message:
            self._got_cell(message["cell"], descriptors)
        elif "refused" in message:
            self._takes.pop(message["refused"]["take"], None)
            self.on_refused(message["refused"]["take"], message["refused"]["why"])
        elif "ended" in message:
            self.on_ended(message["ended"])
        elif "memory" in message or "hello" in message:
            said: dict[str, Any] = message.get("memory") or message["hello"]
            self.sandbox = said.get("sandbox", self.sandbox)
            self.is_memory_low = said["low"]
            self.on_memory()

    def _got_cell(self, said: Message, descriptors: list[int]) -> None:
        if self._takes.pop(said["take"], None) is None:
            close_all(descriptors)
            return
        with contextlib.ExitStack() as stack:
            stack.callback(os.close, descriptors[0])
            sock = socket.socket(fileno=os.dup(descriptors[0]))
        sock.setblocking(False)
        self.on_cell(said["take"], said["cell"], said["how"], sock)
