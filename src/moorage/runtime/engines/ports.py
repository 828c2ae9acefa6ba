"""What the platform asks of whatever runs users' programs. Features never name an engine, and an engine no feature."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from signal import SIGTERM
from typing import Literal, Protocol

Phase = Literal["starting", "running", "waiting", "stopped"]


class CannotStart(Exception):
    """A replica cannot be started; the text is a sentence for whoever deploys it."""


@dataclass(frozen=True, slots=True)
class ReplicaSpec:
    """One replica of an app, complete: whoever has this can start it."""

    key: str  # names it on this machine, such as "r17"
    token: str  # known to the control plane and to what runs the replica, and to nobody else
    release: str  # the folder of the app's files, read-only to it
    base: str  # where that folder is below the work folder, "" for the work folder itself
    argv: list[str]
    env: Mapping[str, str]  # complete but for PORT and HOST
    binds: Mapping[str, str]  # read-only: path inside -> path outside
    hidden: list[str]  # values that must not appear in logs
    log_folder: str
    volume: str | None = None  # a folder that is kept, found at /data
    disk_mb: int = 0  # what the volume may hold; of a server, the most that one of its files may have (0 for any)
    reserve_mb: int = 0  # free disk space under which it may write no more, the largest writers first
    cpu: float = 1.0  # cores
    memory_mb: int = 512
    pids: int = 512
    uid: int = 0  # the user it runs as, where the platform is root
    doors: list[str] = field(default_factory=list)  # "address:port" of this machine that it may connect to
    allow: list[str] = field(default_factory=list)  # networks, as the operator has set them
    block: list[str] = field(default_factory=list)
    is_boxed: bool = True
    # What a server needs that is known by its address, and keeps its own files:
    port: int = 0  # the one it is found at; 0 for any that is free
    address: str = "127.0.0.1"  # of this machine, at which it is found
    stop_signal: int = SIGTERM  # asks it to end
    # Other machines connect to a public database through a proxy that speaks its protocol.
    proxy: str = ""  # the protocol, `postgresql` or `mysql`; "" for no proxy
    proxy_address: str = "0.0.0.0"  # noqa: S104 - where the proxy listens; the server itself listens at `address`
    proxy_connections: int = 0  # connections that the server has for users
    is_server: bool = False  # Its volume is never turned read-only, and it is never root.
    # What a run needs that happens once, and is found at no port:
    is_once: bool = False  # It is never started again, and what watches over it goes when it has ended.
    timeout_s: int = 0  # It is ended after so long; 0 for never.
    result: str = ""  # the file that tells how it ended, written before what watches over it goes
    image: str = ""  # the root of an unpacked image, which takes the place of the system's files and of the release
    workdir: str = ""  # the folder of the image that it begins in, "" for its root
    log_bytes: int = 0  # Of its log only the newest so many are kept; 0 for as many as an app's.


@dataclass(frozen=True, slots=True)
class ReplicaState:
    """What a replica is doing. Figures are as of the last look."""

    key: str
    pid: int  # of what watches over it; with `started` it is one process for good
    started: int
    port: int  # of this machine; 0 for a run that happens once
    phase: Phase  # `waiting`: it crashed, and is started again after a while
    is_listening: bool = False
    app_pid: int | None = None
    restarts: int = 0
    exit_code: int | None = None  # of the last time it ended
    reason: str | None = None  # why it ended, where the platform ended it
    cpu_us: int = 0
    memory_bytes: int = 0
    connections: int = 0
    disk_bytes: int = 0


class Replicas(Protocol):
    """Runs replicas, which go on when the control plane ends."""

    async def adopt(self, tokens: Mapping[str, str]) -> None:
        """Find what runs already, by key and token. What runs with no such token is ended: nobody will ask for it."""
        ...

    def states(self) -> Mapping[str, ReplicaState]:
        """Return every replica that runs, by key."""
        ...

    async def start(self, spec: ReplicaSpec) -> ReplicaState:
        """Start a replica, and return as soon as something watches over it; raises CannotStart."""
        ...

    async def look(self, key: str) -> ReplicaState | None:
        """Return a fresh state, None where there is no such replica (any more)."""
        ...

    async def stop(self, key: str, grace_s: float) -> None:
        """Ask it to end, and end it after a while; returns when it is gone. Safe to repeat."""
        ...

    async def limit(self, key: str, cpu: float | None) -> None:
        """Let it use so many cores at most; None for as many as there are."""
        ...

    def listen(self, on_change: Callable[[str], None]) -> None:
        """Be called with the key of a replica whenever its state changes, or it is gone."""
        ...

    async def close(self) -> None:
        """Let go of all replicas, which run on."""
        ...
