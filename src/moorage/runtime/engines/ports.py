"""Interface between products and engines, which run users' programs.

Products never name a concrete engine, and engines name no product.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from signal import SIGTERM
from typing import Literal, NamedTuple, Protocol

Health = Literal["", "starting", "healthy", "unhealthy"]  # of a HEALTHCHECK command; "" without one
Phase = Literal["starting", "running", "waiting", "stopped"]
THIS_MACHINE = "127.0.0.1"  # host of workloads that only this machine reaches


class Address(NamedTuple):
    """TCP address at which the platform and other workloads reach a workload."""

    port: int
    host: str = THIS_MACHINE

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


class CannotStart(Exception):
    """A replica cannot be started; the text is a sentence for the user."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaSpec:
    """Common part of AppSpec, ServerSpec and RunSpec; sent to the shim by field name."""

    key: str  # identifies the replica on this machine, such as "r17"
    token: str  # secret that authenticates the control process to the shim
    release: str = ""  # folder of the program's files, mounted read-only
    base: str = ""  # mount point of `release` below the work folder, "" for the work folder itself
    workdir: str = ""  # working directory in the release or in the image, "" for its root
    argv: list[str]
    env: Mapping[str, str]  # complete except for PORT and HOST
    binds: Mapping[str, str] = field(default_factory=dict)  # read-only bind mounts: path inside -> path outside
    hidden: list[str] = field(default_factory=list)  # values to mask in logs
    log_folder: str
    volume: str | None = None  # persistent folder, mounted at /data
    disk_mb: int = 0  # size limit of the volume; for a server, of each of its files (0 for none)
    reserve_mb: int = 0  # below this free disk space the volume becomes read-only, largest writers first
    cpu: float = 1.0  # cores
    memory_mb: int = 512
    pids: int = 512
    uid: int = 0  # user of the process, if the platform runs as root
    doors: list[str] = field(default_factory=list)  # egress rules: "address:port" of this machine
    allow: list[str] = field(default_factory=list)  # networks from the operator's settings
    block: list[str] = field(default_factory=list)
    is_boxed: bool = True  # Run in a sandbox.
    stop_signal: int = SIGTERM
    image: str = ""  # root folder of an unpacked image, which replaces the system's files and the release
    image_user: str = ""  # USER of the image, resolved in its own accounts; "" for root inside
    image_ids: int = 0  # first host id of the range for the ids of the image, if the platform runs as root


@dataclass(frozen=True, slots=True, kw_only=True)
class AppSpec(ReplicaSpec):
    """App of a project: listens on any free port of the loopback address."""

    inside_port: int = 0  # value of PORT in a sandbox; 0 for the port of the host
    health_argv: list[str] = field(default_factory=list)  # command of an image's HEALTHCHECK, run in the sandbox
    health_interval_s: float = 30.0
    health_timeout_s: float = 30.0
    health_start_s: float = 0.0  # failures within this time after the start do not count
    health_retries: int = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerSpec(ReplicaSpec):
    """Database server: manages its own files, so its volume never becomes read-only; never runs as root."""

    port: int = 0  # 0 for any free port
    # Other machines connect to a public database through a proxy that knows its protocol.
    proxy: str = ""  # the protocol, `postgresql` or `mysql`; "" for no proxy
    proxy_address: str = "0.0.0.0"  # noqa: S104 - where the proxy listens; the server itself listens on loopback
    proxy_connections: int = 0  # connections that the server has for users


@dataclass(frozen=True, slots=True, kw_only=True)
class RunSpec(ReplicaSpec):
    """One-off run: has no port and is never restarted; the shim exits with it."""

    timeout_s: int = 0  # 0 for none
    result: str = ""  # result file, written before the shim exits
    log_bytes: int = 0  # size limit of the log, which keeps the newest lines; 0 for the limit of apps


@dataclass(frozen=True, slots=True)
class ReplicaState:
    """State of a replica, with figures as of the shim's last report."""

    key: str
    pid: int  # of the shim; unique together with `started`
    started: int  # start time of the shim in clock ticks since boot
    port: int  # 0 for a one-off run
    phase: Phase  # `waiting`: crashed, restarts after a delay
    is_listening: bool = False
    app_pid: int | None = None
    restarts: int = 0
    exit_code: int | None = None  # of the last run
    reason: str | None = None  # why the last run ended
    cpu_us: int = 0
    memory_bytes: int = 0
    connections: int = 0
    disk_bytes: int = 0
    health: Health = ""
    other_port: int = 0  # port that the app listens on instead of PORT, as the app calls it; 0 for none
    host: str = THIS_MACHINE

    @property
    def address(self) -> Address:
        return Address(self.port, self.host)


class Replicas(Protocol):
    """Runs replicas, which outlive the control process."""

    def states(self) -> Mapping[str, ReplicaState]:
        """Return the states of all running replicas, by key."""
        ...

    async def start(self, spec: ReplicaSpec) -> ReplicaState:
        """Start a replica; return when its program runs. Raises CannotStart."""
        ...

    async def look(self, key: str) -> ReplicaState | None:
        """Request a new state from the shim; None if the replica does not exist."""
        ...

    async def stop(self, key: str, grace_s: float) -> None:
        """Terminate a replica, kill it after `grace_s`, wait for it. Safe to repeat."""
        ...

    async def limit(self, key: str, cpu: float | None) -> None:
        """Limit a replica to a number of cores; None for no limit."""
        ...

    def listen(self, on_change: Callable[[str], None]) -> None:
        """Register a callback for the keys of replicas that changed or ended."""
        ...


class ReplicaEngine(Replicas, Protocol):
    """Engine as the platform starts and ends it."""

    async def adopt(self, tokens: Mapping[str, str]) -> None:
        """Adopt running replicas by key and token; stop those with an unknown token."""
        ...

    async def close(self) -> None:
        """Disconnect from all replicas, which continue to run."""
        ...
