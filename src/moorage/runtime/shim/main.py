"""The shim: supervises one replica and outlives the control process.

The fork server (`fork_server.py`) forks it. The shim reads the replica's spec, one line, from standard input, answers
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
from moorage.runtime.engines.local_specs import ShimSpec
from moorage.runtime.engines.ports import CannotStart
from moorage.runtime.sandbox.cgroups import files as cgroup_files
from moorage.runtime.sandbox.runs import cgroups as run_groups
from moorage.runtime.shim import folder_watch, fork_server
from moorage.runtime.shim.run_folder import RunFolder
from moorage.runtime.shim.server import MAX_LINE_BYTES, ControlServer
from moorage.runtime.shim.supervisor import ROOT, ReplicaSupervisor

SIGNAL_GRACE_S = 10.0  # for the app, when the shim gets SIGTERM or SIGINT


def main(argv: list[str]) -> None:
    shims_folder = Path(argv[0])
    cgroup_files.leave_platform()  # The platform's CPU share is not for processes that work for one tenant.
    folder = fork_server.serve_until_forked(shims_folder)
    fork_server.set_process_title(shims_folder, folder)
    with open(0, "rb", closefd=False) as stdin:
        line = stdin.readline()
    os.setsid()
    os.umask(0o077)
    os.chdir("/")
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        spec = wire.read_spec(line)
        asyncio.run(_supervise(spec, folder))
    except (CannotStart, OSError, ValueError, TypeError) as error:
        _answer({"error": str(error)})
        sys.exit(1)


def _answer(message: dict[str, Any]) -> None:
    """Answer the control process and close the streams; later answers are dropped."""
    os.write(1, wire.line(message))
    null = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1, 2):
        os.dup2(null, stream)
    os.close(null)


async def _supervise(spec: ShimSpec, folder: Path) -> None:
    run_folder = RunFolder(folder)
    try:
        run_groups.sweep()
        server = ControlServer(spec.token)
        supervisor = server.supervisor = ReplicaSupervisor(spec, run_folder, server.schedule_broadcast)
        (folder / ROOT).mkdir()
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, supervisor.stop, SIGNAL_GRACE_S)
        unix_server = await asyncio.start_unix_server(server.serve, sock=_bind(folder), limit=MAX_LINE_BYTES)
        gc.collect()
        gc.freeze()  # Forked children share these long-lived objects for longer if the collector never writes to them.
        watch = asyncio.create_task(folder_watch.watch(supervisor))
        await supervisor.supervise(lambda: _report_start(supervisor))
        watch.cancel()
        folder_watch.end_within()
        await server.finish()
        unix_server.close()
    finally:
        run_folder.remove()


def _report_start(supervisor: ReplicaSupervisor) -> None:
    state = supervisor.state()
    process = {"pid": state.pid, "started": state.started, "port": state.port}
    identity = {"key": state.key, **process, "volume": supervisor.spec.volume}
    supervisor.run_folder.write(wire.IDENTITY_FILE, wire.line(identity))
    _answer({"state": wire.state_json(state)})


def _bind(folder: Path) -> socket.socket:
    """Bind by a relative name: the full path may be too long for an address."""
    sock = socket.socket(socket.AF_UNIX)
    os.chdir(folder)
    sock.bind(wire.SOCKET)
    os.chdir("/")
    return sock
