"""Serves one function folder and loads it again after each save."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import time
from dataclasses import dataclass, field
from pathlib import Path

from moorage.cli.dev import dotenv
from moorage.cli.dev.edge import DOMAIN, DevHandler, DevListener, DevPool, DevTargets
from moorage.cli.dev.screen import Screen
from moorage.cli.dev.watching import FolderWatch
from moorage.cli.dev.workers import WorkerLink
from moorage.cli.output.terminal import note, say
from moorage.products.functions.contents import BadPackage, find_main, needs_install
from moorage.runtime.edge import spool
from moorage.runtime.edge.calls.function import AnyFunction, Route
from moorage.runtime.edge.route_file import RouteFile
from moorage.runtime.edge.routes import Table
from moorage.runtime.workers.runtimes import Runtime

FUNCTION_ID = 1
SETTLE_S = 0.015  # between two scans that have to be equal: editors and checkouts write several files
LIVE_LOGS_INTERVAL_S = 0.05
LIVE_LOGS_AFTER_S = 0.1  # The output of a shorter call is printed at its end.
DRAIN_S = 1.0
ENV_FILE = ".env"
INSTALL = {
    "nodejs": "package.json lists dependencies that are not in node_modules; here use: npm install",
    "python": "requirements.txt lists packages that are not in the folder; "
    "here use: pip install --target packages -r requirements.txt",
}


@dataclass(frozen=True, slots=True)
class Options:
    """The served function and its address."""

    folder: Path
    name: str
    runtime: Runtime
    host: str
    ports: range  # The first free one is used.
    org: str = "1"
    timeout_ms: int = 60_000
    memory_mb: int = 256
    raw_http: bool = False
    own_options: bool = False
    env: dict[str, str] = field(default_factory=dict)  # overrides the .env file


class DevServer:
    """One function with its server. Create it in a running event loop."""

    def __init__(self, options: Options) -> None:
        self._options = options
        self._sock = _bind(options.host, options.ports)
        self._port: int = self._sock.getsockname()[1]
        self._screen = Screen()
        self._watch = FolderWatch(options.folder)
        self._link = WorkerLink(options.runtime, options.folder, options.memory_mb)
        self._pool = DevPool(self._link, self._screen, self._find, self._report_load)
        self._link.on_sandbox, self._link.on_refused = self._pool.sandbox_taken, self._pool.take_refused
        self._link.on_ended = self._pool.sandbox_ended
        self._table = Table(f"http://{DOMAIN}:{self._port}", self._pool.retire, RouteFile(Path(os.devnull), ""))
        self._revision = 0
        self._change = ""  # The saved files that are being loaded; empty at the start.
        self._saved_at = 0.0
        self._failed = 0  # revision whose code could not be loaded
        self._texts: dict[str, dict[int, str]] = {}  # output of running calls by activation and stream

    async def run(self) -> None:
        """Serve until Ctrl-C; raises BadPackage or BadEnvFile if the folder cannot be served at all."""
        stop, loop = asyncio.Event(), asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, stop.set)
        targets = DevTargets(self._options.org, self._options.name)
        handler = DevHandler(self._table, self._pool, targets, self._options.host)
        listener = DevListener(handler, self._screen, early=handler.answer_early)
        try:
            self._link.prepare()
            self._put()
            server = await loop.create_server(listener, sock=self._sock)
            self._greet()
            background = (self._pool.run(), listener.watch_deadlines(), self._reload(), self._print_running())
            tasks = [asyncio.create_task(each) for each in background]
            await stop.wait()
            for task in tasks:
                task.cancel()
            server.close()
            await listener.drain(DRAIN_S)
        finally:
            self._link.close()

    def _find(self, function_id: int) -> AnyFunction | None:
        return self._table.find_by_id(function_id)

    def _greet(self) -> None:
        options = self._options
        say(f"serving {options.name} ({options.runtime.name}) at http://{DOMAIN}:{self._port}")
        note(f"  as on the platform: http://org-{options.org}.{DOMAIN}:{self._port}/default/{options.name}", "dim")
        note("  memory and network are not limited here; a saved file is loaded at once, Ctrl-C ends", "dim")

    # Loading.

    def _put(self) -> None:
        """Make the folder's state the function's next version, and load it; raises BadPackage or BadEnvFile."""
        options = self._options
        main = find_main(options.folder, options.runtime.name)
        env = {**dotenv.read(options.folder / ENV_FILE), **options.env}
        if needs_install(options.folder, options.runtime.name):
            note(f"{INSTALL[options.runtime.language]} (the platform installs them at a deployment)", "yellow")
        self._revision += 1
        route = Route(
            id=FUNCTION_ID,
            org=options.org,
            name=options.name,
            revision=self._revision,
            version=self._revision,
            runtime=options.runtime.name,
            digest="",
            main=main,
            timeout_ms=options.timeout_ms,
            memory_mb=options.memory_mb,
            env=list(env.items()),
            raw_http=options.raw_http,
            own_options=options.own_options,
        )
        self._table.put(route)
        function = self._table.find_by_id(FUNCTION_ID)
        if function is not None:
            self._pool.warm(function)

    def _report_load(self, function: AnyFunction, ok: bool, load_us: int, log: bytes, message: str) -> None:
        entries = spool.log_entries(log)
        change, self._change = self._change, ""
        if not ok:
            if self._failed != function.route.revision:  # Each call loads the code again; its error is printed once.
                self._screen.failed(message, entries)
            self._failed = function.route.revision
        elif change:
            took_ms = (time.time() - self._saved_at) * 1000
            self._screen.loaded(f"loaded {change} again, {took_ms:.0f} ms after the save", entries)
        else:
            self._screen.loaded(f"loaded {function.route.main} in {load_us / 1000:.0f} ms", entries)

    async def _reload(self) -> None:
        """Load the folder after each save, once its files do not change any more."""
        while True:
            await asyncio.sleep(self._watch.interval_s)
            if not (changes := self._watch.changes()):
                continue
            while more := await self._later_changes():
                changes += more
            self._saved_at = self._watch.saved_at(changes)
            self._change = _named(changes)
            try:
                self._put()
            except (BadPackage, dotenv.BadEnvFile) as error:
                self._change = ""
                note(f"not loaded: {_sentence(error)}; the version before stays", "red")

    async def _later_changes(self) -> list[str]:
        await asyncio.sleep(SETTLE_S)
        return self._watch.changes()

    # Logs of calls that still run.

    async def _print_running(self) -> None:
        while True:
            await asyncio.sleep(LIVE_LOGS_INTERVAL_S)
            calls = self._pool.lone_calls(LIVE_LOGS_AFTER_S)
            activations = {activation for _, activation in calls}
            self._texts = {key: texts for key, texts in self._texts.items() if key in activations}
            for number, activation in calls:
                worker = self._link.find(number)
                if worker is None:
                    continue
                texts = self._texts.get(activation)
                if texts is None:
                    texts = self._texts[activation] = {}
                    worker.restart_journal()
                for entry in spool.log_entries(worker.read_journal()):
                    texts[entry.stream] = texts.get(entry.stream, "") + entry.text
                self._screen.print_running(activation, texts)


def _bind(host: str, ports: range) -> socket.socket:
    """Listen on the first free port; raises OSError."""
    for port in ports[:-1]:
        try:
            return socket.create_server((host, port))
        except OSError:
            continue
    return socket.create_server((host, ports[-1]))


def _named(changes: list[str]) -> str:
    names = sorted(set(changes))
    return names[0] if len(names) == 1 else f"{names[0]} and {len(names) - 1} more"


def _sentence(error: Exception) -> str:
    return f"the folder {error}" if isinstance(error, BadPackage) else str(error)
