"""Interface between products and engines, which run users' programs.

Products never name a concrete engine, and engines name no product.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, field
from signal import SIGTERM
from typing import Any, Literal, NamedTuple, Protocol

Health = Literal["", "starting", "healthy", "unhealthy"]  # of a HEALTHCHECK command; "" without one
Phase = Literal["starting", "running", "waiting", "stopped"]
THIS_MACHINE = "127.0.0.1"  # host of workloads that only this machine reaches


class Address(NamedTuple):
    """TCP address at which the platform and other workloads reach a workload."""

    port: int
    host: str = THIS_MACHINE

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


HostOf = Callable[[str, str], str]  # key of a workload and its stored address -> its present address, "" for none


def stored_host(key: str, stored: str) -> str:
    """Return the stored address: the process that runs a workload stores each change."""
    return stored


class Egress(NamedTuple):
    """Rule that lets a workload connect to another one."""

    workload: str  # `name` of the other one, such as `database-17`: its key changes when a replica takes over
    address: Address  # at which the workload connects; an engine that knows workloads by name needs no address


class CannotStart(Exception):
    """A replica cannot be started; the text is a sentence for the user."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaSpec:
    """Common part of AppSpec, ServerSpec and RunSpec. It names no folder and no address of a machine."""

    key: str  # identifies the workload in its engine, such as "r17"
    token: str  # secret that authenticates the control process to the supervisor of the workload
    name: str = ""  # stable name for egress rules, such as "database-17"; the next replica has it too
    argv: list[str]
    env: Mapping[str, str]  # complete except for PORT and HOST
    files: object = None  # files of the program as `Programs.prepare` returned them; only the engine reads them
    hidden: list[str] = field(default_factory=list)  # values to mask in logs
    log: str  # name of its log, such as "apps/17"
    volume: str | None = None  # name of its persistent volume, mounted at /data
    disk_mb: int = 0  # size limit of the volume; for a server, of each of its files (0 for none)
    reserve_mb: int = 0  # below this free disk space the volume becomes read-only, largest writers first
    cpu: float = 1.0  # cores
    memory_mb: int = 512
    pids: int = 512
    uid: int = 0  # numeric user of its processes and of its volume; 0 for the choice of the engine
    egress: list[Egress] = field(default_factory=list)  # workloads that it may connect to
    allow: list[str] = field(default_factory=list)  # networks from the operator's settings
    block: list[str] = field(default_factory=list)
    is_boxed: bool = True  # Run in a sandbox.
    stop_signal: int = SIGTERM


@dataclass(frozen=True, slots=True, kw_only=True)
class AppSpec(ReplicaSpec):
    """App of a project: listens on any free port of the loopback address."""

    inside_port: int = 0  # value of PORT in a sandbox; 0 for the port of the host
    health_argv: list[str] = field(default_factory=list)  # command of an image's HEALTHCHECK, run in the sandbox
    health_interval_s: float = 30.0
    health_timeout_s: float = 30.0
    health_start_s: float = 0.0  # failures within this time after the start do not count
    health_retries: int = 3
    health_restart_s: float = 300.0  # An app that is unhealthy for this time is restarted.


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerSpec(ReplicaSpec):
    """Database server: manages its own files, so its volume never becomes read-only; never runs as root."""

    port: int = 0  # 0 for any free port
    # Other machines connect to a public database through a proxy that knows its protocol.
    proxy: str = ""  # the protocol, `postgresql` or `mysql`; "" for no proxy
    proxy_address: str = "0.0.0.0"  # noqa: S104 - where the proxy listens; the server itself listens on loopback
    proxy_connections: int = 0  # connections that the server has for users
    agent_port: int = 0  # port at which the agent of the server serves the platform; 0 without one


@dataclass(frozen=True, slots=True, kw_only=True)
class RunSpec(ReplicaSpec):
    """One-off run: has no port and is never restarted; its state has its exit code until it is stopped."""

    timeout_s: int = 0  # 0 for none
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
    ended_ms: int = 0  # end of a one-off run by the clock of its machine; 0 if unknown

    @property
    def is_once(self) -> bool:
        return self.port == 0

    @property
    def address(self) -> Address:
        return Address(self.port, self.host)


class Replicas(Protocol):
    """Runs replicas, which outlive the control process."""

    def states(self) -> Mapping[str, ReplicaState]:
        """Return the states of all replicas, by key; an ended one-off run stays until it is stopped."""
        ...

    async def start(self, spec: ReplicaSpec) -> ReplicaState:
        """Start a replica; return when its program runs. Raises CannotStart."""
        ...

    async def look(self, key: str) -> ReplicaState | None:
        """Request a new state from the shim; None if the replica does not exist."""
        ...

    async def stop(self, key: str, grace_s: float) -> None:
        """Terminate a replica, kill it after `grace_s`, wait for it, forget it. Safe to repeat.

        Raises CannotStart, with the reason, if the engine cannot end it now.
        """
        ...

    async def limit(self, key: str, cpu: float | None) -> None:
        """Limit a replica to a number of cores; None for no limit."""
        ...

    def listen(self, on_change: Callable[[str], None]) -> None:
        """Register a callback for the keys of replicas that changed or ended."""
        ...


class LogLine(NamedTuple):
    at: int
    stream: str  # `stdout`, `stderr`, or `system` for messages of the platform
    replica: str  # key of the workload
    message: str
    id: str  # identifies the line; for a line of a LogReader, the position to continue after it


class LogReader(Protocol):
    """Position in a log."""

    async def news(self) -> list[LogLine]:
        """Return the next lines, ordered by time, and advance; none if there are none yet."""
        ...

    async def wait(self, timeout_s: float) -> None:
        """Return when the log may have news, at the latest after the timeout."""
        ...


class LogWriter(Protocol):
    """Adds messages of the platform to a log; secrets are masked."""

    def write(self, stream: Literal["system"], data: bytes) -> None: ...

    def close(self) -> None: ...


class Logs(Protocol):
    """Output of workloads, kept by the name of the log, such as `apps/17`."""

    async def read(
        self, log: str, *, since: int | None = None, until: int | None = None, search: str | None = None, limit: int
    ) -> list[LogLine]:
        """Return the newest lines between two times that contain `search`, oldest first."""
        ...

    async def open(self, log: str, *, after: str | None = None, tail: int | None = None) -> LogReader:
        """Return a reader that starts after the line with the id `after`.

        Without a valid id it starts with the newest `tail` lines, or with the first line if `tail` is None.
        """
        ...

    def writer(self, log: str, key: str, hidden: Iterable[str]) -> LogWriter: ...

    async def forget(self, log: str) -> None:
        """Delete a log and all logs below its name. Safe to repeat."""
        ...

    async def trim(self, group: str, now_ms: int) -> None:
        """Delete the lines of the logs `<group>/…` that exceed the age or size limit."""
        ...


class Usage(NamedTuple):
    """Measurement of a workload's processes."""

    memory_bytes: int  # without the page cache; shared memory counts once
    age_ms: int | None  # since the start of its program


class Metrics(Protocol):
    """Measurements that take longer than `Replicas.look`."""

    async def usage(self, key: str) -> Usage | None:
        """Measure a workload; None if its program does not run."""
        ...

    def volume_bytes(self, key: str, volume: str) -> int:
        """Return the size of a volume, with deleted files that the workload holds open. Blocks."""
        ...

    def forget(self, key: str) -> None:
        """Drop the state that is kept between measurements of a volume."""
        ...


class Volumes(Protocol):
    """Persistent folders of apps. The volumes of an owner are named `<owner>` and `<owner>-…`."""

    async def ensure(self, volume: str, *, uid: int, size_mb: int, org_id: int = 0) -> None:
        """Create a volume of an organization unless it exists, and limit its size. Safe to repeat."""
        ...

    async def used_bytes(self, volume: str) -> int: ...

    async def names(self) -> list[str]: ...

    async def discard(self, owner: str) -> None:
        """Move the volumes of an owner to the trash. Safe to repeat."""
        ...

    async def purge(self, owner: str) -> None:
        """Delete the volumes of an owner that are in the trash. Safe to repeat."""
        ...


OutputStream = Literal["stdout", "stderr"]


class CommandEnd(NamedTuple):
    code: int
    why: str | None  # why the engine ended the command; None if it ended by itself


class Commands(Protocol):
    """One-off commands beside an app."""

    async def run(
        self, beside: AppSpec, argv: list[str], put: Callable[[OutputStream, bytes], None], *, timeout_s: float
    ) -> CommandEnd:
        """Run a command with the files, variables, volume and network of an app; cancelling kills it.

        `beside` is the spec of a replica, which need not run. `put` gets the output piece by piece.
        """
        ...


class Owner(NamedTuple):
    """Owner of a program. The user ids inside an image are mapped to other ids for each owner."""

    kind: Literal["app", "cronjob"]
    id: int


@dataclass(frozen=True, slots=True)
class Release:
    """Build in the artifact store: a folder or an image, and the plan that says how it starts."""

    org_id: int
    digest: str
    plan: str  # JSON, as the builder made it
    owner: Owner
    command: str = ""  # replaces the start command of the plan


@dataclass(frozen=True, slots=True)
class PublicImage:
    """Image in a registry."""

    org_id: int
    reference: str  # such as "registry.example/tool:1"
    owner: Owner
    command: str = ""  # replaces the command of the image


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """Program that an engine has prepared."""

    argv: list[str]
    env: Mapping[str, str]
    files: object = None  # for the field of this name in a ReplicaSpec
    stop_signal: int = SIGTERM
    # Of an image:
    digest: str = ""  # of its manifest
    ports: tuple[int, ...] = ()  # that it exposes
    health: Mapping[str, Any] = field(default_factory=dict)  # fields of an AppSpec with its health check


class Programs(Protocol):
    """Files of programs."""

    async def prepare(self, release: Release, env: Mapping[str, str], memory_mb: int) -> Program:
        """Fetch the files and runtimes of a release, and return how to start it. Raises CannotStart."""
        ...

    async def pull(self, image: PublicImage, env: Mapping[str, str], report: Callable[[str], None]) -> Program:
        """Pull an image, report the progress, and return how to start it. Raises CannotStart."""
        ...

    async def fetch(self, org_id: int, digest: str) -> None:
        """Fetch the files of a release before its first start. Safe to repeat."""
        ...

    async def remove_unused(self, digests: Iterable[str]) -> None:
        """Delete the files of those releases that no row refers to. Safe to repeat."""
        ...

    async def collect(self) -> None:
        """Delete the files of all releases that no row refers to."""
        ...


class Agents(Protocol):
    """Database servers behind agents, for engines whose volumes the platform cannot reach as folders.

    A workload runs the agent, which runs the server on the workload's volume and serves the platform.
    """

    def program(self, org_id: int) -> Program:
        """Return the program of an agent for a ServerSpec of an organization."""
        ...

    def host_name(self, org_id: int, name: str) -> str:
        """Return the host name by which workloads reach the server with this `name` in its spec."""
        ...

    async def ensure_volume(self, org_id: int, volume: str, size_mb: int) -> None:
        """Create a volume of an organization, or let it grow; it never shrinks. Raises CannotStart."""
        ...

    async def discard(self, volume: str) -> None:
        """Move a volume to the trash. Safe to repeat. Raises CannotStart."""
        ...

    async def take_back(self, volume: str) -> None:
        """Take a volume out of the trash. Safe to repeat. Raises CannotStart."""
        ...

    async def purge(self, volume: str) -> None:
        """Delete a volume that is in the trash. Safe to repeat. Raises CannotStart."""
        ...


async def _is_usable() -> None:
    """Nothing to check."""


@dataclass(frozen=True)
class Engine:
    """All ports of one engine."""

    workloads: ReplicaEngine
    logs: Logs
    metrics: Metrics
    volumes: Volumes
    commands: Commands
    agents: Agents | None = None  # None if database servers work on folders of this machine
    # Raises CannotStart, for the operator, if the engine cannot work with its settings; called once at the start.
    check: Callable[[], Awaitable[None]] = _is_usable
    is_exclusive: bool = False  # One machine at a time may use it, because it ends workloads that it does not know.


class ReplicaEngine(Replicas, Protocol):
    """Engine as the platform starts and ends it."""

    async def adopt(self, tokens: Mapping[str, str]) -> list[str]:
        """Adopt running replicas by key and token; stop those with an unknown token.

        Return the keys of which the engine can prove that they were never started.
        """
        ...

    async def close(self) -> None:
        """Disconnect from all replicas, which continue to run."""
        ...


class Locator(Protocol):
    """Present addresses of apps that an engine moves by itself, for a process that does not run them."""

    def host_of(self, key: str, stored: str) -> str:
        """Return the address at which a workload listens, else the stored one; "" if another workload has that."""
        ...

    async def load(self, within_s: float) -> str | None:
        """Read the addresses for the first time; return the reason if that fails."""
        ...

    async def run(self) -> None:
        """Follow the changes until it is cancelled."""
        ...

    async def close(self) -> None: ...
