"""Runs dump, copy and restore tools in sandboxes, as the database's Unix user; ends them on cancel.

Without sandboxes, that user cannot traverse the parents of its own folder nor those of the tools. So a tool inherits
open folder descriptors and uses paths below `/proc/self/fd`, which also keeps socket addresses short enough.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import io
import os
import signal
import subprocess
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextvars import ContextVar, copy_context
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import IO, ParamSpec, TypeVar

from moorage.runtime.database_servers.ports import ServerFailed, Software
from moorage.runtime.database_servers.tool_sandbox import Take, ToolSandbox, Tracking

P = ParamSpec("P")
T = TypeVar("T")

NOBODY = 65534  # runs tools on files that belong to root
STDERR_LINES = 4  # of an error message
STDERR_CHARS = 600
STDERR_BYTES = 64 * 1024  # of which the last lines are shown
LIBRARY_PATH = "LD_LIBRARY_PATH"
CHUNK = 1024 * 1024
MAX_LIST_BYTES = 64 * 2**20  # of the lines that a tool writes, such as the entries of a dump: about 500,000


class RunningTools:
    """Tools of one `in_thread` call; `cancel` ends them."""

    def __init__(self) -> None:
        self._running: set[Callable[[], object]] = set()
        self._is_cancelled = False
        self._lock = threading.Lock()

    def cancel(self) -> None:
        with self._lock:
            self._is_cancelled = True
            for end in self._running:
                end()

    def check(self) -> None:
        if self._is_cancelled:
            raise ServerFailed("it was cancelled")

    @contextlib.contextmanager
    def tracking(self, end: Callable[[], object]) -> Iterator[None]:
        """Call `end` if the caller is cancelled before the block ends."""
        with self._lock:
            self._running.add(end)
            if self._is_cancelled:
                end()
        try:
            yield
        finally:
            with self._lock:
                self._running.discard(end)


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
    """Runs the tools of a software as the owner of a file or folder, in a sandbox with only the paths that they need.

    A server that its tenant controls may send anything to a tool, so a tool gets no network, no files of other
    databases and no rights of the platform. Without a sandbox, tools run as the owner if the platform is root, else as
    the platform's user. Closes its descriptors on exit.
    """

    def __init__(self, software: Software, owned: Path) -> None:
        self._software = software
        owner = owned.stat().st_uid
        self._uid = (owner or NOBODY) if os.getuid() == 0 else None
        self._box = ToolSandbox(Path(software.tools), self._uid or 0) if software.has_boxed_tools else None
        self._handles: list[int] = []

    def __enter__(self) -> Toolbox:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for handle in self._handles:
            os.close(handle)

    def reach(self, path: Path | str, *, is_writable: bool = False) -> str:
        """Return a path by which tools can open a file or folder below closed parents.

        The caller owns the parents: the path must not change while a tool runs.
        """
        if self._box is not None:
            return self._box.mount(Path(path), is_writable=is_writable)
        handle = os.open(path, os.O_PATH | os.O_CLOEXEC)
        self._handles.append(handle)
        return f"/proc/self/fd/{handle}"

    @contextlib.contextmanager
    def lent(self, file: IO[bytes]) -> Iterator[str]:
        """Yield a path where a tool can write to a file; takes the ownership back on exit."""
        if self._uid is not None:
            os.fchown(file.fileno(), self._uid, -1)
        try:
            yield self.reach(file.name, is_writable=True)
        finally:
            if self._uid is not None:
                os.fchown(file.fileno(), os.getuid(), -1)

    def run(
        self,
        program: str,
        args: Sequence[str],
        env: Mapping[str, str],
        *,
        reads: IO[bytes] | None = None,
    ) -> None:
        """Run a tool to its end; raises ServerFailed with the last lines of its stderr."""
        self._run(program, args, env, stdin=reads)

    def read(self, program: str, args: Sequence[str], env: Mapping[str, str], take: Take) -> None:
        """Run a tool and pass its stdout to `take`; raises ServerFailed like `run`."""
        self._run(program, args, env, take=take)

    def lines(self, program: str, args: Sequence[str], env: Mapping[str, str], reads: IO[bytes]) -> list[str]:
        """Run a tool with a file as its stdin, and return the lines of its stdout, at most MAX_LIST_BYTES."""
        output = bytearray()

        def take(data: bytes) -> None:
            output.extend(data)
            if len(output) > MAX_LIST_BYTES:
                raise ServerFailed(f"{program} lists more than {MAX_LIST_BYTES // 2**20} MB")

        self._run(program, args, env, stdin=reads, take=take)
        return output.decode(errors="replace").splitlines()

    def feed(self, program: str, args: Sequence[str], env: Mapping[str, str], chunks: Iterator[bytes]) -> None:
        """Run a tool with `chunks` as its stdin; raises ServerFailed like `run`."""
        failures: list[BaseException] = []
        reading, writing = os.pipe()
        writer = threading.Thread(target=copy_context().run, args=(_write, chunks, writing, failures))
        with open(reading, "rb") as stdin:
            writer.start()
            try:
                self._run(program, args, env, stdin=stdin)
            finally:
                stdin.close()  # The writer gets an error if the tool has exited early.
                writer.join()
        if failures:
            raise failures[0]

    def _run(
        self,
        program: str,
        args: Sequence[str],
        env: Mapping[str, str],
        *,
        stdin: IO[bytes] | None = None,
        take: Take | None = None,
    ) -> None:
        raise_if_cancelled()
        errors, tracking = _LastLines(), _running_tools.get(RunningTools()).tracking
        run = self._run_plain if self._box is None else self._box.run
        code = run(program, args, self._environment(env), stdin, take, errors.add, tracking)
        if code:
            raise ServerFailed(_reason(program, code, errors.text()))

    def _run_plain(
        self,
        program: str,
        args: Sequence[str],
        env: Mapping[str, str],
        stdin: IO[bytes] | None,
        take: Take | None,
        take_error: Take,
        tracking: Tracking,
    ) -> int:
        """Run a tool without a sandbox; return its exit code, which is negative for a signal."""
        process = subprocess.Popen(
            [f"{self.reach(self._software.tools)}/{program}", *args],
            stdin=subprocess.DEVNULL if stdin is None else stdin,
            stdout=subprocess.DEVNULL if take is None else subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=env,
            cwd="/",
            umask=0o077,
            start_new_session=True,
            pass_fds=self._handles,
            user=self._uid,
            group=self._uid,
            extra_groups=None if self._uid is None else [],
        )
        stderr_reader = threading.Thread(target=_pass_on, args=(process.stderr, take_error), daemon=True)
        stderr_reader.start()
        try:
            with tracking(process.kill):
                if take is not None:
                    _pass_on(process.stdout, take)
                return process.wait()
        finally:
            _end(process, stderr_reader)

    def _environment(self, env: Mapping[str, str]) -> dict[str, str]:
        defaults = {"PATH": "/usr/bin:/bin", "LC_ALL": "C.UTF-8", "HOME": "/"}
        environment = {**defaults, **self._software.tools_env, **env}
        libraries = [Path(each) for each in environment.get(LIBRARY_PATH, "").split(":") if each]
        if self._uid is not None and self._box is None:
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


class _LastLines:
    """The last lines of a stream."""

    def __init__(self) -> None:
        self._end = b""

    def add(self, data: bytes) -> None:
        self._end = (self._end + data)[-STDERR_BYTES:]

    def text(self) -> str:
        """Return the last lines as one."""
        lines = [line.strip() for line in self._end.decode(errors="replace").splitlines() if line.strip()]
        return "; ".join(lines[-STDERR_LINES:])[-STDERR_CHARS:]


def _pass_on(stream: IO[bytes] | None, take: Take) -> None:
    assert isinstance(stream, io.BufferedReader)
    while chunk := stream.read1(CHUNK):
        take(chunk)


def _write(chunks: Iterator[bytes], writing: int, failures: list[BaseException]) -> None:
    """Write chunks to a pipe and close it; put what went wrong into `failures`."""
    try:
        # A tool that exits early reports the reason on stderr.
        with contextlib.suppress(BrokenPipeError), open(writing, "wb") as pipe:
            for chunk in chunks:
                pipe.write(chunk)
    except (ServerFailed, OSError) as error:
        failures.append(error)


def _end(process: subprocess.Popen[bytes], stderr_reader: threading.Thread) -> None:
    if process.poll() is None:
        process.kill()
        process.wait()
    stderr_reader.join(5)
    for stream in (process.stdout, process.stderr):
        if stream is not None:
            with contextlib.suppress(OSError):
                stream.close()


def _reason(program: str, code: int, errors: str) -> str:
    if code < 0:
        return f"{program} was ended by {signal.Signals(-code).name}"
    return errors or f"{program} ended with code {code}"


@contextlib.contextmanager
def wrap_disk_errors() -> Iterator[None]:
    """Turn ENOSPC, EDQUOT and EFBIG into ServerFailed."""
    try:
        yield
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
            raise ServerFailed(f"there is no room on the disk: {os.strerror(error.errno)}") from error
        raise
