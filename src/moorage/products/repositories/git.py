"""Start git processes, isolated from the configuration of the machine.

Arguments are passed as a list. Hooks cannot run (their folder is empty), git reads no configuration of a home or of the
system and never prompts, resource limits bound each process, and all of them run at low priority.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import resource
import shutil
import signal
import subprocess
from collections.abc import Mapping
from dataclasses import field
from pathlib import Path
from subprocess import DEVNULL, PIPE
from typing import IO

from moorage.core.kit.processes import children
from moorage.core.kit.processes.children import Child
from moorage.core.kit.records import dataclass
from moorage.products.repositories import priority

MIN_GIT_VERSION = (2, 30)  # Private repositories of the code host need 2.31.
MAX_MEMORY_BYTES = 2 * 2**30
MAX_STDOUT_BYTES = 64 * 2**20
MAX_STDERR_BYTES = 64 * 2**10
STOP_GRACE_S = 2.0
VERSION_TIMEOUT_S = 10

CONFIG: Mapping[str, str] = {
    "core.protectHFS": "true",
    "core.protectNTFS": "true",
    "core.fsync": "committed,reference",  # A confirmed push must survive a power failure.
    "core.packedGitWindowSize": "16m",
    "core.packedGitLimit": "256m",
    "core.bigFileThreshold": "16m",
    "pack.threads": "1",
    "pack.windowMemory": "128m",
    "gc.autoDetach": "false",
    "protocol.allow": "never",
    "submodule.recurse": "false",
    "advice.detachedHead": "false",
}


@dataclass(frozen=True, slots=True)
class Done:
    """Result of a git process."""

    code: int
    out: bytes
    complaint: str

    @property
    def text(self) -> str:
        return self.out.decode(errors="replace").strip()


class TooSlow(Exception):
    """git exceeded its timeout and was stopped."""


@dataclass(frozen=True)
class Git:
    empty: Path  # empty folder, used as the home and the hooks folder
    most_bytes: int  # maximum size of a file that git writes
    config: Mapping[str, str] = field(default_factory=dict)
    environment: Mapping[str, str] = field(default_factory=dict)

    async def start(
        self,
        *words: str | Path,
        cwd: Path,
        config: Mapping[str, str] | None = None,
        environment: Mapping[str, str] | None = None,
        stdin: int | IO[bytes] = DEVNULL,
        stderr: int = DEVNULL,
    ) -> Child:
        """Start git with its output in a pipe; the caller ends it with `stop`."""
        process = await children.start(
            self.argv(*words, config=config or {}),
            cwd=cwd,
            env={**self._base_environment(), **self.environment, **(environment or {})},
            stdin=stdin,
            stderr=stderr,
        )
        self._limit(process.pid)
        priority.be_nice(process.pid)
        if priority.is_heavy(tuple(map(str, words))):
            await _enter_group(process)
        return process

    async def run(
        self,
        *words: str | Path,
        cwd: Path,
        within_s: float,
        config: Mapping[str, str] | None = None,
        environment: Mapping[str, str] | None = None,
    ) -> Done:
        """Run git to its end; raises TooSlow. Cancellation kills git."""
        process = await self.start(*words, cwd=cwd, config=config, environment=environment, stderr=PIPE)
        assert process.stdout is not None
        assert process.stderr is not None
        try:
            async with asyncio.timeout(within_s):
                out, complaint = await asyncio.gather(
                    _read(process.stdout, MAX_STDOUT_BYTES), _read(process.stderr, MAX_STDERR_BYTES)
                )
                code = await process.wait()
        except TimeoutError:
            raise TooSlow(f"git {words[0]} took longer than {within_s:g} seconds") from None
        finally:
            await stop(process)
        return Done(code, out, complaint.decode(errors="replace"))

    def argv(self, *words: str | Path, config: Mapping[str, str]) -> list[str]:
        settings = {**CONFIG, "core.hooksPath": str(self.empty), **self.config, **config}
        options = [part for name, value in settings.items() for part in ("-c", f"{name}={value}")]
        return ["git", *options, *map(str, words)]

    def _base_environment(self) -> dict[str, str]:
        """Return the environment, which inherits only PATH."""
        return {
            "PATH": os.environ.get("PATH", os.defpath),
            "HOME": str(self.empty),
            "XDG_CONFIG_HOME": str(self.empty),
            "LC_ALL": "C.UTF-8",
            "GIT_CONFIG_NOSYSTEM": "1",
            "GIT_CONFIG_GLOBAL": os.devnull,
            "GIT_ATTR_NOSYSTEM": "1",
            "GIT_TERMINAL_PROMPT": "0",
            "GIT_LFS_SKIP_SMUDGE": "1",
        }

    def _limit(self, pid: int) -> None:
        with contextlib.suppress(ProcessLookupError):
            resource.prlimit(pid, resource.RLIMIT_AS, (MAX_MEMORY_BYTES, MAX_MEMORY_BYTES))
            resource.prlimit(pid, resource.RLIMIT_FSIZE, (self.most_bytes, self.most_bytes))
            resource.prlimit(pid, resource.RLIMIT_CORE, (0, 0))


async def _enter_group(process: Child) -> None:
    entering = asyncio.ensure_future(asyncio.to_thread(priority.GROUPS.enter, process.pid))
    try:
        await asyncio.shield(entering)
    except asyncio.CancelledError:
        await entering  # Afterwards the cgroup is registered, and `stop` removes it.
        await stop(process)
        raise


async def stop(process: Child) -> None:
    """Stop a process group with SIGTERM, then SIGKILL, and remove its cgroup."""
    await _terminate(process)
    if priority.GROUPS.has(process.pid):
        await asyncio.to_thread(priority.GROUPS.leave, process.pid)


async def _terminate(process: Child) -> None:
    for number in (signal.SIGTERM, signal.SIGKILL):
        if process.returncode is not None:
            return
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, number)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(STOP_GRACE_S):
                await process.wait()


def git_version() -> str | None:
    """Return the version of the installed git; None if it is missing or too old."""
    path = shutil.which("git")
    if path is None:
        return None
    try:
        argv = [path, "--version"]
        output = subprocess.run(argv, capture_output=True, text=True, timeout=VERSION_TIMEOUT_S, check=True).stdout
    except (OSError, subprocess.SubprocessError):
        return None
    match = re.search(r"(\d{1,9})\.(\d{1,9})[\w.]*", output)
    return match[0] if match and (int(match[1]), int(match[2])) >= MIN_GIT_VERSION else None


async def _read(stream: asyncio.StreamReader, limit: int) -> bytes:
    """Read to the end, and return the first `limit` bytes."""
    data = bytearray()
    while chunk := await stream.read(65536):
        data += chunk[: limit - len(data)]
    return bytes(data)
