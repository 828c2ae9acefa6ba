"""Other function hosts, as shipped: functions-framework for Python and Node.js, and workerd.

Each answers the same greeting. Each runs on the server's core, with nothing of this process's environment.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from bench import machine, processes
from bench.function_sockets import HOST, Sockets, get
from bench.machine import SERVER_CORE, on_core
from moorage.runtime.workers import runtimes

PYTHON = "functions-framework (Python)"
NODE = "functions-framework (Node.js)"
NODE_20 = "functions-framework (Node.js 20)"  # Half as fast as on 24, and what its figures are often quoted from.
WORKERD = "workerd"
NPM = Path(__file__).parent / "npm" / "node_modules"
GREETING = "Hello, world!"
_COMPATIBLE = "2026-01-01"  # The date that workerd's compatibility flags are taken from.


@dataclass(frozen=True)
class Target:
    """Something that serves functions."""

    name: str
    pid: int
    port: int
    paths: tuple[str, ...]
    host: str = HOST

    def tree(self) -> list[int]:
        return machine.tree_of(self.pid)


def installed() -> list[str]:
    """Return the names of the peers that are here; `make bench` installs them all."""
    found = [PYTHON] if find_spec("functions_framework") is not None else []
    if _framework().exists():
        found.append(NODE)
        found += [NODE_20] if "nodejs:20" in runtimes.installed() else []
    return [*found, WORKERD] if _workerd() is not None else found


@contextmanager
def serving(name: str, folder: Path, *, functions: int = 1) -> Iterator[Target]:
    """Run a peer. Only workerd can serve several functions, each of its own isolate, at `/0`, `/1` and so on."""
    folder.mkdir(parents=True)
    port = processes.free_ports(1)[0]
    argv = _argv(name, folder, port, functions)
    with on_core(SERVER_CORE):
        process = processes.start(argv, folder / "peer.log", {"PATH": os.defpath, "HOME": str(folder)})
    target = Target(name, process.pid, port, tuple(f"/{number}" for number in range(functions)))
    try:
        _wait(target)
        yield target
    finally:
        processes.stop(process)


def _argv(name: str, folder: Path, port: int, functions: int) -> list[str]:
    if name == PYTHON:
        source = folder / "main.py"
        source.write_text(f"def hello(request):\n    return {GREETING!r}\n")
        place = ["--source", str(source), "--target", "hello", "--host", "127.0.0.1", "--port", str(port)]
        return [sys.executable, "-m", "functions_framework", *place]
    if name in (NODE, NODE_20):
        (folder / "index.js").write_text(f"exports.hello = (request, response) => response.send({GREETING!r});\n")
        asked = "nodejs" if name == NODE else "nodejs:20"
        node = runtimes.installed()[runtimes.resolve(asked) or asked].executable
        return [str(node), str(_framework()), f"--source={folder}", "--target=hello", f"--port={port}"]
    (folder / "worker.js").write_text(f"export default {{ fetch() {{ return new Response({GREETING!r}); }} }};\n")
    (folder / "router.js").write_text(_ROUTER)
    (folder / "config.capnp").write_text(_config(port, functions))
    return [str(_workerd()), "serve", str(folder / "config.capnp")]


_ROUTER = """export default {
  fetch(request, env) {
    return env["f" + new URL(request.url).pathname.slice(1)].fetch(request);
  }
};
"""


def _config(port: int, functions: int) -> str:
    """Write workerd's configuration: one worker alone on the socket, or a router in front of many."""
    numbers = range(functions)
    workers = "".join(f'(name = "f{number}", worker = .function),' for number in numbers)
    bindings = "".join(f'(name = "f{number}", service = "f{number}"),' for number in numbers)
    first = "f0" if functions == 1 else "router"
    return f"""using Workerd = import "/workerd/workerd.capnp";
const config :Workerd.Config = (
  services = [{workers} (name = "router", worker = .router)],
  sockets = [(name = "http", address = "127.0.0.1:{port}", http = (), service = "{first}")]
);
const function :Workerd.Worker = (
  modules = [(name = "worker.js", esModule = embed "worker.js")],
  compatibilityDate = "{_COMPATIBLE}"
);
const router :Workerd.Worker = (
  modules = [(name = "router.js", esModule = embed "router.js")],
  compatibilityDate = "{_COMPATIBLE}",
  bindings = [{bindings}]
);
"""


def _framework() -> Path:
    return NPM / "@google-cloud" / "functions-framework" / "build" / "src" / "main.js"


def _workerd() -> Path | None:
    return next(NPM.glob("@cloudflare/workerd-*/bin/workerd"), None)


def _wait(target: Target) -> None:
    """Return once the peer answers as it should on every path."""
    deadline = time.monotonic() + processes.READY_S
    while True:
        try:
            with Sockets(target.port, [get(path) for path in target.paths], 1) as sockets:
                done = sockets.run(processes.READY_S, most=1)
            if done.answered:
                return
        except OSError:
            pass
        if time.monotonic() > deadline:
            raise processes.NotReady(f"{target.name} does not answer")
        time.sleep(0.05)
