"""Client of the process that allows or denies connections of sandboxes."""

from __future__ import annotations

import asyncio
import os

from moorage.runtime.sandbox.network import setup as network
from moorage.runtime.workers.messages import Channel
from moorage.runtime.workers.sandbox import FunctionSandbox

RESTART_DELAY_S = 0.5


class NetworkSupervisor:
    """Registers sandboxes with the supervisor; starts it, also after a crash."""

    def __init__(self, allow: tuple[str, ...], block: tuple[str, ...]) -> None:
        self._rules = {"allow": list(allow), "block": list(block)}
        self._channel: Channel | None = None
        self._sandboxes: dict[int, FunctionSandbox] = {}

    def add(self, sandbox: FunctionSandbox) -> None:
        self._sandboxes[sandbox.number] = sandbox
        if self._channel is None:
            self._channel = self._start()
        self._hand_over(self._channel, sandbox)

    def forget(self, sandbox: FunctionSandbox) -> None:
        self._sandboxes.pop(sandbox.number, None)

    def _hand_over(self, channel: Channel, sandbox: FunctionSandbox) -> None:
        # Our copies stay open: system calls of the sandbox then wait for the next supervisor instead of failing.
        duplicates = [os.dup(descriptor) for descriptor in sandbox.network]
        channel.send({"add": sandbox.number, "policy": {**self._rules, "outside": sandbox.outside}}, *duplicates)

    def _start(self) -> Channel:
        _, ours = network.start_supervisor()
        return Channel(ours, lambda _message, _descriptors: None, self._disconnected)

    def _disconnected(self) -> None:
        self._channel = None
        asyncio.get_running_loop().call_later(RESTART_DELAY_S, self._restart)

    def _restart(self) -> None:
        if self._channel is None and self._sandboxes:
            self._channel = self._start()
            for sandbox in self._sandboxes.values():
                self._hand_over(self._channel, sandbox)
