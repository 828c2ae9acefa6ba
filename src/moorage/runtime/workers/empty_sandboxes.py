"""Hulls: sandboxes that are made and sealed, and wait without a runtime in them.

A cell of any runtime begins as one. Making it is half of what a Python cell takes and the better part of what a Node
cell takes beside Node itself, so a few are kept for calls that find no waiting cell. An empty one needs little memory,
and it is not yet decided whose it will be.
"""

from __future__ import annotations

import asyncio
import os
from collections import deque
from pathlib import Path
from typing import TYPE_CHECKING, Any

from moorage.runtime.workers import zygotes
from moorage.runtime.workers.frames import BEGIN, HEAD
from moorage.runtime.workers.messages import close_all
from moorage.runtime.workers.runtimes import Runtime
from moorage.runtime.workers.sandbox import Cell, CellState
from moorage.runtime.workers.zygotes import Zygote

if TYPE_CHECKING:
    from moorage.runtime.workers.invoker import Invoker

KEPT = 2
REFILL_S = 0.03  # after a cell was taken: about when whoever took it has had its answer
OLD_ZYGOTE_S = 20.0  # what was asked of it is made by then


class Hulls:
    """Asks zygotes for sandboxes, and keeps some of them."""

    def __init__(self, invoker: Invoker) -> None:
        self._invoker = invoker
        self._setup = invoker.setup
        self._loop = asyncio.get_running_loop()
        self._kept: deque[Cell] = deque()
        self._zygotes: dict[str, Zygote] = {}
        self._is_refilling = False
        self._is_stopped = False

    def take(self, runtime: Runtime) -> Cell | None:
        """Return a hull that waits, or is about to, if it can become a cell of this runtime."""
        if self._kept and self._python_of(runtime) == self._default_python():
            return self._kept.popleft()
        return None

    def make(self, runtime: Runtime | None, asked: Any = None) -> Cell | None:
        """Return a hull that is being made; where it cannot be, whoever waits for it is told."""
        invoker = self._invoker
        try:
            cell, theirs = invoker.new_cell(runtime.name if runtime else "", invoker.take_uid(), asked)
        except OSError:
            return None
        descriptors = [theirs.detach()]
        try:
            if invoker.mounts is not None:
                descriptors.append(invoker.mounts.open(cell.number))
            descriptors += [os.dup(output) for output in cell.outputs]
        except OSError as error:
            close_all(descriptors)
            invoker.failed(cell, f"cannot make a cell: {error}")
            return None
        cell.zygote = self._zygote_for(self._python_of(runtime) if runtime else self._default_python())
        cell.zygote.ask(zygotes.request(cell.number, cell.uid), tuple(descriptors))
        return cell

    def begin(self, cell: Cell, runtime: Runtime, code: Path | None) -> None:
        """Have a hull become a cell of a runtime. It need not be made yet: it will find this when it is.

        Raises OSError when it has ended.
        """
        cell.runtime, cell.state = runtime.name, CellState.STARTING
        message = zygotes.beginning(self._setup, runtime, code)
        cell.socket.send(HEAD.pack(len(message) + 1, BEGIN) + message)

    def refill_later(self) -> None:
        """Make up for what was taken when whoever took it has had its answer."""
        if not self._is_refilling:
            self._is_refilling = True
            self._loop.call_later(REFILL_S, self.refill)

    def refill(self) -> None:
        self._is_refilling = False
        if not self._setup.sandbox or self._invoker.memory.is_low or self._is_stopped:
            return
        while len(self._kept) < KEPT:
            cell = self.make(None)
            if cell is None:
                return
            self._kept.append(cell)

    def forget(self, cell: Cell) -> None:
        if cell in self._kept:
            self._kept.remove(cell)

    def is_zygote(self, pid: int) -> bool:
        return any(zygote.process.pid == pid for zygote in self._zygotes.values())

    def stop(self) -> None:
        self._is_stopped = True
        for zygote in self._zygotes.values():
            zygote.stop()

    def _python_of(self, runtime: Runtime) -> Runtime:
        """Return the Python whose zygote makes a runtime's cells; Node's are made by the default one's."""
        return runtime if runtime.language == "python" else self._default_python()

    def _default_python(self) -> Runtime:
        return next(each for each in self._setup.runtimes.values() if each.language == "python")

    def _zygote_for(self, python: Runtime) -> Zygote:
        zygote = self._zygotes.get(python.name)
        if zygote is None or zygote.forks >= zygotes.RENEW_AFTER or zygote.process.poll() is not None:
            if zygote is not None:
                self._loop.call_later(OLD_ZYGOTE_S, zygote.stop)
            zygote = self._zygotes[python.name] = Zygote(self._setup, python, self._heard_zygote)
        return zygote

    def _heard_zygote(self, message: dict[str, Any]) -> None:
        if "pid" in message:
            self._invoker.born(message["cell"], message["pid"])
        elif "failed" in message:
            self._invoker.not_born(message["cell"], message["failed"])
        elif message.get("zygote") == "gone":
            self._zygotes = {name: each for name, each in self._zygotes.items() if each is not message["of"]}
            self._invoker.ask_again(message["of"])
