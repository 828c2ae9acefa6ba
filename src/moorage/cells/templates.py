"""Which functions have a template, and what becomes of their forks."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Any

from moorage.cells.cell import Cell, CellState
from moorage.cells.template import UNUSED_S, Key, Template, sender_of, watch_end
from moorage.sandbox.hurry import hurry

if TYPE_CHECKING:
    from moorage.cells.invoker import Invoker


class Templates:
    def __init__(self, invoker: Invoker) -> None:
        self._invoker = invoker
        self._by_key: dict[Key, Template] = {}
        self._loop = asyncio.get_running_loop()

    def add(self, _gateway: Any, asked: dict[str, Any], cell: Cell) -> None:
        key = (asked["function"], asked["revision"])
        if key in self._by_key:
            cell.kill()
            return
        try:
            self._by_key[key] = Template(key, cell, asked["load"], self._loaded)
        except OSError:
            cell.kill()

    def fork(self, gateway: Any, asked: dict[str, Any]) -> bool:
        """Fork an instance off the function's template, if it has one; return whether it has."""
        template = self._by_key.get((asked["function"], asked["revision"]))
        if template is None or not template.is_ready or template.is_doomed:
            return False
        try:
            cell, theirs = self._invoker.new_cell(template.cell.runtime, template.cell.uid)
        except OSError:
            return False
        cell.template, cell.asked = template, (gateway, asked)
        cell.limit(asked)
        cell.state = CellState.STARTING
        self._loop.add_reader(cell.socket, self._listen, cell)
        self._invoker.watch_start(cell)
        try:
            template.fork(cell, theirs)
        except OSError:
            self._invoker.failed(cell, "a template could not be forked")
        return True

    def doom(self, key: Key) -> None:
        if template := self._by_key.pop(key, None):
            template.is_doomed = True
            self._end_if_unused(template)

    def ended(self, cell: Cell) -> None:
        """A cell is gone: a fork, or a template and with it all its forks."""
        template = cell.template
        if template is not None:
            template.forks.discard(cell)
            self._end_if_unused(template)
            return
        for key, each in list(self._by_key.items()):
            if each.cell is cell:
                each.close()
                del self._by_key[key]

    def look(self) -> None:
        """Let go of templates that nobody has forked for long."""
        now = self._loop.time()
        for key, template in list(self._by_key.items()):
            if not template.forks and now - template.used_at > UNUSED_S:
                self.doom(key)

    def _loaded(self, template: Template, ok: bool) -> None:
        if not ok:
            # It has threads or connections that forks cannot share; its instances are loaded one by one.
            self._by_key.pop(template.key, None)
            template.close()
            template.cell.kill()

    def _end_if_unused(self, template: Template) -> None:
        if template.is_doomed and not template.forks:
            template.close()
            template.cell.kill()

    def _listen(self, cell: Cell) -> None:
        """Hear READY from a fork, and learn from the kernel which process it is."""
        try:
            data, pid = sender_of(cell.socket)
        except (BlockingIOError, InterruptedError):
            return
        except OSError:
            data, pid = b"", 0
        self._loop.remove_reader(cell.socket)
        if not data or not pid:
            self._invoker.failed(cell, "a fork of a template ended before it was ready")
            return
        with contextlib.suppress(OSError):
            cell.socket.setsockopt(1, 16, 0)  # SO_PASSCRED off: the gateway needs nobody's identity
        with contextlib.suppress(OSError), hurry():
            cell.group.attach(pid)
        cell.pid = pid
        try:
            watch_end(pid, lambda: self._invoker.ended(cell, None))
        except OSError:
            self._invoker.failed(cell, "a fork of a template ended before it was ready")
            return
        cell.state = CellState.TAKEN
        self._invoker.hand_over(cell)
