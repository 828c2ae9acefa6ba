"""Runs dump and restore tools as the database's Unix user; kills them on cancel.

That user cannot traverse the parents of its own folder nor those of the tools. So a tool inherits open folder
descriptors and uses paths below `/proc/self/fd`, which also keeps socket addresses short enough.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import signal
import subprocess
import threading
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextvars import ContextVar, copy_context
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import IO, ParamSpec, TypeVar

from moorage.runtime.database_servers.ports import ServerFailed, Software

P = ParamSpec("P")
T = TypeVar("T")

NOBODY = 65534  # runs tools on files that belong to root
STDERR_LINES = 4  # of an error message
STDERR_CHARS = 600
LIBRARY_PATH = "LD_LIBRARY_PATH"
CHUNK = 1024 * 1024


class RunningTools:
    """Subprocesses of one `in_thread` call; `cancel` kills them."""

    def __init__(self) -> None:
        self._running: set[subprocess.Popen[bytes]] = set()
        self._is_cancelled = False
        self._lock = threading.Lock()

    def cancel(self) -> None:
        with self._lock:
            self._is_cancelled = True
            for process in self._running:
                process.kill()

    def check(self) -> None:
        if self._is_cancelled:
            raise ServerFailed("it was cancelled")

    @contextlib.contextmanager
    def tracking(self, process: subprocess.Popen[bytes]) -> Iterator[None]:
        with self._lock:
            self._running.add(process)
            if self._is_cancelled:
                process.kill()
        try:
            yield
        finally:
            with self._lock:
                self._running.discard(process)


_running_tools: ContextVar[RunningTools] = ContextVar("running_tools")


async def in_thread(work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Run a function in a thread; a cancelled caller kills the tools it started."""
    tools, context = RunningTools(), copy_context()
    context.run(_running_tools.set, tools)
    running = asyncio.get_running_loop().run_in_executor(None, partial(context.run, partial(work, *args, **kwargs)))
    try:
        return await asyncio.shield(running)
    except asyncio.CancelledError:
        tools.cancel()
        with contextlib.suppress(ServerFailed, OSError):
            await running
        raise


def raise_if_cancelled() -> None:
    """Raise ServerFailed if the caller of `in_thread` was cancelled; for long loops."""
    if (tools := _running_tools.get(None)) is not None:
        tools.check()


class Toolbox:
    """Runs the tools of a software as the owner of a file or folder.

    If the platform is not root, tools run as the platform's user. Closes the inherited descriptors on exit.
    """

    def __init__(self, software: Software, owned: Path) -> None:
        self._software = software
        owner = owned.stat().st_uid
        self._uid = (owner or NOBODY) if os.getuid() == 0 else None
        self._handles: list[int] = []

    def __enter__(self) -> Toolbox:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for handle in self._handles:
            os.close(handle)

    def reach(self, folder: Path | str) -> str:
        """Return a path by which tools can open a folder below closed parents."""
        return self._inherit(os.open(folder, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC))

    def reach_file(self, handle: int) -> str:
        """Return a path of an open file that tools can open."""
        return self._inherit(os.dup(handle))

    @contextlib.contextmanager
    def lent(self, file: IO[bytes]) -> Iterator[str]:
        """Yield a path where a tool can write to a file; takes the ownership back on exit."""
        if self._uid is not None:
            os.fchown(file.fileno(), self._uid, -1)
        try:
            yield self.reach_file(file.fileno())
        finally:
            if self._uid is not None:
                os.fchown(file.fileno(), os.getuid(), -1)

    def _inherit(self, handle: int) -> str:
        self._handles.append(handle)
        return f"/proc/self/fd/{handle}"

    def run(
        self,
        program: str,
        args: Sequence[str],
        env: Mapping[str, str],
        *,
        reads: IO[bytes] | None = None,
    ) -> None:
        """Run a tool to its end; raises ServerFailed with the last lines of its stderr."""
        with self._started(program, args, env, stdin=reads):
            pass

    def read(self, program: str, args: Sequence[str], env: Mapping[str, str], take: Callable[[bytes], object]) -> None:
        """Run a tool and pass its stdout to `take`; raises ServerFailed like `run`."""
        with self._started(program, args, env, stdout=subprocess.PIPE) as process:
            assert process.stdout is not None
            while chunk := process.stdout.read(CHUNK):
                take(chunk)

    def lines(self, program: str, args: Sequence[str], env: Mapping[str, str], reads: IO[bytes]) -> list[str]:
        """Run a tool with a file as its stdin, and return the lines of its stdout."""
        with self._started(program, args, env, stdin=reads, stdout=subprocess.PIPE) as process:
            assert process.stdout is not None
            return process.stdout.read().decode(errors="replace").splitlines()

    def feed(self, program: str, args: Sequence[str], env: Mapping[str, str], chunks: Iterator[bytes]) -> None:
        """Run a tool with `chunks` as its stdin; raises ServerFailed like `run`."""
        with self._started(program, args, env, stdin=subprocess.PIPE) as process:
            assert process.stdin is not None
            # A tool that exits early reports the reason on stderr.
            with contextlib.suppress(BrokenPipeError):
                for chunk in chunks:
                    process.stdin.write(chunk)
                process.stdin.close()

    @contextlib.contextmanager
    def _started(
        self,
        program: str,
        args: Sequence[str],
        env: Mapping[str, str],
        *,
        stdin: IO[bytes] | int | None = None,
        stdout: IO[bytes] | int | None = None,
    ) -> Iterator[subprocess.Popen[bytes]]:
        raise_if_cancelled()
        argv = [f"{self.reach(self._software.tools)}/{program}", *args]
        process = subprocess.Popen(
            argv,
            stdin=subprocess.DEVNULL if stdin is None else stdin,
            stdout=subprocess.DEVNULL if stdout is None else stdout,
            stderr=subprocess.PIPE,
            env=self._environment(env),
            cwd="/",
            umask=0o077,
            start_new_session=True,
            pass_fds=self._handles,
            user=self._uid,
            group=self._uid,
            extra_groups=None if self._uid is None else [],
        )
        stderr_lines: deque[bytes] = deque(maxlen=STDERR_LINES)
        stderr_reader = threading.Thread(target=_collect, args=(process.stderr, stderr_lines), daemon=True)
        stderr_reader.start()
        try:
            with _running_tools.get(RunningTools()).tracking(process):
                yield process
                code = process.wait()
        finally:
            _end(process, stderr_reader)
        if code:
            raise ServerFailed(_reason(program, code, stderr_lines))

    def _environment(self, env: Mapping[str, str]) -> dict[str, str]:
        defaults = {"PATH": "/usr/bin:/bin", "LC_ALL": "C.UTF-8", "HOME": "/"}
        environment = {**defaults, **self._software.tools_env, **env}
        libraries = [Path(each) for each in environment.get(LIBRARY_PATH, "").split(":") if each]
        if self._uid is not None:
            libraries += _rpath_folders(Path(self._software.tools))
        if libraries:
            environment[LIBRARY_PATH] = ":".join(self.reach(each) for each in libraries if each.is_dir())
        return environment


def _rpath_folders(tools: Path) -> list[Path]:
    """Return library folders next to the tools, which their user cannot traverse to."""
    if tools.is_relative_to("/usr"):
        return []
    wheels = [path for above in list(tools.parents)[:3] for path in sorted(above.glob("*.libs"))]
    return [path for path in (tools.parent / "lib", *wheels) if path.is_dir()]


def _collect(stderr: IO[bytes], lines: deque[bytes]) -> None:
    for line in stderr:
        if line.strip():
            lines.append(line.strip())


def _end(process: subprocess.Popen[bytes], stderr_reader: threading.Thread) -> None:
    if process.poll() is None:
        process.kill()
        process.wait()
    stderr_reader.join(5)
    for stream in (process.stdin, process.stdout, process.stderr):
        if stream is not None:
            with contextlib.suppress(OSError):
                stream.close()


def _reason(program: str, code: int, stderr_lines: Sequence[bytes]) -> str:
    if code < 0:
        return f"{program} was ended by {signal.Signals(-code).name}"
    message = "; ".join(line.decode(errors="replace") for line in stderr_lines)[-STDERR_CHARS:]
    return message or f"{program} ended with code {code}"


@contextlib.contextmanager
def wrap_disk_errors() -> Iterator[None]:
    """Turn ENOSPC, EDQUOT and EFBIG into ServerFailed."""
    try:
        yield
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
            raise ServerFailed(f"there is no room on the disk: {os.strerror(error.errno)}") from error
        raise
