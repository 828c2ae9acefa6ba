"""Which functions have a template, and what becomes of their forks."""

from __future__ import annotations

import asyncio
import contextlib
import sys
from typing import TYPE_CHECKING, Any

from moorage.runtime.sandbox.hurry import hurry
from moorage.runtime.workers.frames import HEAD, READY
from moorage.runtime.workers.sandbox import Cell, CellState
from moorage.runtime.workers.snapshot import UNUSED_S, Key, Template, sender_of, watch_end

if TYPE_CHECKING:
    from moorage.runtime.workers.invoker import Invoker


FORK_S = 10.0
MOST_OF_ORG = 16  # templates of one organization; each keeps a function's whole memory
MOST_REFUSED = 10_000


class Templates:
    def __init__(self, invoker: Invoker) -> None:
        self._invoker = invoker
        self._by_key: dict[Key, Template] = {}
        self._refused: dict[Key, None] = {}  # functions whose template broke the protocol
        self._loop = asyncio.get_running_loop()

    def add(self, _gateway: Any, asked: dict[str, Any], cell: Cell) -> None:
        key = (asked["function"], asked["revision"])
        if key in self._by_key or key in self._refused or not self._make_room(asked["org"]):
            cell.kill()
            return
        try:
            self._by_key[key] = Template(key, cell, asked["load"], self._loaded, self._end)
        except OSError:
            cell.kill()

    def _make_room(self, org: str) -> bool:
        """See to it that an organization may have another template, in the place of its longest unused one."""
        own = [each for each in self._by_key.values() if each.cell.org == org]
        if len(own) < MOST_OF_ORG:
            return True
        unused = [each for each in own if not each.forks]
        if unused:
            self.doom(min(unused, key=lambda each: each.used_at).key)
        return bool(unused)

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
        self._loop.call_later(FORK_S, self._check_forked, cell)
        try:
            template.fork(cell, theirs)
        except OSError:
            self._do_without(cell, "it takes no more requests")
        return True

    def _check_forked(self, cell: Cell) -> None:
        if cell.state is CellState.STARTING:
            self._do_without(cell, f"it has not forked within {FORK_S:.0f} s")

    def _do_without(self, cell: Cell, why: str) -> None:
        """End a template that does not fork. Another cell is made for the call that waits."""
        gateway, asked = cell.asked
        cell.state = CellState.ENDING
        self._loop.remove_reader(cell.socket)
        self._end(cell.template, why)
        self._invoker.forget(cell)
        self._invoker.on_take(gateway, asked)

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
        if self._invoker.memory.is_low:
            unused = [each for each in self._by_key.values() if not each.forks]
            if unused:
                self.doom(min(unused, key=lambda each: each.used_at).key)
        for key, template in list(self._by_key.items()):
            if not template.forks and now - template.used_at > UNUSED_S:
                self.doom(key)

    def _loaded(self, template: Template) -> None:
        if template.is_doomed:
            self._end_if_unused(template)

    def _end(self, template: Template, why: str) -> None:
        """Kill a template. After a fault of its code, its function gets no other one for this revision."""
        if why and template.cell.state is not CellState.ENDING:
            print(f"moorage invoker: killed the template of function {template.key[0]}: {why}", file=sys.stderr)
            self._refused[template.key] = None
            if len(self._refused) > MOST_REFUSED:
                del self._refused[next(iter(self._refused))]
        self._by_key.pop(template.key, None)
        template.is_doomed = True
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
        if not data and cell.template.is_doomed:
            self._do_without(cell, "")
            return
        if data and data != HEAD.pack(1, READY):
            self._do_without(cell, "a fork of it sent an invalid frame")
            return
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
