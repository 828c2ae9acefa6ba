"""The supervisor of the cells' connections: a process of its own, started with the first cell that needs it."""

from __future__ import annotations

import asyncio
import os

from moorage.runtime.sandbox.network import setup as network
from moorage.runtime.workers.messages import Channel
from moorage.runtime.workers.sandbox import Cell

RESTART_S = 0.5


class Network:
    """Hands cells to the supervisor, and all of them again to a new one should it die."""

    def __init__(self, allow: tuple[str, ...], block: tuple[str, ...]) -> None:
        self._rules = {"allow": list(allow), "block": list(block)}
        self._channel: Channel | None = None
        self._cells: dict[int, Cell] = {}

    def add(self, cell: Cell) -> None:
        self._cells[cell.number] = cell
        if self._channel is None:
            self._channel = self._start()
        self._hand_over(self._channel, cell)

    def forget(self, cell: Cell) -> None:
        self._cells.pop(cell.number, None)

    def _hand_over(self, channel: Channel, cell: Cell) -> None:
        # The descriptors stay open here: while somebody holds them, a cell waits for the next supervisor.
        handed = [os.dup(descriptor) for descriptor in cell.network]
        channel.send({"add": cell.number, "policy": {**self._rules, "outside": cell.outside}}, *handed)

    def _start(self) -> Channel:
        _, ours = network.start_supervisor()
        return Channel(ours, lambda _message, _descriptors: None, self._lost)

    def _lost(self) -> None:
        self._channel = None
        asyncio.get_running_loop().call_later(RESTART_S, self._restart)

    def _restart(self) -> None:
        if self._channel is None and self._cells:
            self._channel = self._start()
            for cell in self._cells.values():
                self._hand_over(self._channel, cell)
