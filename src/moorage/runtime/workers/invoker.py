"""The invoker: makes cells, keeps some waiting, hands them to the function gateway and clears up after them.

It is the only process of the platform that needs rights over namespaces and control groups. A cell's calls do not pass
through it: the gateway gets one end of the cell's socket, so the data takes one hop, and either may restart alone.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
import struct
import sys
import time
from collections import deque
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from moorage.runtime.sandbox.hurry import hurry
from moorage.runtime.workers.code_mounts import CodeMounts
from moorage.runtime.workers.empty_sandboxes import REFILL_S, Hulls
from moorage.runtime.workers.fairness import Fairness
from moorage.runtime.workers.memory import Memory
from moorage.runtime.workers.messages import Channel, Message, close_all
from moorage.runtime.workers.network_supervisor import Network
from moorage.runtime.workers.sandbox import PIDS, Cell, CellState, append_only
from moorage.runtime.workers.snapshots import Templates
from moorage.runtime.workers.zygotes import Setup, Zygote

FIRST_UID = 200_000
STARTING_MEMORY_MB = 512  # of a cell that has no code yet; its function's limit replaces it
ORPHAN_GRACE_S = 5.0
START_S = 20.0


class Gateway:
    """One function gateway that is connected, and the cells it has."""

    def __init__(self, invoker: Invoker, sock: socket.socket) -> None:
        self.cells: dict[int, Cell] = {}
        self.wanted: dict[str, int] = {}
        self._invoker = invoker
        self.channel = Channel(sock, self._heard, self._lost)

    def _heard(self, message: Message, descriptors: list[int]) -> None:
        close_all(descriptors)
        for verb, argument in message.items():
            action = getattr(self._invoker, f"on_{verb}", None)
            if action is not None:
                action(self, argument)

    def _lost(self) -> None:
        self._invoker.on_gateway_lost(self)


class Invoker:
    def __init__(
        self, setup: Setup, groups: Any, mounts: CodeMounts | None, code: Path, network: Network | None
    ) -> None:
        self.setup = setup
        self.groups = groups
        self.mounts = mounts
        self.code = code
        self._network = network
        self._loop = asyncio.get_running_loop()
        self._cells: dict[int, Cell] = {}
        self._by_pid: dict[int, Cell] = {}
        self._pools: dict[str, deque[Cell]] = {}
        self._asked: dict[str, deque[tuple[Gateway, Message]]] = {}  # takes that wait for a cell to be made
        self._refilling: set[str] = set()
        self._gateways: set[Gateway] = set()
        self._numbers = int(time.time()) * 1000  # A run before this one may have left groups that cannot go yet.
        self._free_uids: deque[int] = deque()
        self._next_uid = FIRST_UID
        self._early_ends: dict[int, int] = {}
        self.fairness = Fairness()
        self.templates = Templates(self)
        self.hulls = Hulls(self)
        self.memory = Memory(self._tell_pressure, watches_cells="memory" not in groups.controllers)
        # Taking a group away waits for the kernel, and nobody else should.
        self._cleaning = ThreadPoolExecutor(1, thread_name_prefix="cleaning")

    # What gateways ask for.

    def connected(self, sock: socket.socket) -> None:
        with contextlib.suppress(OSError):
            pid, _, _ = struct.unpack("3i", sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
            self.groups.platform([pid])  # Its answers are everybody's: cells must not starve it.
        gateway = Gateway(self, sock)
        self._gateways.add(gateway)
        gateway.channel.send({"hello": {"sandbox": self.setup.sandbox, "low": self.memory.is_low}})

    def on_want(self, gateway: Gateway, wanted: dict[str, int]) -> None:
        """Keep so many cells waiting of each runtime."""
        gateway.wanted = {name: count for name, count in wanted.items() if name in self.setup.runtimes}
        for runtime in gateway.wanted:
            self._refill(runtime)
        self.hulls.refill()

    def on_take(self, gateway: Gateway, asked: Message) -> None:
        """Give a cell with the function's code in it, a waiting one if there is any."""
        runtime = asked["runtime"]
        if runtime not in self.setup.runtimes:
            gateway.channel.send({"refused": {"take": asked["take"], "why": f"{runtime} is not installed any more"}})
            return
        if self.templates.fork(gateway, asked):
            return
        pool = self._pools.get(runtime)
        if pool:
            self._give(gateway, asked, pool.popleft(), how="waiting")
            self._refill_later(runtime)
        elif self.setup.sandbox:
            self._asked.setdefault(runtime, deque()).append((gateway, asked))
            self._start(runtime, is_awaited=True)
        else:
            self._start(runtime, asked=(gateway, asked))

    def on_template(self, gateway: Gateway, asked: Message) -> None:
        """Loading this function takes long: do it once more, for its further instances to be forked off."""
        pool = self._pools.get(asked["runtime"])
        if self.setup.sandbox and pool and not self.memory.is_low:
            cell = pool.popleft()
            if self._furnish(cell, asked):
                self.templates.add(gateway, asked, cell)
            self._refill(asked["runtime"])

    def on_retire(self, gateway: Gateway, key: list[int]) -> None:
        """A function's revision is no longer in force: its template goes when its last fork does."""
        self.templates.doom((key[0], key[1]))

    def on_kill(self, gateway: Gateway, number: int) -> None:
        if cell := gateway.cells.get(number):
            cell.kill()

    def on_freeze(self, gateway: Gateway, number: int) -> None:
        cell = gateway.cells.get(number)
        if cell is not None and not cell.is_frozen and cell.state is CellState.TAKEN:
            with contextlib.suppress(OSError):
                cell.group.freeze()
                cell.is_frozen = True

    def on_thaw(self, gateway: Gateway, number: int) -> None:
        cell = gateway.cells.get(number)
        if cell is not None and cell.is_frozen:
            with contextlib.suppress(OSError):
                cell.group.thaw()
            cell.is_frozen = False

    def on_watch(self, gateway: Gateway, number: int) -> None:
        """A call of this cell takes long: see whether it computes, and let others go first if it does."""
        if cell := gateway.cells.get(number):
            self.fairness.watch(cell)

    def on_unwatch(self, gateway: Gateway, number: int) -> None:
        if cell := gateway.cells.get(number):
            self.fairness.unwatch(cell)

    def on_busy(self, gateway: Gateway, numbers: list[int]) -> None:
        """These cells worked since the last time; count what their organizations used."""
        self.fairness.count([cell for number in numbers if (cell := gateway.cells.get(number))])

    def on_gateway_lost(self, gateway: Gateway) -> None:
        """A gateway is gone. Calls that run may finish within their time; everything idle ends by itself."""
        self._gateways.discard(gateway)
        for cell in list(gateway.cells.values()):
            cell.owner = None
            if cell.is_frozen:
                cell.kill()
            else:
                self._loop.call_later(cell.timeout_ms / 1000 + ORPHAN_GRACE_S, cell.kill)

    # Making cells.

    def _give(self, gateway: Gateway, asked: Message, cell: Cell, *, how: str) -> None:
        if gateway not in self._gateways:
            self._put_back(cell) if cell.template is None else cell.kill()
            return
        if cell.template is None and not self._furnish(cell, asked):
            gateway.channel.send({"refused": {"take": asked["take"], "why": "its code cannot be read"}})
            return
        cell.owner = gateway
        gateway.cells[cell.number] = cell
        handed = os.dup(cell.socket.fileno())
        cell.socket.close()
        gateway.channel.send({"cell": {"take": asked["take"], "cell": cell.number, "how": how}}, handed)

    def hand_over(self, cell: Cell) -> None:
        """Give a cell to the one it was made for."""
        gateway, asked = cell.asked
        self._give(gateway, asked, cell, how="forked")

    def _furnish(self, cell: Cell, asked: Message) -> bool:
        """Make a cell one function's: its code, its limits, its network. From here on it is nobody else's."""
        try:
            if self.mounts is not None:
                self.mounts.put(cell.number, self.code / asked["digest"])
            cell.limit(asked)
        except OSError as error:
            print(f"moorage invoker: a cell could not be furnished: {error}", file=sys.stderr, flush=True)
            cell.kill()
            return False
        if self._network is not None and cell.network:
            cell.outside = asked["network"] != "none"
            self._network.add(cell)
        return True

    def _put_back(self, cell: Cell) -> None:
        if self.setup.sandbox:
            self._pools.setdefault(cell.runtime, deque()).append(cell)
        else:
            cell.kill()

    def _refill_later(self, runtime: str) -> None:
        """Fill the pool when whoever just took a cell has had its answer: making one keeps a processor busy."""
        if runtime not in self._refilling:
            self._refilling.add(runtime)
            self._loop.call_later(REFILL_S, self._refill, runtime)

    def _refill(self, runtime: str) -> None:
        """Keep the pool at the size that gateways want. Without a sandbox a cell has its code from the start."""
        self._refilling.discard(runtime)
        if not self.setup.sandbox or self.memory.is_low:
            return
        wanted = max((gateway.wanted.get(runtime, 0) for gateway in self._gateways), default=0)
        pool = self._pools.setdefault(runtime, deque())
        starting = sum(cell.state is CellState.STARTING and cell.runtime == runtime for cell in self._cells.values())
        missing = wanted - len(pool) - max(0, starting - len(self._asked.get(runtime, ())))
        for _ in range(missing):
            self._start(runtime)

    def new_cell(self, runtime: str, uid: int, asked: Any = None) -> tuple[Cell, socket.socket]:
        """Return a cell that has everything but a process, and the socket for that.

        Raises OSError, when whoever asked for it has been told.
        """
        self._numbers += 1
        ours, theirs = socket.socketpair()
        ours.setblocking(False)
        cell = Cell(self._numbers, runtime, uid, ours, tuple(append_only(name) for name in ("out", "err", "journal")))
        cell.asked = asked
        self._cells[cell.number] = cell
        try:
            cell.group = self.groups.create(f"cell-{cell.number}")
            cell.group.limit(memory_mb=STARTING_MEMORY_MB, pids=PIDS, weight=100)
        except OSError as error:
            theirs.close()
            self.failed(cell, f"cannot make a cell: {error}")
            raise
        return cell, theirs

    def _start(
        self,
        name: str,
        *,
        asked: tuple[Gateway, Message] | None = None,
        is_awaited: bool = False,
        is_second_try: bool = False,
    ) -> None:
        """Start a cell of a runtime, in an empty hull if somebody waits for it and there is one."""
        runtime = self.setup.runtimes[name]
        cell = self.hulls.take(runtime) if is_awaited else None
        cell = cell or self.hulls.make(runtime, asked)
        if cell is None:
            return
        cell.is_second_try = is_second_try
        try:
            self.hulls.begin(cell, runtime, self.code / asked[1]["digest"] if asked else None)
        except OSError:
            self._try_again(cell)
            return
        self._loop.add_reader(cell.socket, self._listen, cell)
        self.watch_start(cell)

    def ask_again(self, zygote: Zygote) -> None:
        """A zygote is gone: ask another one for the cells that it has not made."""
        for cell in [each for each in self._cells.values() if each.zygote is zygote and not each.pid]:
            if cell.state is CellState.EMPTY:
                self.forget(cell)
            elif cell.state is CellState.STARTING:
                self._try_again(cell)

    def _try_again(self, cell: Cell) -> None:
        """Make another cell in the place of one that ended before it was anything."""
        if cell.is_second_try:
            self.failed(cell, "cells end before they are made")
        else:
            self.forget(cell)
            self._start(cell.runtime, asked=cell.asked, is_second_try=True)

    def not_born(self, number: int, why: str) -> None:
        if cell := self._cells.get(number):
            self.failed(cell, why)

    def born(self, number: int, pid: int) -> None:
        cell = self._cells.get(number)
        if cell is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
            return
        cell.pid = pid
        self._by_pid[pid] = cell
        with contextlib.suppress(OSError), hurry():
            cell.group.attach(pid)
        if pid in self._early_ends:
            self.ended(cell, self._early_ends.pop(pid))

    def _listen(self, cell: Cell) -> None:
        """Wait for a starting cell to say that it is ready. It cannot be before its process is in its group."""
        try:
            is_ready = cell.listen()
        except (BlockingIOError, InterruptedError):
            return
        except OSError:
            self._loop.remove_reader(cell.socket)
            return  # Its end is reported by the kernel, with the reason.
        if not is_ready:
            return
        self._loop.remove_reader(cell.socket)
        if not cell.pid:
            self._loop.call_soon(self._is_ready_when_born, cell)
        else:
            self._is_ready(cell)

    def _is_ready_when_born(self, cell: Cell) -> None:
        if cell.pid:
            self._is_ready(cell)
        elif cell.number in self._cells:
            self._loop.call_later(0.001, self._is_ready_when_born, cell)

    def _is_ready(self, cell: Cell) -> None:
        if cell.state is not CellState.STARTING:
            return
        cell.state = CellState.WAITING
        asked = self._next_asked(cell)
        if asked is not None:
            self._give(*asked, cell, how="made")
        else:
            self._put_back(cell)
        self._refill(cell.runtime)
        self.hulls.refill_later()

    def watch_start(self, cell: Cell) -> None:
        """See to it that a cell is ready in time, or given up."""
        self._loop.call_later(START_S, self._check_started, cell)

    def _check_started(self, cell: Cell) -> None:
        if cell.state is CellState.STARTING and cell.number in self._cells:
            self.failed(cell, f"the cell was not ready after {START_S:.0f} s")

    def failed(self, cell: Cell, why: str) -> None:
        """A cell could not be made. Whoever waits for one of its kind is told."""
        print(f"moorage invoker: {why}", file=sys.stderr, flush=True)
        said = cell.output()
        if said["err"] or said["out"]:
            print(f"moorage invoker: it said: {(said['err'] or said['out']).strip()}", file=sys.stderr, flush=True)
        cell.kill()
        self.forget(cell)
        asked = self._next_asked(cell)
        if asked is not None:
            gateway, message = asked
            gateway.channel.send({"refused": {"take": message["take"], "why": "no sandbox could be made for it"}})

    def _next_asked(self, cell: Cell) -> tuple[Gateway, Message] | None:
        """Return who a cell is for: the one it was made for, else whoever waits longest for one of its kind."""
        if cell.asked is not None:
            made_for: tuple[Gateway, Message] = cell.asked
            return made_for
        waiting = self._asked.get(cell.runtime)
        return waiting.popleft() if waiting else None

    # Ends.

    def reap(self) -> None:
        """Collect every process that ended; cells are our children because they outlived those who forked them."""
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            cell = self._by_pid.pop(pid, None)
            if cell is not None:
                self.ended(cell, status)
            elif not self.hulls.is_zygote(pid):
                self._early_ends[pid] = status
                if len(self._early_ends) > 1000:
                    self._early_ends.pop(next(iter(self._early_ends)))

    def ended(self, cell: Cell, status: int | None) -> None:
        """A cell's process is gone; only of our own children do we know how it ended."""
        if cell.number not in self._cells:
            return
        self.templates.ended(cell)
        if cell.state is CellState.STARTING and not cell.is_second_try and cell.template is None:
            self._try_again(cell)  # Its empty sandbox may have been killed just before it was taken.
            return
        if cell.state in (CellState.EMPTY, CellState.STARTING):
            self.failed(cell, f"a cell ended while it started ({describe(status)})")
            return
        oom = cell.oom or (cell.group is not None and _oom_kills(cell.group) > 0)
        if cell.owner is not None:
            cell.owner.cells.pop(cell.number, None)
            code = None if status is None else os.waitstatus_to_exitcode(status)
            told = {"cell": cell.number, "code": code, "oom": oom, "memory_mb": cell.memory_mb, **cell.output()}
            cell.owner.channel.send({"ended": told})
        self.forget(cell)
        if cell.state is CellState.WAITING:
            self._refill(cell.runtime)

    def forget(self, cell: Cell) -> None:
        self._cells.pop(cell.number, None)
        self._by_pid.pop(cell.pid, None)
        cell.pid = 0  # From now on it may be somebody else's.
        pool = self._pools.get(cell.runtime)
        if pool and cell in pool:
            pool.remove(cell)
        self.hulls.forget(cell)
        if cell.state is CellState.STARTING or cell.socket.fileno() >= 0:
            with contextlib.suppress(ValueError, OSError):
                self._loop.remove_reader(cell.socket)
        self.fairness.forget(cell)
        if self._network is not None:
            self._network.forget(cell)
        cell.close()
        if self.mounts is not None:
            self.mounts.remove(cell.number)
        self._cleaning.submit(self._clean, cell)

    def _clean(self, cell: Cell) -> None:
        with contextlib.suppress(OSError):
            if cell.group is not None:
                cell.group.kill()
                cell.group.remove()
        if cell.uid and cell.template is None:
            self._free_uids.append(cell.uid)

    def take_uid(self) -> int:
        """Return a user id that no living cell has; the one that has rested longest comes first."""
        if os.geteuid() != 0 or not self.setup.sandbox or not self.setup.own_users:
            return 0
        if len(self._free_uids) > 1000:
            return self._free_uids.popleft()
        self._next_uid += 1
        return self._next_uid

    # Time passes.

    async def run(self) -> None:
        """Watch memory and computing time until cancelled."""
        while True:
            await asyncio.sleep(0.1)
            self.memory.look(self._cells.values())
            self.fairness.look()
            self.templates.look()

    def _tell_pressure(self, is_low: bool) -> None:
        for gateway in self._gateways:
            gateway.channel.send({"memory": {"low": is_low}})
        if not is_low:
            for runtime in self._pools:
                self._refill(runtime)
            self.hulls.refill()

    def stop(self) -> None:
        for cell in list(self._cells.values()):
            cell.kill()
        self.hulls.stop()
        for cell in list(self._cells.values()):
            self.forget(cell)
        self._cleaning.shutdown()


def describe(status: int | None) -> str:
    if status is None:
        return "nobody knows how"
    code = os.waitstatus_to_exitcode(status)
    return f"signal {-code}" if code < 0 else f"exit code {code}"


def _oom_kills(group: Any) -> int:
    try:
        return int(group.oom_kills())
    except OSError:
        return 0
