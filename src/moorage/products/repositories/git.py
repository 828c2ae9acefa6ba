"""How git is started: by argument list, knowing nothing of the machine's or anybody's configuration.

No hook can run (they are looked for in an empty folder), no file of a home or of the system is read, nothing is asked
at a terminal, what one process may use is bounded by the kernel, and all of it runs at low priority.
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
from dataclasses import dataclass, field
from pathlib import Path
from subprocess import DEVNULL, PIPE
from typing import IO

from moorage.core.kit import children
from moorage.core.kit.children import Child
from moorage.products.repositories.priority import GROUPS, be_nice, is_heavy

OLDEST_GIT = (2, 30)  # With 2.31 private repositories of the code host can be read too.
MEMORY_BYTES = 2 * 2**30
MOST_OUTPUT = 64 * 2**20
MOST_COMPLAINT = 64 * 2**10
END_S = 2.0
PROBE_S = 10

CONFIG: Mapping[str, str] = {
    "core.protectHFS": "true",
    "core.protectNTFS": "true",
    "core.fsync": "committed,reference",  # What a client was told is stored must outlive the machine's power.
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
    """A git that has ended."""

    code: int
    out: bytes
    complaint: str

    @property
    def text(self) -> str:
        return self.out.decode(errors="replace").strip()


class TooSlow(Exception):
    """git was given enough time, and stopped."""


@dataclass(frozen=True)
class Git:
    empty: Path  # a folder with nothing in it: the home, and where hooks would be
    most_bytes: int  # of one file that git writes
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
        """Start git at low priority, with its output in a pipe; the caller ends it with `stop`."""
        process = await children.start(
            self.argv(*words, config=config or {}),
            cwd=cwd,
            env={**self._clean(), **self.environment, **(environment or {})},
            stdin=stdin,
            stderr=stderr,
        )
        self._bound(process.pid)
        be_nice(process.pid)
        if is_heavy(tuple(map(str, words))):
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
        """Run git to its end; raises TooSlow. Cancelling it ends git."""
        process = await self.start(*words, cwd=cwd, config=config, environment=environment, stderr=PIPE)
        assert process.stdout is not None
        assert process.stderr is not None
        try:
            async with asyncio.timeout(within_s):
                out, complaint = await asyncio.gather(
                    _read(process.stdout, MOST_OUTPUT), _read(process.stderr, MOST_COMPLAINT)
                )
                code = await process.wait()
        except TimeoutError:
            raise TooSlow(f"git {words[0]} took longer than {within_s:g} seconds") from None
        finally:
            await stop(process)
        return Done(code, out, complaint.decode(errors="replace"))

    def argv(self, *words: str | Path, config: Mapping[str, str]) -> list[str]:
        settings = {**CONFIG, "core.hooksPath": str(self.empty), **self.config, **config}
        given = [part for name, value in settings.items() for part in ("-c", f"{name}={value}")]
        return ["git", *given, *map(str, words)]

    def _clean(self) -> dict[str, str]:
        """The whole environment: of this process's own only where programs are."""
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

    def _bound(self, pid: int) -> None:
        with contextlib.suppress(ProcessLookupError):
            resource.prlimit(pid, resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
            resource.prlimit(pid, resource.RLIMIT_FSIZE, (self.most_bytes, self.most_bytes))
            resource.prlimit(pid, resource.RLIMIT_CORE, (0, 0))


async def _enter_group(process: Child) -> None:
    entering = asyncio.ensure_future(asyncio.to_thread(GROUPS.enter, process.pid))
    try:
        await asyncio.shield(entering)
    except asyncio.CancelledError:
        await entering  # The group is known then, and removed with the process.
        await stop(process)
        raise


async def stop(process: Child) -> None:
    """End a process and those it started, first with the chance to tidy up; then remove its cgroup."""
    await _end(process)
    if GROUPS.has(process.pid):
        await asyncio.to_thread(GROUPS.leave, process.pid)


async def _end(process: Child) -> None:
    for number in (signal.SIGTERM, signal.SIGKILL):
        if process.returncode is not None:
            return
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, number)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(END_S):
                await process.wait()


def git_version() -> str | None:
    """Return the version of the git that is found, or None where there is none or it is too old."""
    path = shutil.which("git")
    if path is None:
        return None
    try:
        said = subprocess.run([path, "--version"], capture_output=True, text=True, timeout=PROBE_S, check=True).stdout
    except (OSError, subprocess.SubprocessError):
        return None
    found = re.search(r"(\d+)\.(\d+)[\w.]*", said)
    return found[0] if found and (int(found[1]), int(found[2])) >= OLDEST_GIT else None


async def _read(stream: asyncio.StreamReader, most: int) -> bytes:
    """Read to the end, and keep the begin."""
    kept = bytearray()
    while chunk := await stream.read(65536):
        kept += chunk[: most - len(kept)]
    return bytes(kept)
