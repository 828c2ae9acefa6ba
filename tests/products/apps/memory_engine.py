"""Engine for tests: replicas are small HTTP servers of this process, without the time of a sandbox."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

from moorage.runtime.engines.ports import CannotStart, ReplicaSpec, ReplicaState

_starts = itertools.count(1)


@dataclass
class Server:
    spec: ReplicaSpec
    state: ReplicaState
    server: asyncio.Server | None = None


@dataclass
class MemoryReplicas:
    """Told to fail, it does: by status of the health check, or by not starting at all."""

    status: int = 200
    refusal: str | None = None
    crashes: bool = False
    ends_after_answer: int = 0  # how many runs of a replica end after their first answer
    running: dict[str, Server] = field(default_factory=dict)
    limits: dict[str, float | None] = field(default_factory=dict)
    stopped: list[str] = field(default_factory=list)
    adopted: dict[str, str] = field(default_factory=dict)
    listeners: list[Callable[[str], None]] = field(default_factory=list)

    async def adopt(self, tokens: Mapping[str, str]) -> list[str]:
        self.adopted = dict(tokens)
        for key in [key for key, server in self.running.items() if tokens.get(key) != server.spec.token]:
            await self.stop(key, 0)
        return []

    def states(self) -> Mapping[str, ReplicaState]:
        return {key: server.state for key, server in self.running.items()}

    async def start(self, spec: ReplicaSpec) -> ReplicaState:
        if self.refusal is not None:
            raise CannotStart(self.refusal)
        if self.crashes:
            crashed = ReplicaState(spec.key, 1, next(_starts), 1, "waiting", restarts=3, exit_code=1)
            self.running[spec.key] = Server(spec, crashed)
            return crashed
        server = await asyncio.start_server(self._answer, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        state = ReplicaState(spec.key, 1, next(_starts), port, "running", is_listening=True)
        self.running[spec.key] = Server(spec, state, server)
        return state

    async def look(self, key: str) -> ReplicaState | None:
        return self.states().get(key)

    async def stop(self, key: str, grace_s: float) -> None:
        if (found := self.running.pop(key, None)) is not None:
            self.stopped.append(key)
            if found.server is not None:
                found.server.close()
            self._tell(key)

    async def limit(self, key: str, cpu: float | None) -> None:
        self.limits[key] = cpu

    def listen(self, on_change: Callable[[str], None]) -> None:
        self.listeners.append(on_change)

    async def close(self) -> None:
        for server in self.running.values():
            if server.server is not None:
                server.server.close()

    def lose(self, key: str) -> None:
        """End a replica without the reconciler's request."""
        found = self.running.pop(key)
        if found.server is not None:
            found.server.close()
        self._tell(key)

    def set(self, key: str, **changed: object) -> None:
        self.running[key].state = replace(self.running[key].state, **changed)  # type: ignore[arg-type]

    def _tell(self, key: str) -> None:
        for listener in self.listeners:
            listener(key)

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(f"HTTP/1.1 {self.status} X\r\nContent-Length: 0\r\nConnection: close\r\n\r\n".encode())
        await writer.drain()
        writer.close()
        for server in [each for each in self.running.values() if each.state.restarts < self.ends_after_answer]:
            count = server.state.restarts + 1
            self.set(server.spec.key, restarts=count, exit_code=0)
            self._tell(server.spec.key)
