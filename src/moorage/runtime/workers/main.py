"""The invoker process: `python -m moorage.runtime.workers.main`.

It reads its settings from the environment itself: importing `moorage.settings` would cost memory (see the edge's main).
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
from pathlib import Path

from moorage.core.kit.processes.process import bind_unix_socket, raise_open_files_limit, report_ready
from moorage.core.kit.records import dataclass
from moorage.runtime.sandbox import capabilities, root
from moorage.runtime.sandbox import syscalls as sys_
from moorage.runtime.sandbox.cgroups import groups as cgroups
from moorage.runtime.sandbox.usage import process_tree
from moorage.runtime.workers import zygotes
from moorage.runtime.workers.code_mounts import CodeMounts
from moorage.runtime.workers.invoker import Invoker
from moorage.runtime.workers.network_supervisor import NetworkSupervisor
from moorage.runtime.workers.runtimes import installed

SUPERVISOR = "MOORAGE_SUPERVISOR"  # PID of the supervisor, which sets this variable


@dataclass(frozen=True)
class InvokerSettings:
    data: Path
    sandbox: str  # `auto` or `off`
    allow: tuple[str, ...]
    block: tuple[str, ...]

    @property
    def socket(self) -> Path:
        return self.data / "run" / "invoker.sock"


def read_settings(environment: Mapping[str, str]) -> InvokerSettings:
    def networks(name: str) -> tuple[str, ...]:
        return tuple(part.strip() for part in environment.get(name, "").split(",") if part.strip())

    return InvokerSettings(
        Path(environment.get("MOORAGE_DATA") or ".moorage").absolute(),
        environment.get("MOORAGE_SANDBOX") or "auto",
        networks("MOORAGE_SANDBOX_ALLOW"),
        networks("MOORAGE_SANDBOX_BLOCK"),
    )


async def serve(settings: InvokerSettings) -> None:
    loop = asyncio.get_running_loop()
    report = capabilities.probe()
    sandbox = settings.sandbox != "off" and report.can_sandbox
    mounts, tree = None, ""
    if sandbox:
        tree = str(prepare(settings))
        mounts = CodeMounts(settings.data / "run" / "cells")
    groups = cgroups.find(token_of(settings.data))
    groups.sweep()
    groups.platform([os.getpid(), *supervised(os.environ)])
    setup = zygotes.Setup(
        sandbox=sandbox,
        notify=sandbox and report.can_connect,
        own_users=report.own_users,
        root=tree,
        runtimes=installed(),
        is_counted="memory" in groups.controllers,
        keeps_session="cpu" not in groups.controllers,
        supervisor=supervisor_of(os.environ),
    )
    network = NetworkSupervisor(settings.allow, settings.block) if setup.notify else None
    invoker = Invoker(setup, groups, mounts, settings.data / "code", network)
    stop = asyncio.Event()
    loop.add_signal_handler(signal.SIGCHLD, invoker.reap)
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    listener = bind_unix_socket(settings.socket)
    listener.listen(64)
    listener.setblocking(False)
    loop.add_reader(listener, lambda: accept(listener, invoker))
    watching = asyncio.create_task(invoker.run())
    report_ready(os.environ)
    await stop.wait()
    watching.cancel()
    invoker.stop()
    groups.close()
    listener.close()


def prepare(settings: InvokerSettings) -> Path:
    """Build the root file system of all sandboxes, in a private mount namespace."""
    root.take_own_mounts()
    tree = settings.data / "run" / "cellroot"
    root.build(tree, binds=zygotes.binds(installed()), files={})
    return tree


def token_of(data: Path) -> str:
    return hashlib.sha256(str(data).encode()).hexdigest()[:10]


def supervised(environment: Mapping[str, str]) -> list[int]:
    """Return the PIDs of the supervisor and its children; none without a supervisor.

    Processes that the supervisor starts later inherit its cgroup.
    """
    supervisor = supervisor_of(environment)
    return [] if supervisor is None else [supervisor, *process_tree.children(supervisor)]


def supervisor_of(environment: Mapping[str, str]) -> int | None:
    parent = os.getppid()
    return parent if environment.get(SUPERVISOR) == str(parent) else None


def accept(listener: socket.socket, invoker: Invoker) -> None:
    with contextlib.suppress(BlockingIOError, InterruptedError):
        connection, _ = listener.accept()
        invoker.connected(connection)


def main() -> None:
    raise_open_files_limit()
    sys_.prctl(sys_.PR_SET_CHILD_SUBREAPER, 1)
    try:
        asyncio.run(serve(read_settings(os.environ)))
    except OSError as error:
        sys.exit(f"moorage invoker: {error}")


if __name__ == "__main__":
    main()
