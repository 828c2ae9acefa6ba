"""The agent: starts the server if its files are complete, serves the platform, and ends with the server."""

from __future__ import annotations

import contextlib
import os
import queue
import signal
import ssl
import sys
import threading
from pathlib import Path
from typing import Any

from moorage.core.kit.decoding import decode
from moorage.runtime.database_servers.agent import certificates
from moorage.runtime.database_servers.agent.model import PORT, ROOT, VARIABLE, AgentConfig
from moorage.runtime.database_servers.agent.process import Processes
from moorage.runtime.database_servers.agent.serving import AgentServer
from moorage.runtime.database_servers.agent.verbs import Verbs
from moorage.runtime.database_servers.ports import ServerFailed, Software
from moorage.runtime.database_servers.software.catalog import SoftwareCatalog, shared_folder

ANY_ADDRESS = "0.0.0.0"  # noqa: S104 - inside of the pod; network policies decide who connects
STOPPED = -1  # the agent ends without a server


def main() -> int:
    config = decode(os.environ.pop(VARIABLE), AgentConfig)
    host, root = os.environ.get("HOST", ANY_ADDRESS), Path(ROOT)
    catalog = SoftwareCatalog([shared_folder()], shared_folder(), has_boxed_tools=False)

    def find_software() -> Software:
        software = catalog.find(config.software)
        if software is None:
            installed = ", ".join(each.name for each in catalog.installed()) or "none"
            raise ServerFailed(f"the image of databases has no {config.software}; it has {installed}")
        return software

    ends: queue.SimpleQueue[int] = queue.SimpleQueue()
    processes = Processes(config.type, find_software, root, host)
    verbs = Verbs(config, processes, root, find_software, ends.put)
    context = certificates.context(ssl.Purpose.CLIENT_AUTH, config.authority, config.certificate, config.key)
    server = AgentServer(host, PORT, context, verbs)
    _stop_on_signals(processes, ends)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        verbs.has_folder(config.folder)
    except (ServerFailed, OSError) as error:
        print(f"cannot start the server: {error}", file=sys.stderr, flush=True)
        return 1
    code = ends.get()
    server.server_close()
    return 0 if code == STOPPED else 128 - code if code < 0 else code


def _stop_on_signals(processes: Processes, ends: queue.SimpleQueue[int]) -> None:
    def stop(_number: int, _frame: Any) -> None:
        # A signal may interrupt a start, which holds the lock.
        threading.Thread(target=begin, daemon=True).start()

    def begin() -> None:
        processes.stop()
        if not processes.is_started:
            with contextlib.suppress(OSError):
                ends.put(STOPPED)

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, stop)
