"""Sandbox of a tool: the software, the files that it works on, and no network."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import IO

from moorage.runtime.database_servers.ports import ServerFailed
from moorage.runtime.sandbox import root
from moorage.runtime.sandbox.runs import blocking
from moorage.runtime.sandbox.runs.job import NO_SANDBOX, Job

Take = Callable[[bytes], object]
Tracking = Callable[[Callable[[], object]], AbstractContextManager[None]]
SOFTWARE = "/software"
MOUNTS = "/mnt"
CPU_WEIGHT = 100  # the same as an app's
MEMORY_MB = 4096  # A row may have 1 GB, of which a tool has copies.
PIDS = 2048  # Without cgroups, processes of the database's server count too: it has the same user.
UNLIMITED_MB = 2**33
UNLIMITED_BYTES = 2**62
TIMEOUT_S = 86_400.0  # A large dump takes hours; a hostile server could keep a tool busy for ever.


class ToolSandbox:
    """Mounts of the tools of one Toolbox; each run is a new sandbox."""

    def __init__(self, tools: Path, uid: int) -> None:
        self._uid = uid
        self._binds: dict[str, str] = {}
        self._writable: dict[str, str] = {}
        self._tools = str(tools)
        if not any(tools.is_relative_to(path) for path in root.SYSTEM):
            software = _software_of(tools)
            self._binds[SOFTWARE] = str(software)
            self._tools = f"{SOFTWARE}/{tools.relative_to(software)}"

    def mount(self, path: Path, *, is_writable: bool) -> str:
        """Mount a file or folder, and return its path in the sandbox."""
        inside = f"{MOUNTS}/{len(self._binds) + len(self._writable)}"
        (self._writable if is_writable else self._binds)[inside] = str(path.absolute())
        return inside

    def run(
        self,
        program: str,
        args: Sequence[str],
        env: Mapping[str, str],
        stdin: IO[bytes] | None,
        take: Take | None,
        take_error: Take,
        tracking: Tracking,
    ) -> int:
        """Run a tool to its end; return its exit code, which is negative for a signal."""
        job = Job(
            argv=[f"{self._tools}/{program}", *args],
            work="",
            env=dict(env),
            binds=self._binds,
            writable=self._writable,
            uid=self._uid,
            weight=CPU_WEIGHT,
            memory_mb=MEMORY_MB,
            pids=PIDS,
            file_mb=UNLIMITED_MB,
            timeout_s=TIMEOUT_S,
            output_bytes=UNLIMITED_BYTES,
            network=False,
            stdin=None if stdin is None else stdin.fileno(),
        )
        with blocking.started(job) as process, tracking(process.terminate):
            finished = blocking.read(process, take or _drop, take_error)
        if finished.why is not None and finished.code != NO_SANDBOX:  # The runner wrote why there is none to stderr.
            raise ServerFailed(f"{program} was ended: {finished.why}")
        return finished.code if finished.code <= 128 else 128 - finished.code


def _software_of(tools: Path) -> Path:
    """Return the folder that has the tools and their libraries."""
    folders = [above for above in list(tools.parents)[:3] if any(above.glob("*.libs"))]
    return folders[-1] if folders else tools.parent


def _drop(_: bytes) -> None:
    """Ignore the output of a tool."""
