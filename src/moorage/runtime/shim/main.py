"""A shim: the process that keeps one replica of an app, and goes on when the control plane ends.

The fork server (`fork_server.py`) forks it. It reads one line on standard input, which describes the replica, answers
with one line on standard output (a state, or an error), and closes both.
"""

from __future__ import annotations

import asyncio
import gc
import os
import signal
import socket
import sys
from pathlib import Path
from typing import Any

from moorage.runtime.engines import wire
from moorage.runtime.engines.ports import CannotStart, ReplicaSpec
from moorage.runtime.sandbox.cgroups import files as cgroup_files
from moorage.runtime.sandbox.runs import cgroups as run_groups
from moorage.runtime.shim import folder_watch
from moorage.runtime.shim import fork_server as nest
from moorage.runtime.shim.home import Home
from moorage.runtime.shim.server import LONGEST_LINE, Server
from moorage.runtime.shim.supervisor import ROOT, Keeper

GRACE_S = 10.0  # for an app whose shim is told to end by a signal


def main(argv: list[str]) -> None:
    home = Path(argv[0])
    cgroup_files.leave_platform()  # The processor share of the platform is not for what works for one tenant.
    folder = nest.wait_to_become(home)
    nest.show(home, folder)
    with open(0, "rb", closefd=False) as told:
        line = told.readline()
    os.setsid()
    os.umask(0o077)
    os.chdir("/")
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        spec = wire.read_spec(line)
        asyncio.run(_keep(spec, folder))
    except (CannotStart, OSError, ValueError, TypeError) as error:
        _answer({"error": str(error)})
        sys.exit(1)


def _answer(message: dict[str, Any]) -> None:
    """Answer whoever started us, and let go of them. Later answers go nowhere."""
    os.write(1, wire.line(message))
    null = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1, 2):
        os.dup2(null, stream)
    os.close(null)


async def _keep(spec: ReplicaSpec, folder: Path) -> None:
    home = Home(folder)
    try:
        run_groups.sweep()
        server = Server(spec.token)
        keeper = server.keeper = Keeper(spec, home, server.changed)
        (folder / ROOT).mkdir()
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, keeper.stop, GRACE_S)
        listening = await asyncio.start_unix_server(server.serve, sock=_bind(folder), limit=LONGEST_LINE)
        gc.collect()
        gc.freeze()  # What is forked from us shares its memory for longer, and it was made to stay.
        watch = asyncio.create_task(folder_watch.watch(keeper))
        await keeper.keep(lambda: _begin(keeper))
        watch.cancel()
        folder_watch.end_within()
        await server.finish()
        listening.close()
    finally:
        home.remove()


def _begin(keeper: Keeper) -> None:
    state = keeper.state()
    process = {"pid": state.pid, "started": state.started, "port": state.port}
    keeper.home.write(wire.CARD, wire.line({"key": state.key, **process, "volume": keeper.spec.volume}))
    _answer({"state": wire.state_json(state)})


def _bind(folder: Path) -> socket.socket:
    """Bind by a short name: a path could be longer than the address of a socket may be."""
    sock = socket.socket(socket.AF_UNIX)
    os.chdir(folder)
    sock.bind(wire.SOCKET)
    os.chdir("/")
    return sock
