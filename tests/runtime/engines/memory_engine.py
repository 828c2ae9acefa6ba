"""Engine in memory: runs the programs of the contract as tasks of this process, without the time of a sandbox."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import socket
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from tests.runtime.engines.contract.programs import Process

from moorage.core.kit.masking import Masker
from moorage.runtime.engines.ports import (
    AppSpec,
    CannotStart,
    CommandEnd,
    Engine,
    LogLine,
    OutputStream,
    ReplicaSpec,
    ReplicaState,
    RunSpec,
    ServerSpec,
    Usage,
)

PROGRAMS = ("serve", "exit", "sleep", "stubborn", "crash")
RESTART_PAUSES_S = (0.0, 0.05, 30.0)
KEPT_MS = 7 * 24 * 3_600_000
_pids = itertools.count(1)


@dataclass
class Machine:
    """Everything that outlives a control process."""

    running: dict[str, Supervised] = field(default_factory=dict)
    ended: dict[str, tuple[str, ReplicaState]] = field(default_factory=dict)  # one-off runs: token and state
    lines: dict[str, list[LogLine]] = field(default_factory=dict)
    volumes: dict[str, dict[str, str]] = field(default_factory=dict)
    trash: dict[str, dict[str, str]] = field(default_factory=dict)

    def say(self, log: str, stream: str, key: str, text: str) -> None:
        lines = self.lines.setdefault(log, [])
        lines.append(LogLine(int(time.time() * 1000), stream, key, text, str(len(lines) + 1)))


class Supervised:
    """A workload and its restarts."""

    def __init__(self, machine: Machine, spec: ReplicaSpec, on_change: Callable[[str], None]) -> None:
        self.spec = spec
        self.on_change = on_change
        self._machine = machine
        self._is_stopping = asyncio.Event()
        self._mask = Masker(spec.hidden)
        is_once = isinstance(spec, RunSpec)
        port = spec.port if isinstance(spec, ServerSpec) else 0
        self.state = ReplicaState(spec.key, next(_pids), 1, 0 if is_once else port or _free_port(), "running")
        self.process = self._make_process()
        self.task = asyncio.create_task(self._run_once() if is_once else self._supervise())

    def _make_process(self) -> Process:
        is_once = isinstance(self.spec, RunSpec)
        inside = self.spec.inside_port if isinstance(self.spec, AppSpec) else 0
        told = {} if is_once else {"PORT": str(inside or self.state.port), "HOST": "0.0.0.0"}
        allowed = {each.workload for each in self.spec.egress}
        running = self._machine.running
        return Process(
            env={**self.spec.env, **told},
            say=lambda stream, text: self.say(stream, self._mask(text)),
            files=self._machine.volumes.setdefault(self.spec.volume, {}) if self.spec.volume else {},
            may_connect=lambda port: any(
                each.state.port == port and each.spec.name in allowed for each in running.values()
            ),
            on_listening=lambda: self._set(is_listening=True),
            port=self.state.port,
        )

    def say(self, stream: str, text: str) -> None:
        self._machine.say(self.spec.log, stream, self.spec.key, text)

    async def _run_process(self) -> tuple[int, str]:
        program, *words = self.spec.argv
        code = await self.process.run(program, words)
        return code, f"it ended with exit code {code}"

    async def _run_once(self) -> None:
        assert isinstance(self.spec, RunSpec)
        reason = None
        try:
            async with asyncio.timeout(self.spec.timeout_s or None):
                code, why = await self._run_process()
                reason = "it was stopped" if self._is_stopping.is_set() else why if code else None
        except TimeoutError:
            code, seconds = 143, self.spec.timeout_s
            reason = f"it took longer than {seconds} second{'' if seconds == 1 else 's'}"
        except asyncio.CancelledError:
            code, reason = 137, "it was stopped"
        self.say("system", f"ended: {reason or f'it ended with exit code {code}'}")
        ended_ms = int(time.time() * 1000)
        self.state = replace(self.state, phase="stopped", exit_code=code, reason=reason, ended_ms=ended_ms)
        self._machine.running.pop(self.spec.key, None)
        self._machine.ended[self.spec.key] = (self.spec.token, self.state)
        self.on_change(self.spec.key)

    async def _supervise(self) -> None:
        with contextlib.suppress(asyncio.CancelledError):
            while not self._is_stopping.is_set():
                code, why = await self._run_process()
                if self._is_stopping.is_set():
                    break
                pause = RESTART_PAUSES_S[min(self.state.restarts, len(RESTART_PAUSES_S) - 1)]
                self.say("system", f"ended: {why}; starting again")
                self._set(phase="waiting", is_listening=False, exit_code=code, reason=why)
                await asyncio.sleep(pause)
                self._set(phase="running", restarts=self.state.restarts + 1)
                self.process = self._make_process()
        if self.process.server is not None:
            self.process.server.close()

    def _set(self, **changed: Any) -> None:
        self.state = replace(self.state, **changed)
        self.on_change(self.spec.key)

    async def stop(self, grace_s: float) -> None:
        self._is_stopping.set()
        self.process.terminated.set()
        if self.state.phase == "waiting":
            self.task.cancel()
        await asyncio.wait({self.task}, timeout=grace_s)
        self.task.cancel()
        await asyncio.wait({self.task})


class MemoryWorkloads:
    def __init__(self, machine: Machine) -> None:
        self._machine = machine
        self._adopted: set[str] = set()
        self._listeners: list[Callable[[str], None]] = []

    async def adopt(self, tokens: Mapping[str, str]) -> list[str]:
        known = {*self._machine.running, *self._machine.ended}
        for key, each in list(self._machine.running.items()):
            if tokens.get(key) == each.spec.token:
                each.on_change = self._notify
                self._adopted.add(key)
            else:
                await each.stop(0.0)
                self._machine.running.pop(key, None)
        ended = self._machine.ended
        self._machine.ended = {key: each for key, each in ended.items() if tokens.get(key) == each[0]}
        self._adopted.update(self._machine.ended)
        return [key for key in tokens if key not in known]

    def states(self) -> Mapping[str, ReplicaState]:
        found = {key: state for key, (_, state) in self._machine.ended.items()}
        found.update((key, each.state) for key, each in self._machine.running.items())
        return {key: state for key, state in found.items() if key in self._adopted}

    async def start(self, spec: ReplicaSpec) -> ReplicaState:
        if spec.key in self._machine.running:
            return self._machine.running[spec.key].state
        if spec.argv[0] not in PROGRAMS:
            raise CannotStart(f"it cannot be started: there is no program {spec.argv[0]!r}")
        self._machine.ended.pop(spec.key, None)
        self._adopted.add(spec.key)
        made = self._machine.running[spec.key] = Supervised(self._machine, spec, self._notify)
        await asyncio.sleep(0.01)
        return made.state

    async def look(self, key: str) -> ReplicaState | None:
        state = self.states().get(key)
        running = self._machine.running.get(key)
        return replace(state, connections=running.process.connections) if state and running else state

    async def stop(self, key: str, grace_s: float) -> None:
        running = self._machine.running.get(key)
        if running is not None:
            await running.stop(grace_s)
            self._machine.running.pop(key, None)
        self._machine.ended.pop(key, None)
        self._adopted.discard(key)
        if running is not None:
            self._notify(key)

    async def limit(self, key: str, cpu: float | None) -> None:
        pass

    def listen(self, on_change: Callable[[str], None]) -> None:
        self._listeners.append(on_change)

    async def close(self) -> None:
        for each in self._machine.running.values():
            each.on_change = lambda _: None

    def _notify(self, key: str) -> None:
        for on_change in self._listeners:
            on_change(key)


@dataclass
class MemoryReader:
    lines: Callable[[], list[LogLine]]
    position: int

    async def news(self) -> list[LogLine]:
        found = self.lines()[self.position :]
        self.position += len(found)
        return found

    async def wait(self, timeout_s: float) -> None:
        await asyncio.sleep(min(timeout_s, 0.01))


@dataclass
class MemoryWriter:
    machine: Machine
    log: str
    key: str
    masker: Masker

    def write(self, stream: str, data: bytes) -> None:
        self.machine.say(self.log, stream, self.key, self.masker(data.decode().rstrip("\n")))

    def close(self) -> None:
        pass


class MemoryLogs:
    def __init__(self, machine: Machine) -> None:
        self._machine = machine

    async def read(
        self, log: str, *, since: int | None = None, until: int | None = None, search: str | None = None, limit: int
    ) -> list[LogLine]:
        lines = [
            line
            for line in self._machine.lines.get(log, [])
            if (since is None or line.at >= since) and (until is None or line.at <= until)
        ]
        return [line for line in lines if (search or "").lower() in line.message.lower()][-limit:]

    async def open(self, log: str, *, after: str | None = None, tail: int | None = None) -> MemoryReader:
        def lines() -> list[LogLine]:
            return self._machine.lines.get(log, [])

        if after is not None and after.isdecimal():
            return MemoryReader(lines, int(after))
        return MemoryReader(lines, 0 if tail is None else max(0, len(lines()) - tail))

    def writer(self, log: str, key: str, hidden: Iterable[str]) -> MemoryWriter:
        return MemoryWriter(self._machine, log, key, Masker(list(hidden)))

    async def forget(self, log: str) -> None:
        for name in [each for each in self._machine.lines if each == log or each.startswith(f"{log}/")]:
            del self._machine.lines[name]

    async def trim(self, group: str, now_ms: int) -> None:
        for name, lines in self._machine.lines.items():
            if name.startswith(f"{group}/"):
                lines[:] = [line for line in lines if line.at >= now_ms - KEPT_MS]


class MemoryVolumes:
    def __init__(self, machine: Machine) -> None:
        self._machine = machine

    async def ensure(self, volume: str, *, uid: int, size_mb: int, org_id: int = 0) -> None:
        self._machine.volumes.setdefault(volume, {})

    async def used_bytes(self, volume: str) -> int:
        return sum(map(len, self._machine.volumes.get(volume, {}).values()))

    async def names(self) -> list[str]:
        return sorted(self._machine.volumes)

    async def discard(self, owner: str) -> None:
        for name in _of(owner, self._machine.volumes):
            self._machine.trash[name] = self._machine.volumes.pop(name)

    async def purge(self, owner: str) -> None:
        for name in _of(owner, self._machine.trash):
            del self._machine.trash[name]


def _of(owner: str, volumes: Iterable[str]) -> list[str]:
    return [name for name in volumes if name == owner or name.startswith(f"{owner}-")]


class MemoryMetrics:
    def __init__(self, machine: Machine) -> None:
        self._machine = machine

    async def usage(self, key: str) -> Usage | None:
        return Usage(2**20, 1) if key in self._machine.running else None

    def volume_bytes(self, key: str, volume: str) -> int:
        return sum(map(len, self._machine.volumes.get(volume, {}).values()))

    def forget(self, key: str) -> None:
        pass


class MemoryCommands:
    """Runs the scripts of the contract."""

    def __init__(self, machine: Machine) -> None:
        self._machine = machine

    async def run(
        self, beside: AppSpec, argv: list[str], put: Callable[[OutputStream, bytes], None], *, timeout_s: float
    ) -> CommandEnd:
        files = self._machine.volumes.get(beside.volume or "", {})
        for step in argv[-1].split("; "):
            order, _, text = step.partition(" ")
            if order == "sleep" and float(text) > timeout_s:
                return CommandEnd(143, f"it took longer than {timeout_s:g} s")
            if order == "sleep":
                await asyncio.sleep(float(text))
            elif order == "exit":
                return CommandEnd(int(text), None)
            elif order == "cat":
                put("stdout", files[text.removeprefix("/data/")].encode())
            elif text.endswith(" >&2"):
                put("stderr", f"{text.removesuffix(' >&2')}\n".encode())
            else:
                value = beside.env.get(text[1:], "") if text.startswith("$") else text
                put("stdout", f"{value}\n".encode())
        return CommandEnd(0, None)


def make_engine(machine: Machine) -> Engine:
    return Engine(
        workloads=MemoryWorkloads(machine),
        logs=MemoryLogs(machine),
        metrics=MemoryMetrics(machine),
        volumes=MemoryVolumes(machine),
        commands=MemoryCommands(machine),
    )


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as sock:
        return int(sock.getsockname()[1])
