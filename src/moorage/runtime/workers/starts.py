"""The start of function sandboxes: from the fork of a zygote to the runtime that is ready."""

from __future__ import annotations

import asyncio
from collections import deque
from pathlib import Path
from typing import Any, Protocol

from moorage.runtime.workers.cpu.fairness import Fairness
from moorage.runtime.workers.empty_sandboxes import EmptySandboxes
from moorage.runtime.workers.messages import Message
from moorage.runtime.workers.sandbox import FunctionSandbox, SandboxState
from moorage.runtime.workers.zygotes import Setup

START_TIMEOUT_S = 20.0
IDLE_START_TIMEOUT_S = 120.0  # in the idle session, which gets hardly any CPU time while others need it

Take = tuple[Any, Message]  # the connection of an edge and its request for a sandbox


class Invoker(Protocol):
    """The members of the invoker that this module uses."""

    setup: Setup
    code: Path
    fairness: Fairness
    sandboxes: dict[int, FunctionSandbox]

    @property
    def empty_sandboxes(self) -> EmptySandboxes: ...

    def hand_over(self, edge: Any, request: Message, sandbox: FunctionSandbox, *, how: str) -> None: ...

    def put_back(self, sandbox: FunctionSandbox) -> None: ...

    def refill(self, runtime: str) -> None: ...

    def failed(self, sandbox: FunctionSandbox, why: str) -> None: ...

    def forget(self, sandbox: FunctionSandbox) -> None: ...


class Starts:
    def __init__(self, invoker: Invoker) -> None:
        self._invoker = invoker
        self._loop = asyncio.get_running_loop()
        self._takes: dict[str, deque[Take]] = {}  # waiting requests by runtime

    def start_for(self, edge: Any, request: Message) -> None:
        """Start a sandbox for a request: the first one of the runtime that is ready, or one of its own."""
        name = request["runtime"]
        if self._invoker.setup.sandbox and not self._invoker.fairness.needs_idle_session(request["org"]):
            self._takes.setdefault(name, deque()).append((edge, request))
            self.start(name, is_awaited=True)
        else:
            self.start(name, reserved_for=(edge, request))

    def start(
        self,
        name: str,
        *,
        reserved_for: Take | None = None,
        is_awaited: bool = False,
        is_second_try: bool = False,
    ) -> None:
        """Start a runtime; an awaited one uses a pooled empty sandbox if possible."""
        invoker = self._invoker
        runtime = invoker.setup.runtimes[name]
        sandbox = invoker.empty_sandboxes.take(runtime) if is_awaited else None
        sandbox = sandbox or invoker.empty_sandboxes.make(runtime, reserved_for)
        if sandbox is None:
            return
        sandbox.is_second_try = is_second_try
        # A sandbox gets its code as a mount once it is ready.
        code = invoker.code / reserved_for[1]["digest"] if reserved_for and not invoker.setup.sandbox else None
        try:
            invoker.empty_sandboxes.begin(sandbox, runtime, code)
        except OSError:
            self.restart(sandbox)
            return
        self._loop.add_reader(sandbox.socket, self._read_start, sandbox)
        timeout_s = IDLE_START_TIMEOUT_S if sandbox.is_in_idle_session else START_TIMEOUT_S
        self._loop.call_later(timeout_s, self._check_started, sandbox, timeout_s)

    def restart(self, sandbox: FunctionSandbox) -> None:
        """Replace a sandbox that ended during its start; the second failure is final."""
        if sandbox.is_second_try:
            self._invoker.failed(sandbox, "two function sandboxes in a row ended before they were ready")
        else:
            self._invoker.forget(sandbox)
            self.start(sandbox.runtime, reserved_for=sandbox.reserved_for, is_second_try=True)

    def awaited(self, runtime: str) -> int:
        """Return how many requests wait for a sandbox of a runtime."""
        return len(self._takes.get(runtime, ()))

    def next_take(self, sandbox: FunctionSandbox) -> Take | None:
        """Return the request of a sandbox: its own, else the oldest of its runtime."""
        if sandbox.reserved_for is not None:
            take: Take = sandbox.reserved_for
            return take
        waiting = self._takes.get(sandbox.runtime)
        return waiting.popleft() if waiting else None

    # Frames of starting sandboxes.

    def _read_start(self, sandbox: FunctionSandbox) -> None:
        """Read the frames of a starting sandbox, up to READY."""
        try:
            is_ready = sandbox.read_start_frames()
        except (BlockingIOError, InterruptedError):
            return
        except OSError:
            self._loop.remove_reader(sandbox.socket)
            return  # SIGCHLD reports the end, with the reason.
        if not is_ready:
            return
        self._loop.remove_reader(sandbox.socket)
        if not sandbox.pid:  # The process is not in its cgroup yet.
            self._loop.call_soon(self._become_ready_once_forked, sandbox)
        else:
            self._become_ready(sandbox)

    def _become_ready_once_forked(self, sandbox: FunctionSandbox) -> None:
        if sandbox.pid:
            self._become_ready(sandbox)
        elif sandbox.number in self._invoker.sandboxes:
            self._loop.call_later(0.001, self._become_ready_once_forked, sandbox)

    def _become_ready(self, sandbox: FunctionSandbox) -> None:
        if sandbox.state is not SandboxState.STARTING:
            return
        sandbox.state = SandboxState.WAITING
        take = self.next_take(sandbox)
        if take is not None:
            self._invoker.hand_over(*take, sandbox, how="made")
        else:
            self._invoker.put_back(sandbox)
        self._invoker.refill(sandbox.runtime)
        self._invoker.empty_sandboxes.refill_later()

    def _check_started(self, sandbox: FunctionSandbox, timeout_s: float) -> None:
        if sandbox.state is SandboxState.STARTING and sandbox.number in self._invoker.sandboxes:
            self._invoker.failed(sandbox, f"a function sandbox was not ready after {timeout_s:.0f} s")
