"""Pool of empty sandboxes: forked and sealed, but without a language runtime.

Every sandbox starts empty. Creating one takes half the start time of a Python sandbox, and most of that of a Node
sandbox apart from Node itself. A few are kept for calls that find no waiting sandbox of their runtime. An empty sandbox
needs little memory and fits any runtime of its zygote and any organization.
"""

from __future__ import annotations

import asyncio
import os
import socket
from collections import deque
from pathlib import Path
from typing import Any, Protocol

from moorage.runtime.workers import zygotes
from moorage.runtime.workers.code_mounts import CodeMounts
from moorage.runtime.workers.cpu.fairness import Fairness
from moorage.runtime.workers.frames import BEGIN, HEAD
from moorage.runtime.workers.memory import MemoryMonitor
from moorage.runtime.workers.messages import close_all
from moorage.runtime.workers.runtimes import Runtime
from moorage.runtime.workers.sandbox import FunctionSandbox, SandboxState
from moorage.runtime.workers.zygotes import Setup, Zygote

POOL_SIZE = 2
REFILL_DELAY_S = 0.03  # after a sandbox was taken; the call that took it is usually answered by then
RETIRED_ZYGOTE_S = 20.0  # lifetime of a replaced zygote, which finishes its pending forks meanwhile
IDLE_ZYGOTE_S = 300.0  # without a fork, longer than a start may take


class Invoker(Protocol):
    """The methods of the invoker that this module calls."""

    setup: Setup
    fairness: Fairness
    mounts: CodeMounts | None
    memory: MemoryMonitor

    def new_sandbox(
        self, runtime: str, uid: int, reserved_for: Any = None
    ) -> tuple[FunctionSandbox, socket.socket]: ...

    def take_uid(self) -> int: ...

    def has_functions(self) -> bool: ...

    def forked(self, number: int, pid: int) -> None: ...

    def fork_failed(self, number: int, why: str) -> None: ...

    def retry_forks(self, zygote: Zygote) -> None: ...

    def failed(self, sandbox: FunctionSandbox, why: str) -> None: ...


class EmptySandboxes:
    """Lets zygotes fork empty sandboxes and keeps some of them in a pool."""

    def __init__(self, invoker: Invoker) -> None:
        self._invoker = invoker
        self._setup = invoker.setup
        self._loop = asyncio.get_running_loop()
        self._pool: deque[FunctionSandbox] = deque()
        self._zygotes: dict[tuple[str, bool], Zygote] = {}  # by the name of the Python, and whether for the idle class
        self._is_refilling = False
        self._is_stopped = False

    def take(self, runtime: Runtime) -> FunctionSandbox | None:
        """Return a pooled sandbox, possibly still being forked, if it fits this runtime."""
        if self._pool and self._python_of(runtime) == self._default_python():
            return self._pool.popleft()
        return None

    def make(self, runtime: Runtime | None, reserved_for: Any = None) -> FunctionSandbox | None:
        """Start to fork a sandbox; on failure refuse the request and return None."""
        invoker = self._invoker
        try:
            sandbox, theirs = invoker.new_sandbox(runtime.name if runtime else "", invoker.take_uid(), reserved_for)
        except OSError:
            return None
        descriptors = [theirs.detach()]
        try:
            if invoker.mounts is not None:
                descriptors.append(invoker.mounts.open(sandbox.number))
            descriptors += [os.dup(output) for output in sandbox.outputs]
        except OSError as error:
            close_all(descriptors)
            invoker.failed(sandbox, f"cannot create a function sandbox: {error}")
            return None
        sandbox.is_in_idle_session = bool(reserved_for) and invoker.fairness.needs_idle_session(reserved_for[1]["org"])
        python = self._python_of(runtime) if runtime else self._default_python()
        sandbox.zygote = self._zygote_for(python, sandbox.is_in_idle_session)
        sandbox.zygote.fork(zygotes.fork_request(sandbox.number, sandbox.uid), tuple(descriptors))
        return sandbox

    def begin(self, sandbox: FunctionSandbox, runtime: Runtime, code: Path | None) -> None:
        """Start a runtime in an empty sandbox, which may still be forking.

        Raises OSError when the sandbox has ended.
        """
        sandbox.runtime, sandbox.state = runtime.name, SandboxState.STARTING
        message = zygotes.begin_message(self._setup, runtime, code)
        sandbox.socket.send(HEAD.pack(len(message) + 1, BEGIN) + message)

    def refill_later(self) -> None:
        """Refill the pool after the call that took a sandbox was answered."""
        if not self._is_refilling:
            self._is_refilling = True
            self._loop.call_later(REFILL_DELAY_S, self.refill)

    def refill(self) -> None:
        self._is_refilling = False
        if not self._setup.sandbox or self._invoker.memory.is_low or self._is_stopped:
            return
        # Without functions there is no zygote either: together they take 19 MB.
        if not self._invoker.has_functions():
            return
        while len(self._pool) < POOL_SIZE:
            sandbox = self.make(None)
            if sandbox is None:
                return
            self._pool.append(sandbox)

    def forget(self, sandbox: FunctionSandbox) -> None:
        if sandbox in self._pool:
            self._pool.remove(sandbox)

    def retire_unused(self) -> None:
        """End zygotes of the idle class that have forked nothing for a while."""
        for key, zygote in list(self._zygotes.items()):
            if zygote.is_idle and self._loop.time() - zygote.used_at > IDLE_ZYGOTE_S:
                del self._zygotes[key]
                zygote.stop()

    def is_zygote(self, pid: int) -> bool:
        return any(zygote.process.pid == pid for zygote in self._zygotes.values())

    def stop(self) -> None:
        self._is_stopped = True
        for zygote in self._zygotes.values():
            zygote.stop()

    def _python_of(self, runtime: Runtime) -> Runtime:
        """Return the Python whose zygote serves a runtime; the default for Node."""
        return runtime if runtime.language == "python" else self._default_python()

    def _default_python(self) -> Runtime:
        return next(each for each in self._setup.runtimes.values() if each.language == "python")

    def _zygote_for(self, python: Runtime, is_idle: bool) -> Zygote:
        key = (python.name, is_idle)
        zygote = self._zygotes.get(key)
        if zygote is None or zygote.forks >= zygotes.MAX_FORKS or zygote.process.poll() is not None:
            if zygote is not None:
                self._loop.call_later(RETIRED_ZYGOTE_S, zygote.stop)
            zygote = self._zygotes[key] = Zygote(self._setup, python, self._heard_zygote, is_idle=is_idle)
        return zygote

    def _heard_zygote(self, message: dict[str, Any]) -> None:
        if "pid" in message:
            self._invoker.forked(message["cell"], message["pid"])
        elif "failed" in message:
            self._invoker.fork_failed(message["cell"], message["failed"])
        elif message.get("zygote") == "gone":
            self._zygotes = {key: each for key, each in self._zygotes.items() if each is not message["of"]}
            self._invoker.retry_forks(message["of"])
