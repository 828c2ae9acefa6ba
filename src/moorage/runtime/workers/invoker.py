"""The invoker: creates sandboxes, hands them to the edge and cleans up.

It is the only process of the platform that needs privileges over namespaces and cgroups. Calls do not pass through it:
the edge receives one end of the worker's socket, so that a call takes one hop, and either process can restart alone.
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

from moorage.core.kit.processes import sessions
from moorage.runtime.sandbox.cgroups import policies
from moorage.runtime.sandbox.rcu import expedited_rcu
from moorage.runtime.workers.code_mounts import CodeMounts
from moorage.runtime.workers.cpu.fairness import Fairness
from moorage.runtime.workers.cpu.rescheduler import Rescheduler
from moorage.runtime.workers.empty_sandboxes import REFILL_DELAY_S, EmptySandboxes
from moorage.runtime.workers.memory import MemoryMonitor, oom_kills
from moorage.runtime.workers.messages import Channel, Message, close_all
from moorage.runtime.workers.network_supervisor import NetworkSupervisor
from moorage.runtime.workers.sandbox import PIDS, FunctionSandbox, SandboxState, append_only, describe_exit
from moorage.runtime.workers.snapshots import Snapshots
from moorage.runtime.workers.starts import Starts
from moorage.runtime.workers.zygotes import Setup, Zygote

FIRST_UID = 200_000
STARTING_MEMORY_MB = 512  # limit of a sandbox without code; the limit of its function replaces it
ORPHAN_GRACE_S = 5.0
CHECK_INTERVAL_S = 0.1  # of memory, CPU shares and snapshots while sandboxes run
IDLE_CHECK_INTERVAL_S = 1.0


class EdgeConnection:
    """A connected edge process and the sandboxes that it owns.

    Each key of a message names a method `on_<key>` of the invoker.
    """

    def __init__(self, invoker: Invoker, sock: socket.socket) -> None:
        self.sandboxes: dict[int, FunctionSandbox] = {}
        self.wanted: dict[str, int] = {}
        self._invoker = invoker
        self.channel = Channel(sock, self._handle_message, self._disconnected)

    def _handle_message(self, message: Message, descriptors: list[int]) -> None:
        close_all(descriptors)
        for verb, argument in message.items():
            action = getattr(self._invoker, f"on_{verb}", None)
            if action is not None:
                action(self, argument)

    def _disconnected(self) -> None:
        self._invoker.edge_disconnected(self)


class Invoker:
    def __init__(
        self, setup: Setup, groups: Any, mounts: CodeMounts | None, code: Path, network: NetworkSupervisor | None
    ) -> None:
        self.setup = setup
        self.groups = groups
        self.mounts = mounts
        self.code = code
        self._network = network
        self._loop = asyncio.get_running_loop()
        self.sandboxes: dict[int, FunctionSandbox] = {}
        self._resumed = asyncio.Event()  # a sandbox was handed over or thawed
        self._by_pid: dict[int, FunctionSandbox] = {}
        self._pools: dict[str, deque[FunctionSandbox]] = {}
        self._refilling: set[str] = set()
        self._edges: set[EdgeConnection] = set()
        self._numbers = int(time.time()) * 1000  # An earlier invoker may have left cgroups that are still in use.
        self._free_uids: deque[int] = deque()
        self._next_uid = FIRST_UID
        self._early_ends: dict[int, int] = {}
        self.fairness = Fairness(
            Rescheduler(setup.supervisor if setup.keeps_session else None),
            can_leave_idle=policies.can_leave_idle(groups.controllers),
            has_idle_session=setup.keeps_session and sessions.have_weights(),
            call_soon=self._loop.call_soon,
        )
        self.snapshots = Snapshots(self)
        self.empty_sandboxes = EmptySandboxes(self)
        self.starts = Starts(self)
        self.memory = MemoryMonitor(self._report_pressure, watches_sandboxes="memory" not in groups.controllers)
        # Removing a cgroup blocks in the kernel, so it runs in a thread.
        self._cleaning = ThreadPoolExecutor(1, thread_name_prefix="cleaning")

    # Messages of the edge.

    def connected(self, sock: socket.socket) -> None:
        with contextlib.suppress(OSError):
            pid, _, _ = struct.unpack("3i", sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
            self.groups.platform([pid])  # Sandboxes must not take the edge's CPU.
        edge = EdgeConnection(self, sock)
        self._edges.add(edge)
        edge.channel.send({"hello": {"sandbox": self.setup.sandbox, "low": self.memory.is_low}})

    def on_want(self, edge: EdgeConnection, wanted: dict[str, int]) -> None:
        """Set the number of waiting sandboxes per runtime."""
        edge.wanted = {name: count for name, count in wanted.items() if name in self.setup.runtimes}
        for runtime in edge.wanted:
            self.refill(runtime)
        self.empty_sandboxes.refill()

    def has_functions(self) -> bool:
        return any(edge.wanted for edge in self._edges)

    def on_take(self, edge: EdgeConnection, request: Message) -> None:
        """Hand over a sandbox with the function's code, a waiting one if there is any."""
        runtime = request["runtime"]
        if runtime not in self.setup.runtimes:
            edge.channel.send({"refused": {"take": request["take"], "why": f"{runtime} is not installed any more"}})
            return
        # Snapshots and the pool are in the session of all other organizations.
        needs_own = self.fairness.needs_idle_session(request["org"])
        if not needs_own and self.snapshots.fork(edge, request):
            return
        pool = self._pools.get(runtime)
        if pool and not needs_own:
            self.hand_over(edge, request, pool.popleft(), how="waiting")
            self._refill_later(runtime)
        else:
            self.starts.start_for(edge, request)

    def on_template(self, edge: EdgeConnection, request: Message) -> None:
        """Load a slow function once more, as the snapshot for further instances."""
        pool = self._pools.get(request["runtime"])
        if self.setup.sandbox and pool and not self.memory.is_low:
            sandbox = pool.popleft()
            if self._prepare(sandbox, request):
                self.snapshots.add(request, sandbox)
            self.refill(request["runtime"])

    def on_retire(self, edge: EdgeConnection, key: list[int]) -> None:
        """End the snapshot of a replaced revision once its last fork has ended."""
        self.snapshots.retire((key[0], key[1]))

    def on_kill(self, edge: EdgeConnection, number: int) -> None:
        if sandbox := edge.sandboxes.get(number):
            sandbox.kill()

    def on_freeze(self, edge: EdgeConnection, number: int) -> None:
        sandbox = edge.sandboxes.get(number)
        if sandbox is not None and not sandbox.is_frozen and sandbox.state is SandboxState.TAKEN:
            with contextlib.suppress(OSError):
                sandbox.group.freeze()
                sandbox.is_frozen = True

    def on_thaw(self, edge: EdgeConnection, number: int) -> None:
        sandbox = edge.sandboxes.get(number)
        if sandbox is not None and sandbox.is_frozen:
            with contextlib.suppress(OSError):
                sandbox.group.thaw()
            sandbox.is_frozen = False
            self._resumed.set()
            self.fairness.count([sandbox])

    def on_watch(self, edge: EdgeConnection, number: int) -> None:
        """Move a sandbox with a long call into the idle class if the call is CPU-bound."""
        if sandbox := edge.sandboxes.get(number):
            self.fairness.watch(sandbox)

    def on_unwatch(self, edge: EdgeConnection, number: int) -> None:
        if sandbox := edge.sandboxes.get(number):
            self.fairness.unwatch(sandbox)

    def on_busy(self, edge: EdgeConnection, numbers: list[int]) -> None:
        """Charge the CPU time of sandboxes that were busy to their organizations."""
        self.fairness.count([sandbox for number in numbers if (sandbox := edge.sandboxes.get(number))])

    def edge_disconnected(self, edge: EdgeConnection) -> None:
        """Kill the edge's sandboxes after their timeout; idle workers exit at once."""
        self._edges.discard(edge)
        for sandbox in list(edge.sandboxes.values()):
            sandbox.owner = None
            if sandbox.is_frozen:
                sandbox.kill()
            else:
                self._loop.call_later(sandbox.timeout_ms / 1000 + ORPHAN_GRACE_S, sandbox.kill)

    # Creating sandboxes.

    def hand_over(self, edge: EdgeConnection, request: Message, sandbox: FunctionSandbox, *, how: str) -> None:
        if edge not in self._edges:
            self.put_back(sandbox) if sandbox.snapshot is None else sandbox.kill()
            return
        if sandbox.snapshot is None and not self._prepare(sandbox, request):
            edge.channel.send({"refused": {"take": request["take"], "why": "its code cannot be read"}})
            return
        self.fairness.admit(sandbox)
        sandbox.owner = edge
        edge.sandboxes[sandbox.number] = sandbox
        self._resumed.set()
        descriptor = os.dup(sandbox.socket.fileno())
        sandbox.socket.close()
        edge.channel.send({"cell": {"take": request["take"], "cell": sandbox.number, "how": how}}, descriptor)
        if self.fairness.is_misplaced(sandbox):  # Its organization changed its class while the sandbox started.
            sandbox.replace()

    def hand_over_fork(self, sandbox: FunctionSandbox) -> None:
        edge, request = sandbox.reserved_for
        self.hand_over(edge, request, sandbox, how="forked")

    def _prepare(self, sandbox: FunctionSandbox, request: Message) -> bool:
        """Assign a sandbox to a function for good: mount code, set limits, network."""
        try:
            if self.mounts is not None:
                self.mounts.put(sandbox.number, self.code / request["digest"])
            sandbox.limit(request)
        except OSError as error:
            print(f"moorage invoker: cannot prepare a function sandbox: {error}", file=sys.stderr, flush=True)
            sandbox.kill()
            return False
        if self._network is not None and sandbox.network:
            sandbox.outside = request["network"] != "none"
            self._network.add(sandbox)
        return True

    def put_back(self, sandbox: FunctionSandbox) -> None:
        if self.setup.sandbox and not sandbox.is_in_idle_session:
            self._pools.setdefault(sandbox.runtime, deque()).append(sandbox)
        else:
            sandbox.kill()

    def _refill_later(self, runtime: str) -> None:
        """Refill the pool after the call was answered: a start keeps a CPU busy."""
        if runtime not in self._refilling:
            self._refilling.add(runtime)
            self._loop.call_later(REFILL_DELAY_S, self.refill, runtime)

    def refill(self, runtime: str) -> None:
        """Fill the pool to the wanted size; unsandboxed workers are not pooled."""
        self._refilling.discard(runtime)
        if not self.setup.sandbox or self.memory.is_low:
            return
        wanted = max((edge.wanted.get(runtime, 0) for edge in self._edges), default=0)
        pool = self._pools.setdefault(runtime, deque())
        own = (each for each in self.sandboxes.values() if each.runtime == runtime)
        starting = sum(each.state is SandboxState.STARTING and each.reserved_for is None for each in own)
        missing = wanted - len(pool) - max(0, starting - self.starts.awaited(runtime))
        for _ in range(missing):
            self.starts.start(runtime)

    def new_sandbox(self, runtime: str, uid: int, reserved_for: Any = None) -> tuple[FunctionSandbox, socket.socket]:
        """Return a sandbox without a process, and the socket for that process.

        Raises OSError after the waiting request was refused.
        """
        self._numbers += 1
        ours, theirs = socket.socketpair()
        ours.setblocking(False)
        outputs = tuple(append_only(name) for name in ("out", "err", "journal"))
        sandbox = FunctionSandbox(self._numbers, runtime, uid, ours, outputs, reserved_for=reserved_for)
        self.sandboxes[sandbox.number] = sandbox
        try:
            sandbox.group = self.groups.create(f"cell-{sandbox.number}")
            sandbox.group.limit(memory_mb=STARTING_MEMORY_MB, pids=PIDS, weight=100)
        except OSError as error:
            theirs.close()
            self.failed(sandbox, f"cannot create a function sandbox: {error}")
            raise
        return sandbox, theirs

    def retry_forks(self, zygote: Zygote) -> None:
        """Repeat the pending forks of a dead zygote with another one."""
        for sandbox in [each for each in self.sandboxes.values() if each.zygote is zygote and not each.pid]:
            if sandbox.state is SandboxState.EMPTY:
                self.forget(sandbox)
            elif sandbox.state is SandboxState.STARTING:
                self.starts.restart(sandbox)

    def fork_failed(self, number: int, why: str) -> None:
        if sandbox := self.sandboxes.get(number):
            self.failed(sandbox, why)

    def forked(self, number: int, pid: int) -> None:
        sandbox = self.sandboxes.get(number)
        if sandbox is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
            return
        sandbox.pid = pid
        self._by_pid[pid] = sandbox
        with contextlib.suppress(OSError), expedited_rcu():
            sandbox.group.attach(pid)
        if pid in self._early_ends:
            self.ended(sandbox, self._early_ends.pop(pid))

    def failed(self, sandbox: FunctionSandbox, why: str) -> None:
        """Discard a sandbox that could not start, and refuse its waiting request."""
        print(f"moorage invoker: {why}", file=sys.stderr, flush=True)
        output = sandbox.output()
        if text := (output["err"] or output["out"]).strip():
            print(f"moorage invoker: output of the sandbox: {text}", file=sys.stderr, flush=True)
        sandbox.kill()
        self.forget(sandbox)
        take = self.starts.next_take(sandbox)
        if take is not None:
            edge, request = take
            edge.channel.send({"refused": {"take": request["take"], "why": "no sandbox could be made for it"}})

    # Sandboxes end.

    def reap(self) -> None:
        """Reap child processes: sandboxes too, because of CLONE_PARENT."""
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            sandbox = self._by_pid.pop(pid, None)
            if sandbox is not None:
                self.ended(sandbox, status)
            elif not self.empty_sandboxes.is_zygote(pid):
                self._early_ends[pid] = status
                if len(self._early_ends) > 1000:
                    del self._early_ends[next(iter(self._early_ends))]

    def ended(self, sandbox: FunctionSandbox, status: int | None) -> None:
        """Report the end of a sandbox's process; forks of snapshots have no exit status."""
        if sandbox.number not in self.sandboxes:
            return
        self.snapshots.ended(sandbox)
        if sandbox.state is SandboxState.STARTING and not sandbox.is_second_try and sandbox.snapshot is None:
            self.starts.restart(sandbox)  # A pooled empty sandbox may have been killed just before it was taken.
            return
        if sandbox.state in (SandboxState.EMPTY, SandboxState.STARTING):
            self.failed(sandbox, f"a function sandbox ended while it started ({describe_exit(status)})")
            return
        oom = sandbox.oom or (sandbox.group is not None and oom_kills(sandbox.group) > 0)
        if sandbox.owner is not None:
            sandbox.owner.sandboxes.pop(sandbox.number, None)
            code = None if status is None else os.waitstatus_to_exitcode(status)
            end = {"cell": sandbox.number, "code": code, "oom": oom, "memory_mb": sandbox.memory_mb, **sandbox.output()}
            sandbox.owner.channel.send({"ended": end})
        self.forget(sandbox)
        if sandbox.state is SandboxState.WAITING:
            self.refill(sandbox.runtime)

    def forget(self, sandbox: FunctionSandbox) -> None:
        self.sandboxes.pop(sandbox.number, None)
        self._by_pid.pop(sandbox.pid, None)
        sandbox.pid = 0  # The kernel may reuse the PID from now on.
        if sandbox in (pool := self._pools.get(sandbox.runtime, deque())):
            pool.remove(sandbox)
        self.empty_sandboxes.forget(sandbox)
        if sandbox.state is SandboxState.STARTING or sandbox.socket.fileno() >= 0:
            with contextlib.suppress(ValueError, OSError):
                self._loop.remove_reader(sandbox.socket)
        self.fairness.forget(sandbox)
        if self._network is not None:
            self._network.forget(sandbox)
        sandbox.close()
        if self.mounts is not None:
            self.mounts.remove(sandbox.number)
        self._cleaning.submit(self._clean, sandbox)

    def _clean(self, sandbox: FunctionSandbox) -> None:
        with contextlib.suppress(OSError):
            if sandbox.group is not None:
                sandbox.group.kill()
                sandbox.group.remove()
        if sandbox.uid and sandbox.snapshot is None:
            self._free_uids.append(sandbox.uid)

    def take_uid(self) -> int:
        """Return an unused user id; ids are reused in the order of their release."""
        if os.geteuid() != 0 or not self.setup.sandbox or not self.setup.own_users:
            return 0
        if len(self._free_uids) > 1000:
            return self._free_uids.popleft()
        self._next_uid += 1
        return self._next_uid

    # Periodic checks.

    async def run(self) -> None:
        """Check memory, CPU shares and idle snapshots until cancelled."""
        while True:
            await self._pause()
            self.memory.check(self.sandboxes.values())
            self.fairness.check()
            self.snapshots.retire_unused()
            self.empty_sandboxes.retire_unused()

    async def _pause(self) -> None:
        """Wait for the next check: longer while no sandbox can run code."""
        running = (each for each in self.sandboxes.values() if each.state is SandboxState.TAKEN and not each.is_frozen)
        if self.memory.is_low or any(running):
            await asyncio.sleep(CHECK_INTERVAL_S)
            return
        self._resumed.clear()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(IDLE_CHECK_INTERVAL_S):
                await self._resumed.wait()

    def _report_pressure(self, is_low: bool) -> None:
        for edge in self._edges:
            edge.channel.send({"memory": {"low": is_low}})
        if not is_low:
            for runtime in self._pools:
                self.refill(runtime)
            self.empty_sandboxes.refill()

    def stop(self) -> None:
        self.fairness.stop()
        for sandbox in list(self.sandboxes.values()):
            sandbox.kill()
        self.empty_sandboxes.stop()
        for sandbox in list(self.sandboxes.values()):
            self.forget(sandbox)
        self._cleaning.shutdown()
