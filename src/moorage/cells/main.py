"""The invoker's process: `python -m moorage.cells.main`.

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
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from moorage.cells import zygotes
from moorage.cells.code_mounts import CodeMounts
from moorage.cells.invoker import Invoker
from moorage.cells.outbound import Network
from moorage.cells.runtimes import installed
from moorage.kit.limits import open_many
from moorage.sandbox import capabilities, cgroups, root
from moorage.sandbox import syscalls as sys_

PR_SET_CHILD_SUBREAPER = 36


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
    groups.platform([os.getpid()])
    setup = zygotes.Setup(
        sandbox=sandbox,
        notify=sandbox and report.can_connect,
        own_users=report.own_users,
        root=tree,
        runtimes=installed(),
    )
    network = Network(place.allow, place.block) if setup.notify else None
    invoker = Invoker(setup, groups, mounts, place.data / "code", network)
    stop = asyncio.Event()
    loop.add_signal_handler(signal.SIGCHLD, invoker.reap)
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    listener = listen(place.socket)
    loop.add_reader(listener, lambda: accept(listener, invoker))
    watching = asyncio.create_task(invoker.run())
    say_ready(os.environ)
    await stop.wait()
    watching.cancel()
    invoker.stop()
    groups.close()
    listener.close()


def prepare(place: Place) -> Path:
    """Take a mount namespace of our own and build the tree that cells start from. Without root, a user one as well."""
    uid, gid = os.getuid(), os.getgid()
    if uid != 0:
        wait_for_threads()
        sys_.unshare(sys_.CLONE_NEWUSER | sys_.CLONE_NEWNS)
        Path("/proc/self/setgroups").write_text("deny")
        Path("/proc/self/uid_map").write_text(f"0 {uid} 1")
        Path("/proc/self/gid_map").write_text(f"0 {gid} 1")
    else:
        sys_.unshare(sys_.CLONE_NEWNS)
    sys_.mount(None, "/", None, sys_.MS_REC | sys_.MS_PRIVATE, None)
    tree = place.data / "run" / "cellroot"
    root.build(tree, binds=zygotes.binds(installed()), files={})
    return tree


def wait_for_threads(within_s: float = 2.0) -> None:
    """Wait for threads that were joined but have not left the kernel: only a process of one may change its user."""
    deadline = time.monotonic() + within_s
    while len(os.listdir("/proc/self/task")) > 1 and time.monotonic() < deadline:
        time.sleep(0.001)


def token_of(data: Path) -> str:
    return hashlib.sha256(str(data).encode()).hexdigest()[:10]


def listen(path: Path) -> socket.socket:
    path.unlink(missing_ok=True)
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(str(path))
    path.chmod(0o600)
    listener.listen(64)
    listener.setblocking(False)
    return listener


def accept(listener: socket.socket, invoker: Invoker) -> None:
    with contextlib.suppress(BlockingIOError, InterruptedError):
        connection, _ = listener.accept()
        invoker.connected(connection)


def say_ready(environment: Mapping[str, str]) -> None:
    descriptor = environment.get("MOORAGE_READY_FD")
    if not descriptor:
        print("listening", flush=True)
        return
    with open(int(descriptor), "wb", buffering=0) as pipe:
        pipe.write(b"ready\n")


def main() -> None:
    open_many()
    sys_.prctl(PR_SET_CHILD_SUBREAPER, 1)
    try:
        asyncio.run(serve(read_place(os.environ)))
    except OSError as error:
        sys.exit(f"moorage invoker: {error}")


if __name__ == "__main__":
    main()
