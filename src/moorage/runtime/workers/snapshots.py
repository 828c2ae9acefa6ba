"""Snapshots by function revision, and the forking of instances from them."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import sys
from typing import Any, Protocol

from moorage.runtime.sandbox.rcu import expedited_rcu
from moorage.runtime.workers.frames import HEAD, READY
from moorage.runtime.workers.memory import MemoryMonitor
from moorage.runtime.workers.sandbox import FunctionSandbox, SandboxState
from moorage.runtime.workers.snapshot import MAX_IDLE_S, Key, Snapshot, read_with_sender, watch_exit

FORK_TIMEOUT_S = 10.0
MAX_SNAPSHOTS_PER_ORG = 16  # Each keeps the whole memory of a loaded function.
MAX_REFUSED = 10_000


class Invoker(Protocol):
    """The methods of the invoker that this module calls."""

    memory: MemoryMonitor

    def new_sandbox(self, runtime: str, uid: int) -> tuple[FunctionSandbox, socket.socket]: ...

    def on_take(self, edge: Any, request: dict[str, Any]) -> None: ...

    def hand_over_fork(self, sandbox: FunctionSandbox) -> None: ...

    def forget(self, sandbox: FunctionSandbox) -> None: ...

    def failed(self, sandbox: FunctionSandbox, why: str) -> None: ...

    def ended(self, sandbox: FunctionSandbox, status: int | None) -> None: ...


class Snapshots:
    def __init__(self, invoker: Invoker) -> None:
        self._invoker = invoker
        self._by_key: dict[Key, Snapshot] = {}
        self._refused: dict[Key, None] = {}  # revisions whose snapshot broke the protocol
        self._loop = asyncio.get_running_loop()

    def add(self, request: dict[str, Any], sandbox: FunctionSandbox) -> None:
        key = (request["function"], request["revision"])
        if key in self._by_key or key in self._refused or not self._make_room(request["org"]):
            sandbox.kill()
            return
        try:
            self._by_key[key] = Snapshot(key, sandbox, request["load"], self._snapshot_loaded, self._kill)
        except OSError:
            sandbox.kill()

    def _make_room(self, org: str) -> bool:
        """Whether an organization may have another snapshot; may retire an unused one."""
        own = [each for each in self._by_key.values() if each.sandbox.org == org]
        if len(own) < MAX_SNAPSHOTS_PER_ORG:
            return True
        unused = [each for each in own if not each.forks]
        if unused:
            self.retire(min(unused, key=lambda each: each.used_at).key)
        return bool(unused)

    def fork(self, edge: Any, request: dict[str, Any]) -> bool:
        """Fork an instance from the function's snapshot; return False without one."""
        snapshot = self._by_key.get((request["function"], request["revision"]))
        if snapshot is None or not snapshot.is_ready or snapshot.is_retired:
            return False
        try:
            sandbox, theirs = self._invoker.new_sandbox(snapshot.sandbox.runtime, snapshot.sandbox.uid)
        except OSError:
            return False
        sandbox.snapshot, sandbox.reserved_for = snapshot, (edge, request)
        sandbox.limit(request)
        sandbox.state = SandboxState.STARTING
        self._loop.add_reader(sandbox.socket, self._read_start, sandbox)
        self._loop.call_later(FORK_TIMEOUT_S, self._check_forked, sandbox)
        try:
            snapshot.fork(sandbox, theirs)
        except OSError:
            self._abandon_fork(sandbox, "it does not read requests to fork")
        return True

    def _check_forked(self, sandbox: FunctionSandbox) -> None:
        if sandbox.state is SandboxState.STARTING:
            self._abandon_fork(sandbox, f"it has not forked within {FORK_TIMEOUT_S:.0f} s")

    def _abandon_fork(self, sandbox: FunctionSandbox, why: str) -> None:
        """Kill a snapshot that does not fork, and serve the waiting request without it."""
        edge, request = sandbox.reserved_for
        sandbox.state = SandboxState.ENDING
        self._loop.remove_reader(sandbox.socket)
        self._kill(sandbox.snapshot, why)
        self._invoker.forget(sandbox)
        self._invoker.on_take(edge, request)

    def retire(self, key: Key) -> None:
        if snapshot := self._by_key.pop(key, None):
            snapshot.is_retired = True
            self._kill_if_unused(snapshot)

    def ended(self, sandbox: FunctionSandbox) -> None:
        """Forget an ended sandbox: a fork, or a snapshot, whose forks end with it."""
        snapshot = sandbox.snapshot
        if snapshot is not None:
            snapshot.forks.discard(sandbox)
            self._kill_if_unused(snapshot)
            return
        for key, each in list(self._by_key.items()):
            if each.sandbox is sandbox:
                each.close()
                del self._by_key[key]

    def retire_unused(self) -> None:
        """Retire long unused snapshots, and one more while memory is low."""
        now = self._loop.time()
        if self._invoker.memory.is_low:
            unused = [each for each in self._by_key.values() if not each.forks]
            if unused:
                self.retire(min(unused, key=lambda each: each.used_at).key)
        for key, snapshot in list(self._by_key.items()):
            if not snapshot.forks and now - snapshot.used_at > MAX_IDLE_S:
                self.retire(key)

    def _snapshot_loaded(self, snapshot: Snapshot) -> None:
        if snapshot.is_retired:
            self._kill_if_unused(snapshot)

    def _kill(self, snapshot: Snapshot, why: str) -> None:
        """Kill a snapshot. With a reason, this revision gets no other snapshot."""
        if why and snapshot.sandbox.state is not SandboxState.ENDING:
            print(f"moorage invoker: killed the snapshot of function {snapshot.key[0]}: {why}", file=sys.stderr)
            self._refused[snapshot.key] = None
            if len(self._refused) > MAX_REFUSED:
                del self._refused[next(iter(self._refused))]
        self._by_key.pop(snapshot.key, None)
        snapshot.is_retired = True
        snapshot.close()
        snapshot.sandbox.kill()

    def _kill_if_unused(self, snapshot: Snapshot) -> None:
        if snapshot.is_retired and not snapshot.forks:
            snapshot.close()
            snapshot.sandbox.kill()

    def _read_start(self, sandbox: FunctionSandbox) -> None:
        """Read READY from a fork, with the PID that the kernel attaches to it."""
        try:
            data, pid = read_with_sender(sandbox.socket)
        except (BlockingIOError, InterruptedError):
            return
        except OSError:
            data, pid = b"", 0
        self._loop.remove_reader(sandbox.socket)
        if not data and sandbox.snapshot.is_retired:
            self._abandon_fork(sandbox, "")
            return
        if data and data != HEAD.pack(1, READY):
            self._abandon_fork(sandbox, "a fork of it sent an invalid frame")
            return
        if not data or not pid:
            self._invoker.failed(sandbox, "a fork of a snapshot ended before it was ready")
            return
        with contextlib.suppress(OSError):
            sandbox.socket.setsockopt(1, 16, 0)  # SO_PASSCRED off: the edge needs no credentials.
        with contextlib.suppress(OSError), expedited_rcu():
            sandbox.group.attach(pid)
        sandbox.pid = pid
        try:
            watch_exit(pid, lambda: self._invoker.ended(sandbox, None))
        except OSError:
            self._invoker.failed(sandbox, "a fork of a snapshot ended before it was ready")
            return
        sandbox.state = SandboxState.TAKEN
        self._invoker.hand_over_fork(sandbox)
