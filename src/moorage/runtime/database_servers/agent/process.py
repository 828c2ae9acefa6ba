"""Server processes of an agent: the server of the database, and scratch servers of restores."""

from __future__ import annotations

import contextlib
import signal
import subprocess
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from moorage.runtime.database_servers.kinds import kind_of
from moorage.runtime.database_servers.ports import Access, ServerFailed, ServerOptions, Software

READY_POLL_INTERVAL_S = 0.05
KILL_AFTER_S = 10.0  # for a scratch server


class Processes:
    """Starts servers as child processes. The agent ends with its server, and Kubernetes starts both again."""

    def __init__(self, type_: str, find_software: Callable[[], Software], root: Path, host: str) -> None:
        self._kind = kind_of(type_)
        self._find_software = find_software
        self._root = root
        self._host = host  # at which the server listens
        self._server: subprocess.Popen[bytes] | None = None
        self._scratch: dict[str, subprocess.Popen[bytes]] = {}  # by folder
        self._lock = threading.Lock()
        self._is_stopping = False

    def start(self, folder: str, options: ServerOptions, on_end: Callable[[int], None]) -> None:
        """Start the server of the database once; `on_end` gets its exit code."""
        with self._lock:
            if self._server is not None or self._is_stopping:
                return
            self._server = self._spawn(folder, replace(options, host=self._host))
        threading.Thread(target=self._watch, args=(self._server, on_end), daemon=True).start()

    def _watch(self, process: subprocess.Popen[bytes], on_end: Callable[[int], None]) -> None:
        on_end(process.wait())

    def stop(self) -> None:
        """Ask the server to end; the caller of `start` gets its exit code. Scratch servers are killed."""
        with self._lock:
            self._is_stopping = True
            for process in self._scratch.values():
                process.kill()
            if self._server is not None and self._server.poll() is None:
                self._server.send_signal(self._kind.stop_signal)

    @property
    def is_started(self) -> bool:
        return self._server is not None

    def start_scratch(self, folder: str, options: ServerOptions, password: str, within_s: float) -> None:
        """Start a server that listens on its Unix socket only, and wait until it is ready."""
        self.stop_scratch(folder, 0.0)
        with self._lock:
            process = self._scratch[folder] = self._spawn(folder, options)
        access = Access(str(self._root / folder), options.port, password)
        deadline = time.monotonic() + within_s
        while not self._kind.ping(access):
            if process.poll() is not None or time.monotonic() > deadline:
                self.stop_scratch(folder, 0.0)
                raise ServerFailed("a server on the restored data does not start")
            time.sleep(READY_POLL_INTERVAL_S)

    def stop_scratch(self, folder: str, grace_s: float) -> None:
        """Stop a scratch server. Safe to repeat."""
        with self._lock:
            process = self._scratch.pop(folder, None)
        if process is None:
            return
        process.send_signal(self._kind.stop_signal if grace_s else signal.SIGKILL)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(max(grace_s, KILL_AFTER_S))
        process.kill()
        process.wait()

    def _spawn(self, folder: str, options: ServerOptions) -> subprocess.Popen[bytes]:
        software, path = self._find_software(), self._root / folder
        home, inside = software.home, str(path)
        self._kind.configure(software, path, options, home=home, inside=inside)
        env = {name: value.replace("{home}", home) for name, value in software.env.items()}
        return subprocess.Popen(
            self._kind.argv(software, options, home=home, inside=inside),
            stdin=subprocess.DEVNULL,
            env={"PATH": "/usr/bin:/bin", "HOME": "/", "TZ": "UTC", **env},
            cwd="/",
            umask=0o077,
            start_new_session=True,
        )
