"""Replicas as processes of this machine: a shim for each, which lives on when we end, and is found by its token."""

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
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any
from weakref import WeakValueDictionary

from moorage.core.kit import folders
from moorage.runtime.engines import wire
from moorage.runtime.engines.ports import CannotStart, ReplicaSpec, ReplicaState
from moorage.runtime.sandbox.network import setup as network
from moorage.runtime.sandbox.usage import process_tree

START_S = 60.0
ANSWER_S = 10.0
STOP_EXTRA_S = 10.0  # for a shim to clear up after its app has ended
STRANGER_S = 15.0  # A shim that is told to end by a signal gives its app 10 s.
PAUSE_S = 0.05
ENDING_S = 1.0  # for a process that has let go of something already


@dataclass(eq=False)
class _Shim:
    """A shim that we are connected to."""

    key: str
    token: str
    folder: Path
    state: ReplicaState
    writer: asyncio.StreamWriter
    gone: asyncio.Event = field(default_factory=asyncio.Event)
    looks: list[asyncio.Future[ReplicaState | None]] = field(default_factory=list)

    def ask(self, message: dict[str, Any]) -> None:
        with contextlib.suppress(ConnectionError, RuntimeError):
            self.writer.write(wire.line(message))

    def answer(self, state: ReplicaState | None) -> None:
        for waiting in self.looks:
            if not waiting.done():
                waiting.set_result(state)
        self.looks.clear()


class LocalReplicas:
    """Runs replicas below a folder. Only one of these may work with a folder at a time."""

    def __init__(self, run_folder: Path, name: str = "shims") -> None:
        self._folder = run_folder / name
        self._nest: _Nest | None = None
        self._shims: dict[str, _Shim] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._turns: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        self._ending: dict[str, asyncio.Task[None]] = {}  # what ran already and nobody asked for, by key
        self._listeners: list[Callable[[str], None]] = []

    async def adopt(self, tokens: Mapping[str, str]) -> None:
        """Connect to the shims of these keys; all others are ended, which nobody waits for, and their folders go."""
        found = sorted(self._folder.iterdir()) if self._folder.is_dir() else []
        await asyncio.gather(*(self._adopt(folder, tokens) for folder in found if folder.name not in self._shims))

    async def _adopt(self, folder: Path, tokens: Mapping[str, str]) -> None:
        identity = _read_card(folder)
        if identity is not None and process_tree.started(identity[0]) == identity[1]:
            token = tokens.get(folder.name)
            if token is not None and await self._connect(folder.name, token):
                return
            self._ending[folder.name] = self._keep_task(_end_stranger(folder, *identity))
            return
        _remove(folder)

    def states(self) -> Mapping[str, ReplicaState]:
        return {key: shim.state for key, shim in self._shims.items()}

    async def start(self, spec: ReplicaSpec) -> ReplicaState:
        """Start a replica; one that runs already under this key is left as it is."""
        async with self._turn(spec.key):
            return await self._start(spec)

    async def _start(self, spec: ReplicaSpec) -> ReplicaState:
        if spec.key in self._shims:
            return self._shims[spec.key].state
        await self._until_ended(spec.key)
        folder = self._folder / spec.key
        identity = _read_card(folder)
        if identity is not None and process_tree.started(identity[0]) == identity[1]:
            raise CannotStart(f"it cannot be started: another {spec.key} runs already")
        _remove(folder)
        try:
            async with asyncio.timeout(START_S):
                told = await self._spawn(spec)
                if not await self._connect(spec.key, spec.token):
                    if spec.is_once:
                        return await self._ended_already(told)
                    raise CannotStart("it cannot be started: its supervisor process does not answer")
        except BaseException as error:
            # A shim that has come up after all ends by itself once it finds its folder gone.
            _remove(folder)
            if isinstance(error, TimeoutError):
                raise CannotStart("it cannot be started: this machine is too busy") from None
            raise
        shim = self._shims.get(spec.key)
        return shim.state if shim else told

    async def _ended_already(self, told: ReplicaState) -> ReplicaState:
        """Return the end of a run that was over before we could connect; its result says how it ended."""
        await _end(told.pid, told.started)
        _reap(told.pid)
        _remove(self._folder / told.key)
        return replace(told, phase="stopped", app_pid=None)

    async def look(self, key: str) -> ReplicaState | None:
        shim = self._shims.get(key)
        if shim is None:
            return None
        answer: asyncio.Future[ReplicaState | None] = asyncio.get_running_loop().create_future()
        shim.looks.append(answer)
        shim.ask({"do": "look"})
        with contextlib.suppress(TimeoutError):
            return await asyncio.wait_for(answer, ANSWER_S)
        return shim.state

    async def stop(self, key: str, grace_s: float) -> None:
        async with self._turn(key):
            shim = self._shims.get(key)
        if shim is None:
            await self._until_ended(key)
            return
        shim.ask({"do": "stop", "graceS": grace_s})
        try:
            await asyncio.wait_for(shim.gone.wait(), grace_s + STOP_EXTRA_S)
        except TimeoutError:
            _send(shim.state.pid, shim.state.started, signal.SIGKILL)  # Its app dies with it.
            await shim.gone.wait()

    async def limit(self, key: str, cpu: float | None) -> None:
        shim = self._shims.get(key)
        if shim is not None:
            shim.ask({"do": "limit", "cpu": cpu})

    def listen(self, on_change: Callable[[str], None]) -> None:
        self._listeners.append(on_change)

    async def close(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for shim in self._shims.values():
            shim.writer.close()
        self._shims.clear()
        if self._nest is not None:
            self._nest.close()

    async def warm(self) -> None:
        """Prepare for the next start, which then takes moments; without it that is so from the second on."""
        self._ensure_nest()

    def _ensure_nest(self) -> _Nest:
        if self._nest is None or self._nest.has_ended:
            if self._nest is not None:
                self._nest.close()
            self._nest = _Nest(self._folder)
        return self._nest

    async def _spawn(self, spec: ReplicaSpec) -> ReplicaState:
        """Start a shim, and return what it says once its app runs."""
        line = wire.spec_line(spec)
        said = await (nest := self._ensure_nest()).ask(spec.key, line)
        if not said and await nest.why_ended():
            said = await (nest := self._ensure_nest()).ask(spec.key, line)
        last = said.decode(errors="replace").strip().rpartition("\n")[2]
        if not last.startswith("{"):
            why = last or await nest.why_ended() or "its supervisor process was ended"
            raise CannotStart(f"it cannot be started: {why}")
        answer = json.loads(last)
        if "error" in answer:
            raise CannotStart(answer["error"])
        return wire.read_state(answer["state"])

    async def _connect(self, key: str, token: str) -> bool:
        """Connect to a shim and say the token; False where nobody answers to it."""
        folder = self._folder / key
        try:
            async with asyncio.timeout(ANSWER_S):
                reader, writer = await _open(folder, token)
                line = await reader.readline()
        except (OSError, TimeoutError):
            return False
        if not line:
            writer.close()
            return False
        shim = self._shims[key] = _Shim(key, token, folder, wire.read_state(json.loads(line)), writer)
        self._keep_task(self._follow(shim, reader))
        return True

    def _turn(self, key: str) -> asyncio.Lock:
        """Return what is held while a replica is started: nobody starts it twice, or stops it before it is there."""
        return self._turns.setdefault(key, asyncio.Lock())

    async def _until_ended(self, key: str) -> None:
        """Wait for what ran under a key when we came, and is being ended."""
        if (ending := self._ending.get(key)) is not None:
            await asyncio.wait({ending})

    def _keep_task(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def _follow(self, shim: _Shim, reader: asyncio.StreamReader) -> None:
        """Take in what a shim says until it has gone."""
        with contextlib.suppress(ConnectionError, ValueError):
            while line := await reader.readline():
                shim.state = wire.read_state(json.loads(line))
                shim.answer(shim.state)
                self._tell(shim.key)
        await self._lose(shim)

    async def _lose(self, shim: _Shim) -> None:
        """Forget a shim. One that lives on although it does not talk to us any more is asked again, then ended."""
        shim.writer.close()
        is_done = shim.state.phase == "stopped"
        if not is_done and await self._connect(shim.key, shim.token):
            return
        await _end(shim.state.pid, shim.state.started, within_s=STRANGER_S if is_done else 0.0)
        _reap(shim.state.pid)
        _remove(shim.folder)
        self._shims.pop(shim.key, None)
        shim.gone.set()
        shim.answer(None)
        self._tell(shim.key)

    def _tell(self, key: str) -> None:
        for on_change in self._listeners:
            on_change(key)


class _Nest:
    """The process that shims come from; see `moorage.runtime.shim.fork_server`. Making one does not wait for it."""

    def __init__(self, folder: Path) -> None:
        self._door, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._door.setblocking(False)
        self._last_words = ""
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 - closed with the rest
        with theirs:
            self._process = subprocess.Popen(
                # The last one is room for the names of shims, which have these arguments at first.
                [sys.executable, "-m", "moorage.runtime.shim", str(folder), " " * wire.LONGEST_KEY],
                stdin=theirs.fileno(),
                stdout=subprocess.DEVNULL,
                stderr=self._errors.fileno(),
                env=network.environment(),
                cwd="/",
                start_new_session=True,
            )

    async def ask(self, key: str, told: bytes) -> bytes:
        """Have a shim made, and tell it something; return what it says, nothing where the nest has ended over it."""
        ours, theirs = socket.socketpair()
        with contextlib.suppress(OSError), theirs:
            while True:
                if self._can_send(key, theirs):
                    break
                await asyncio.sleep(PAUSE_S)
        reader, writer = await asyncio.open_unix_connection(sock=ours)
        try:
            writer.write(told)
            return await reader.read()
        except ConnectionError:
            return b""
        finally:
            writer.close()

    def _can_send(self, key: str, stream: socket.socket) -> bool:
        try:
            return socket.send_fds(self._door, [key.encode()], [stream.fileno()]) > 0
        except BlockingIOError:
            return False  # It has been asked for very many already.

    @property
    def has_ended(self) -> bool:
        """Tell by its end of the door; it says nothing there as long as it lives."""
        try:
            self._door.recv(1)
        except BlockingIOError:
            return False
        except OSError:
            return True  # It had not heard all that it was asked, or was closed.
        return True

    async def why_ended(self) -> str | None:
        """Return the last words of a nest that has ended, or is about to; None for one that lives."""
        deadline = time.monotonic() + ENDING_S
        while not self.has_ended:
            if time.monotonic() > deadline:
                return None
            await asyncio.sleep(PAUSE_S)
        self.close()
        return self._last_words or "its supervisor process was ended"

    def close(self) -> None:
        """End it. The shims that came from it live on. Safe to repeat."""
        if self._door.fileno() >= 0:
            self._door.close()
            self._process.kill()
            self._process.wait()
            self._errors.seek(0)
            self._last_words = self._errors.read().decode(errors="replace").strip().rpartition("\n")[2]
            self._errors.close()


async def _open(folder: Path, token: str) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """Connect by way of the open folder: a path could be longer than the address of a socket may be."""
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
    opened = os.open(folder, os.O_PATH | os.O_DIRECTORY)
    try:
        sock.connect(f"/proc/self/fd/{opened}/{wire.SOCKET}")
    except OSError:
        sock.close()
        raise
    finally:
        os.close(opened)
    reader, writer = await asyncio.open_unix_connection(sock=sock, limit=wire.LONGEST_LINE)
    writer.write(wire.line({"token": token}))
    return reader, writer


def _read_card(folder: Path) -> tuple[int, int] | None:
    """Return number and start of the process that a folder belongs to; None where it does not say."""
    try:
        card = json.loads((folder / wire.CARD).read_bytes())
        return int(card["pid"]), int(card["started"])
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _remove(folder: Path) -> None:
    with contextlib.suppress(OSError):  # What cannot be removed belongs to somebody else, and is in nobody's way.
        folders.remove(folder)


def _send(pid: int, started: int, number: signal.Signals) -> bool:
    """Send a signal to just this process; False when it has ended."""
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


async def _end(pid: int, started: int, within_s: float = STRANGER_S) -> None:
    """End a shim and wait for that; it clears up after itself, unless that takes too long."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + within_s
    number = signal.SIGTERM if within_s else signal.SIGKILL
    if not _send(pid, started, number):
        return
    while process_tree.started(pid) == started:
        if loop.time() > deadline:
            _send(pid, started, signal.SIGKILL)
        await asyncio.sleep(PAUSE_S)


async def _end_stranger(folder: Path, pid: int, started: int) -> None:
    await _end(pid, started)
    _remove(folder)


def _reap(pid: int) -> None:
    """Wait for a shim that became our child when whoever started it had ended: as it does where we are process 1."""
    with contextlib.suppress(ChildProcessError):
        os.waitpid(pid, os.WNOHANG)
