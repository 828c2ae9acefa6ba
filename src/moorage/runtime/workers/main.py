"""The invoker's process: `python -m moorage.runtime.workers.main`.

It reads its few settings itself, for the same reason as the function gateway: what it imports stays in memory.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import os
import signal
import socket
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from moorage.core.kit.process import bind_locally, open_many, say_ready
from moorage.runtime.sandbox import capabilities, root
from moorage.runtime.sandbox import syscalls as sys_
from moorage.runtime.sandbox.cgroups import groups as cgroups
from moorage.runtime.sandbox.usage import process_tree
from moorage.runtime.workers import zygotes
from moorage.runtime.workers.code_mounts import CodeMounts
from moorage.runtime.workers.invoker import Invoker
from moorage.runtime.workers.network_supervisor import Network
from moorage.runtime.workers.runtimes import installed

SUPERVISOR = "MOORAGE_SUPERVISOR"  # the process id of the supervisor, which sets it


@dataclass(frozen=True)
class Place:
    data: Path
    sandbox: str  # `auto` or `off`
    allow: tuple[str, ...]
    block: tuple[str, ...]

    @property
    def socket(self) -> Path:
        return self.data / "run" / "invoker.sock"


def read_place(environment: Mapping[str, str]) -> Place:
    def networks(name: str) -> tuple[str, ...]:
        return tuple(part.strip() for part in environment.get(name, "").split(",") if part.strip())

    return Place(
        Path(environment.get("MOORAGE_DATA") or ".moorage").absolute(),
        environment.get("MOORAGE_SANDBOX") or "auto",
        networks("MOORAGE_SANDBOX_ALLOW"),
        networks("MOORAGE_SANDBOX_BLOCK"),
    )


async def serve(place: Place) -> None:
    loop = asyncio.get_running_loop()
    report = capabilities.probe()
    sandbox = place.sandbox != "off" and report.can_sandbox
    mounts, tree = None, ""
    if sandbox:
        tree = str(prepare(place))
        mounts = CodeMounts(place.data / "run" / "cells")
    groups = cgroups.find(token_of(place.data))
    groups.sweep()
    groups.platform([os.getpid(), *supervised(os.environ)])
    setup = zygotes.Setup(
        sandbox=sandbox,
        notify=sandbox and report.can_connect,
        own_users=report.own_users,
        root=tree,
        runtimes=installed(),
        is_counted="memory" in groups.controllers,
    )
    network = Network(place.allow, place.block) if setup.notify else None
    invoker = Invoker(setup, groups, mounts, place.data / "code", network)
    stop = asyncio.Event()
    loop.add_signal_handler(signal.SIGCHLD, invoker.reap)
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    listener = bind_locally(place.socket)
    listener.listen(64)
    listener.setblocking(False)
    loop.add_reader(listener, lambda: accept(listener, invoker))
    watching = asyncio.create_task(invoker.run())
    say_ready(os.environ)
    await stop.wait()
    watching.cancel()
    invoker.stop()
    groups.close()
    listener.close()


def prepare(place: Place) -> Path:
    """Build the tree that cells start from, in a mount namespace of our own."""
    root.take_own_mounts()
    tree = place.data / "run" / "cellroot"
    root.build(tree, binds=zygotes.binds(installed()), files={})
    return tree


def token_of(data: Path) -> str:
    return hashlib.sha256(str(data).encode()).hexdigest()[:10]


def supervised(environment: Mapping[str, str]) -> list[int]:
    """Return the supervisor and all that it has started; none where something else has started this process.

    A process that the supervisor starts later, or again, inherits the group from it.
    """
    supervisor = os.getppid()
    if environment.get(SUPERVISOR) != str(supervisor):
        return []
    return [supervisor, *process_tree.children(supervisor)]


def accept(listener: socket.socket, invoker: Invoker) -> None:
    with contextlib.suppress(BlockingIOError, InterruptedError):
        connection, _ = listener.accept()
        invoker.connected(connection)


def main() -> None:
    open_many()
    sys_.prctl(sys_.PR_SET_CHILD_SUBREAPER, 1)
    try:
        asyncio.run(serve(read_place(os.environ)))
    except OSError as error:
        sys.exit(f"moorage invoker: {error}")


if __name__ == "__main__":
    main()
