"""Engine that runs replicas as processes of this machine.

Each replica has a shim process, which outlives the control process. A new control process finds it by its run folder
and authenticates with its token.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import field, fields
from pathlib import Path
from typing import Any
from weakref import WeakValueDictionary

from moorage.core.kit import folders
from moorage.core.kit.records import dataclass
from moorage.runtime.engines import wire
from moorage.runtime.engines.local_specs import ShimApp, ShimRun, ShimServer, ShimSpec, local_files
from moorage.runtime.engines.ports import CannotStart, ReplicaSpec, ReplicaState, RunSpec, ServerSpec
from moorage.runtime.engines.results import RunResults
from moorage.runtime.sandbox.network import setup as network
from moorage.runtime.sandbox.usage import process_tree

START_TIMEOUT_S = 60.0
ANSWER_TIMEOUT_S = 10.0
SHIM_EXIT_S = 10.0  # for a shim to clean up after its app has ended
SHIM_SIGTERM_S = 15.0  # After SIGTERM, a shim gives its app 10 s.
POLL_INTERVAL_S = 0.05
FORK_SERVER_EXIT_S = 1.0  # for a fork server that closed a stream: its own socket may close a little later


@dataclass(eq=False)
class _Shim:
    """Connection to a shim."""

    key: str
    token: str
    folder: Path
    state: ReplicaState
    writer: asyncio.StreamWriter
    gone: asyncio.Event = field(default_factory=asyncio.Event)
    state_requests: list[asyncio.Future[ReplicaState | None]] = field(default_factory=list)

    def send(self, message: dict[str, Any]) -> None:
        with contextlib.suppress(ConnectionError, RuntimeError):
            self.writer.write(wire.line(message))

    def resolve_requests(self, state: ReplicaState | None) -> None:
        for request in self.state_requests:
            if not request.done():
                request.set_result(state)
        self.state_requests.clear()


class LocalReplicas:
    """Runs replicas below a folder, which only one instance may use at a time."""

    def __init__(
        self, run_folder: Path, name: str = "shims", *, logs: Path | None = None, volumes: Path | None = None
    ) -> None:
        self._folder = run_folder / name
        self._volumes = run_folder.with_name("volumes") if volumes is None else volumes
        self._logs = run_folder.with_name("logs") if logs is None else logs
        self._results = RunResults(run_folder / f"{name}-results", self._logs)
        self._ended: dict[str, ReplicaState] = {}  # one-off runs, until they are stopped
        self._fork_server: _ForkServer | None = None
        self._shims: dict[str, _Shim] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        self._ending: dict[str, asyncio.Task[None]] = {}  # shims that were not adopted, by key
        self._listeners: list[Callable[[str], None]] = []

    async def adopt(self, tokens: Mapping[str, str]) -> list[str]:
        """Connect to the shims of these keys; end others in the background.

        A replica that was killed with its shim leaves no trace, so no key was provably never started.
        """
        run_folders = sorted(self._folder.iterdir()) if self._folder.is_dir() else []
        await asyncio.gather(*(self._adopt(folder, tokens) for folder in run_folders if folder.name not in self._shims))
        await asyncio.to_thread(self._results.remove_all_but, tokens.keys())
        for key in tokens.keys() - self._shims.keys():
            if (state := await asyncio.to_thread(self._results.find, key)) is not None:
                self._ended[key] = state
        return []

    async def _adopt(self, folder: Path, tokens: Mapping[str, str]) -> None:
        identity = _read_identity(folder)
        if identity is not None and process_tree.started(identity[0]) == identity[1]:
            token = tokens.get(folder.name)
            if token is not None and await self._connect(folder.name, token):
                return
            self._ending[folder.name] = self._create_task(_end_and_remove(folder, *identity))
            return
        _remove(folder)

    def states(self) -> Mapping[str, ReplicaState]:
        return self._ended | {key: shim.state for key, shim in self._shims.items()}

    async def start(self, spec: ReplicaSpec) -> ReplicaState:
        """Start a replica; one that already runs under this key stays unchanged."""
        async with self._lock(spec.key):
            return await self._start(spec)

    async def _start(self, spec: ReplicaSpec) -> ReplicaState:
        if spec.key in self._shims:
            return self._shims[spec.key].state
        await self._wait_if_ending(spec.key)
        folder = self._folder / spec.key
        identity = _read_identity(folder)
        if identity is not None and process_tree.started(identity[0]) == identity[1]:
            raise CannotStart(f"it cannot be started: another {spec.key} runs already")
        _remove(folder)
        try:
            async with asyncio.timeout(START_TIMEOUT_S):
                first_state = await self._spawn(spec)
                if not await self._connect(spec.key, spec.token):
                    if isinstance(spec, RunSpec):
                        return await self._finish_ended(first_state)
                    raise CannotStart("it cannot be started: its supervisor process does not answer")
        except BaseException as error:
            # A shim that starts later than this exits when it finds its run folder gone.
            _remove(folder)
            if isinstance(error, TimeoutError):
                raise CannotStart("it cannot be started: this machine is too busy") from None
            raise
        shim = self._shims.get(spec.key)
        return shim.state if shim else first_state

    async def _finish_ended(self, state: ReplicaState) -> ReplicaState:
        """Clean up a run that ended before the connection."""
        await _end(state.pid, state.started)
        _reap(state.pid)
        _remove(self._folder / state.key)
        return self._keep_result(state)

    def _keep_result(self, last: ReplicaState) -> ReplicaState:
        state = self._results.find(last.key, last)
        assert state is not None
        self._ended[last.key] = state
        return state

    async def look(self, key: str) -> ReplicaState | None:
        shim = self._shims.get(key)
        if shim is None:
            return self._ended.get(key)
        answer: asyncio.Future[ReplicaState | None] = asyncio.get_running_loop().create_future()
        shim.state_requests.append(answer)
        shim.send({"do": "look"})
        with contextlib.suppress(TimeoutError):
            return await asyncio.wait_for(answer, ANSWER_TIMEOUT_S)
        return shim.state

    async def stop(self, key: str, grace_s: float) -> None:
        await self._stop(key, grace_s)
        if self._ended.pop(key, None) is not None:
            self._results.remove(key)

    async def _stop(self, key: str, grace_s: float) -> None:
        async with self._lock(key):
            shim = self._shims.get(key)
        if shim is None:
            await self._wait_if_ending(key)
            return
        shim.send({"do": "stop", "graceS": grace_s})
        try:
            await asyncio.wait_for(shim.gone.wait(), grace_s + SHIM_EXIT_S)
        except TimeoutError:
            _send_signal(shim.state.pid, shim.state.started, signal.SIGKILL)  # Its app dies with it.
            await shim.gone.wait()

    async def limit(self, key: str, cpu: float | None) -> None:
        shim = self._shims.get(key)
        if shim is not None:
            shim.send({"do": "limit", "cpu": cpu})

    def listen(self, on_change: Callable[[str], None]) -> None:
        self._listeners.append(on_change)

    async def close(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for shim in self._shims.values():
            shim.writer.close()
        self._shims.clear()
        if self._fork_server is not None:
            self._fork_server.close()

    async def warm(self) -> None:
        """Start the fork server, so that the first replica starts as fast as later ones."""
        self._ensure_fork_server()

    def _ensure_fork_server(self) -> _ForkServer:
        if self._fork_server is None or self._fork_server.has_ended:
            if self._fork_server is not None:
                self._fork_server.close()
            self._fork_server = _ForkServer(self._folder)
        return self._fork_server

    async def _spawn(self, spec: ReplicaSpec) -> ReplicaState:
        """Start a shim and return its first state, which it sends when its app runs."""
        line = wire.spec_line(self._resolved(spec))
        response = await (fork_server := self._ensure_fork_server()).spawn(spec.key, line)
        if not response and await fork_server.exit_reason():
            response = await (fork_server := self._ensure_fork_server()).spawn(spec.key, line)
        last_line = response.decode(errors="replace").strip().rpartition("\n")[2]
        if not last_line.startswith("{"):
            reason = last_line or await fork_server.exit_reason() or "its supervisor process was ended"
            raise CannotStart(f"it cannot be started: {reason}")
        answer = json.loads(last_line)
        if "error" in answer:
            raise CannotStart(answer["error"])
        return wire.read_state(answer["state"])

    def _resolved(self, spec: ReplicaSpec) -> ShimSpec:
        """Replace the names in a spec by paths and addresses of this machine."""
        values = {each.name: getattr(spec, each.name) for each in fields(spec)} | {
            "files": local_files(spec),
            "log": str(self._logs / spec.log),
            "volume": str(self._volumes / spec.volume) if spec.volume else None,
            "egress": [],
            "doors": [str(each.address) for each in spec.egress],
        }
        if isinstance(spec, RunSpec):
            self._results.remove(spec.key)
            return ShimRun(**values, result=str(self._results.path(spec.key)))
        return ShimServer(**values) if isinstance(spec, ServerSpec) else ShimApp(**values)

    async def _connect(self, key: str, token: str) -> bool:
        """Connect to a shim with its token; False if it does not answer or rejects it."""
        folder = self._folder / key
        try:
            async with asyncio.timeout(ANSWER_TIMEOUT_S):
                reader, writer = await _open(folder, token)
                line = await reader.readline()
        except (OSError, TimeoutError):
            return False
        if not line:
            writer.close()
            return False
        shim = self._shims[key] = _Shim(key, token, folder, wire.read_state(json.loads(line)), writer)
        self._create_task(self._read_states(shim, reader))
        return True

    def _lock(self, key: str) -> asyncio.Lock:
        """Return the lock against a second start, and against a stop during the start."""
        return self._locks.setdefault(key, asyncio.Lock())

    async def _wait_if_ending(self, key: str) -> None:
        """Wait for the end of a shim that was not adopted."""
        if (ending := self._ending.get(key)) is not None:
            await asyncio.wait({ending})

    def _create_task(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def _read_states(self, shim: _Shim, reader: asyncio.StreamReader) -> None:
        """Read a shim's state messages until it disconnects."""
        with contextlib.suppress(ConnectionError, ValueError):
            while line := await reader.readline():
                shim.state = wire.read_state(json.loads(line))
                shim.resolve_requests(shim.state)
                self._notify(shim.key)
        await self._on_disconnect(shim)

    async def _on_disconnect(self, shim: _Shim) -> None:
        """Reconnect to a shim of a running app; otherwise end and forget the shim."""
        shim.writer.close()
        is_done = shim.state.phase == "stopped"
        if not is_done and await self._connect(shim.key, shim.token):
            return
        await _end(shim.state.pid, shim.state.started, within_s=SHIM_SIGTERM_S if is_done else 0.0)
        _reap(shim.state.pid)
        _remove(shim.folder)
        if shim.state.is_once:
            self._keep_result(shim.state)
        self._shims.pop(shim.key, None)
        shim.gone.set()
        shim.resolve_requests(None)
        self._notify(shim.key)

    def _notify(self, key: str) -> None:
        for on_change in self._listeners:
            on_change(key)


class _ForkServer:
    """Client of `shim.fork_server`; the constructor does not wait for the process."""

    def __init__(self, folder: Path) -> None:
        self._requests, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._requests.setblocking(False)
        self._last_error_line = ""
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 - closed with the rest
        with theirs:
            self._process = subprocess.Popen(
                # The last argument is padding: a forked shim overwrites the arguments with its longer run folder.
                [sys.executable, "-m", "moorage.runtime.shim", str(folder), " " * wire.MAX_KEY_BYTES],
                stdin=theirs.fileno(),
                stdout=subprocess.DEVNULL,
                stderr=self._errors.fileno(),
                env=network.environment(),
                cwd="/",
                start_new_session=True,
            )

    async def spawn(self, key: str, spec_line: bytes) -> bytes:
        """Fork a shim; return its answer to the spec, empty if the fork server exited."""
        ours, theirs = socket.socketpair()
        with contextlib.suppress(OSError), theirs:
            while True:
                if self._try_request(key, theirs):
                    break
                await asyncio.sleep(POLL_INTERVAL_S)
        reader, writer = await asyncio.open_unix_connection(sock=ours)
        try:
            writer.write(spec_line)
            return await reader.read()
        except ConnectionError:
            return b""
        finally:
            writer.close()

    def _try_request(self, key: str, stream: socket.socket) -> bool:
        try:
            return socket.send_fds(self._requests, [key.encode()], [stream.fileno()]) > 0
        except BlockingIOError:
            return False  # The socket buffer is full of requests.

    @property
    def has_ended(self) -> bool:
        """Whether the request socket is at end of file; the fork server never writes."""
        try:
            self._requests.recv(1)
        except BlockingIOError:
            return False
        except OSError:
            return True  # The process exited with unread requests, or the socket is closed.
        return True

    async def exit_reason(self) -> str | None:
        """Return the last error line of an exited fork server; None if it still runs."""
        deadline = time.monotonic() + FORK_SERVER_EXIT_S
        while not self.has_ended:
            if time.monotonic() > deadline:
                return None
            await asyncio.sleep(POLL_INTERVAL_S)
        self.close()
        return self._last_error_line or "its supervisor process was ended"

    def close(self) -> None:
        """Kill the fork server; its shims continue to run. Safe to repeat."""
        if self._requests.fileno() >= 0:
            self._requests.close()
            self._process.kill()
            self._process.wait()
            self._errors.seek(0)
            self._last_error_line = self._errors.read().decode(errors="replace").strip().rpartition("\n")[2]
            self._errors.close()


async def _open(folder: Path, token: str) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """Connect through a folder descriptor: the path may be too long for an address."""
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
    descriptor = os.open(folder, os.O_PATH | os.O_DIRECTORY)
    try:
        sock.connect(f"/proc/self/fd/{descriptor}/{wire.SOCKET}")
    except OSError:
        sock.close()
        raise
    finally:
        os.close(descriptor)
    reader, writer = await asyncio.open_unix_connection(sock=sock, limit=wire.MAX_LINE_BYTES)
    writer.write(wire.line({"token": token}))
    return reader, writer


def _read_identity(folder: Path) -> tuple[int, int] | None:
    """Return PID and start time of a folder's shim, None without an identity file."""
    try:
        identity = json.loads((folder / wire.IDENTITY_FILE).read_bytes())
        return int(identity["pid"]), int(identity["started"])
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _remove(folder: Path) -> None:
    with contextlib.suppress(OSError):  # A folder that cannot be removed does no harm.
        folders.remove(folder)


def _send_signal(pid: int, started: int, number: signal.Signals) -> bool:
    """Send a signal to the process with PID and start time; False if it has ended."""
    try:
        process = os.pidfd_open(pid)
    except OSError:
        return False
    try:
        if process_tree.started(pid) != started:
            return False
        signal.pidfd_send_signal(process, number)
    except OSError:
        return False
    finally:
        os.close(process)
    return True


async def _end(pid: int, started: int, within_s: float = SHIM_SIGTERM_S) -> None:
    """Terminate a shim and wait for it; kill it after `within_s`, or at once if 0."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + within_s
    number = signal.SIGTERM if within_s else signal.SIGKILL
    if not _send_signal(pid, started, number):
        return
    while process_tree.started(pid) == started:
        if loop.time() > deadline:
            _send_signal(pid, started, signal.SIGKILL)
        await asyncio.sleep(POLL_INTERVAL_S)


async def _end_and_remove(folder: Path, pid: int, started: int) -> None:
    await _end(pid, started)
    _remove(folder)


def _reap(pid: int) -> None:
    """Reap a shim that became a child of this process, if this is process 1."""
    with contextlib.suppress(ChildProcessError):
        os.waitpid(pid, os.WNOHANG)
