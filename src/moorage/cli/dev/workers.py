"""Workers of one function as plain processes, in place of the sandboxes that the invoker starts on the platform."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import fcntl
import os
import signal
import socket
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from moorage.runtime.workers.frames import HEAD, READY
from moorage.runtime.workers.messages import close_all
from moorage.runtime.workers.runtimes import Runtime
from moorage.runtime.workers.sandbox import append_only
from moorage.runtime.workers.zygotes import NODE_ENV, NODE_FLAGS, NODE_WORKER, SANDBOX_ENV

PYTHON_WORKER = NODE_WORKER.parent / "python" / "worker.py"
SPARES = 2  # workers that wait: a save right after a failed load must not wait for the start of a process
SPARE_DELAY_S = 0.1  # after a worker was used, so that the start of the next one does not slow down its load
FIRST_HIGH_DESCRIPTOR = 10
OUTPUT_BYTES = 2**20
JOURNAL_BYTES = 11 * 2**20


def argv_of(runtime: Runtime, folder: Path) -> list[str]:
    """Return the command of a worker. Python writes no bytecode: code of the same second could be outdated."""
    if runtime.language == "nodejs":
        return [str(runtime.executable), *NODE_FLAGS, str(NODE_WORKER), str(folder)]
    return [str(runtime.executable), "-I", "-S", "-B", str(PYTHON_WORKER), str(folder)]


class WorkerProcess:
    """One worker: its socket, its output files and its end."""

    def __init__(self, number: int, argv: list[str], env: dict[str, str]) -> None:
        self.number = number
        self.is_ready = False
        self.is_taken = False
        self.sock, theirs = socket.socketpair()
        self._outputs = [append_only(name) for name in ("stdout", "stderr", "journal")]
        self._journal_read = 0
        out, err, journal = self._outputs
        sources = [
            fcntl.fcntl(each, fcntl.F_DUPFD_CLOEXEC, FIRST_HIGH_DESCRIPTOR)
            for each in (out, err, theirs.fileno(), journal)
        ]
        actions: list[tuple[Any, ...]] = [(os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0)]
        actions += [(os.POSIX_SPAWN_DUP2, source, target) for target, source in enumerate(sources, 1)]
        try:
            # An own process group: Ctrl-C ends the server, which then ends its workers.
            self.pid = os.posix_spawn(argv[0], argv, env, file_actions=actions, setpgroup=0)
        except OSError:
            self.close()
            raise
        finally:
            close_all(sources)
            theirs.close()

    def kill(self) -> None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, signal.SIGKILL)

    def wait(self) -> int | None:
        """Wait for the end of the process and return its exit code; blocks."""
        try:
            return os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])
        except ChildProcessError:
            return None

    def read_journal(self) -> bytes:
        """Return the log entries that the running call has added since the last time."""
        try:
            size = os.fstat(self._outputs[2]).st_size
            self._journal_read = min(self._journal_read, size)
            data = os.pread(self._outputs[2], size - self._journal_read, self._journal_read)
        except OSError:
            return b""
        self._journal_read += len(data)
        return data

    def restart_journal(self) -> None:
        """Read from the beginning again: the worker truncates the journal at the end of a call."""
        self._journal_read = 0

    def output(self) -> dict[str, str]:
        """Return the output that no reply contained, as the invoker reports it."""
        out, err, journal = (self._read(number) for number in range(3))
        return {
            "out": out[-OUTPUT_BYTES:].decode("utf-8", "replace"),
            "err": err[-OUTPUT_BYTES:].decode("utf-8", "replace"),
            "journal": base64.b64encode(journal).decode(),
        }

    def _read(self, number: int) -> bytes:
        try:
            return os.pread(self._outputs[number], JOURNAL_BYTES, 0)
        except OSError:
            return b""

    def close(self) -> None:
        if not self.is_taken:
            self.sock.close()
        close_all(self._outputs)


class WorkerLink:
    """Hands workers to the pool, as the connection to the invoker does. Spare workers wait for the next load."""

    is_memory_low = False
    sandbox: bool | None = False

    def __init__(self, runtime: Runtime, folder: Path, memory_mb: int) -> None:
        self._argv = argv_of(runtime, folder)
        self._env = {**SANDBOX_ENV, **(NODE_ENV if runtime.language == "nodejs" else {})}
        self._memory_mb = memory_mb
        self._loop = asyncio.get_running_loop()
        self._numbers = 0
        self._takes = 0
        self._spares: list[WorkerProcess] = []
        self._waiting: dict[int, int] = {}  # worker number -> take, until the worker is ready
        self._running: dict[int, WorkerProcess] = {}
        self._is_closed = False
        self.on_sandbox: Callable[[int, int, str, socket.socket], None]
        self.on_refused: Callable[[int, str], None]
        self.on_ended: Callable[[dict[str, Any]], None]

    def find(self, number: int) -> WorkerProcess | None:
        return self._running.get(number)

    def take(self, request: dict[str, Any]) -> int:
        """Start the code in a worker; `on_sandbox` or `on_refused` gets the returned number."""
        self._takes += 1
        take = self._takes
        worker = self._spares.pop(0) if self._spares else self._start()
        if worker is None:
            self._loop.call_soon(self.on_refused, take, "its worker cannot be started")
        elif worker.is_ready:
            self._loop.call_soon(self._hand_over, worker, take)
        else:
            self._waiting[worker.number] = take
        self._loop.call_later(SPARE_DELAY_S, self.prepare)
        return take

    def send(self, message: dict[str, Any]) -> None:
        """Accept the messages for an invoker; only `kill` means something without sandboxes."""
        worker = self._running.get(message.get("kill", 0))
        if worker is not None:
            worker.kill()

    def prepare(self) -> None:
        """Start the missing spare workers."""
        while len(self._spares) < SPARES and not self._is_closed:
            worker = self._start()
            if worker is None:
                return
            self._spares.append(worker)

    def close(self) -> None:
        """Kill all workers."""
        self._is_closed = True
        for worker in list(self._running.values()):
            worker.kill()

    def _start(self) -> WorkerProcess | None:
        self._numbers += 1
        try:
            worker = WorkerProcess(self._numbers, self._argv, self._env)
        except OSError:
            return None
        self._running[worker.number] = worker
        worker.sock.setblocking(False)
        self._loop.add_reader(worker.sock, self._readable, worker)
        threading.Thread(target=self._watch, args=(worker,), daemon=True).start()
        return worker

    def _readable(self, worker: WorkerProcess) -> None:
        """Read READY, the only frame before the code is loaded."""
        try:
            frame = worker.sock.recv(HEAD.size)
        except (BlockingIOError, InterruptedError):
            return
        except OSError:
            frame = b""
        self._loop.remove_reader(worker.sock)
        if len(frame) < HEAD.size or frame[4] != READY:
            worker.kill()
            return
        worker.is_ready = True
        take = self._waiting.pop(worker.number, None)
        if take is not None:
            self._hand_over(worker, take)

    def _hand_over(self, worker: WorkerProcess, take: int) -> None:
        worker.is_taken = True
        self.on_sandbox(take, worker.number, "spare", worker.sock)

    def _watch(self, worker: WorkerProcess) -> None:
        code = worker.wait()
        with contextlib.suppress(RuntimeError):  # The loop is closed.
            self._loop.call_soon_threadsafe(self._ended, worker, code)

    def _ended(self, worker: WorkerProcess, code: int | None) -> None:
        self._running.pop(worker.number, None)
        if not worker.is_taken:
            self._loop.remove_reader(worker.sock)
        if worker in self._spares:
            self._spares.remove(worker)
        take = self._waiting.pop(worker.number, None)
        output = worker.output()
        if take is not None:
            self.on_refused(take, f"its worker ended with {code}: {output['err'].strip() or output['out'].strip()}")
        elif worker.is_taken:
            self.on_ended({"cell": worker.number, "code": code, "oom": False, "memory_mb": self._memory_mb, **output})
        worker.close()
