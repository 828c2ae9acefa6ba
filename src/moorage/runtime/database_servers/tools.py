"""Runs the tools of database software: each as the user of its database, and no longer than whoever asked wants it.

That user cannot pass through the folders above its own, nor through those above the tools. So a tool is handed open
folders, and finds everything below `/proc/self/fd`; this also keeps the paths of sockets short enough.
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

NOBODY = 65534  # reads what belongs to nobody in particular
LAST_LINES = 4
LAST_CHARS = 600
LIBRARIES = "LD_LIBRARY_PATH"
CHUNK = 1024 * 1024


class Leash:
    """What runs for somebody, so that it ends when that one gives up."""

    def __init__(self) -> None:
        self._running: set[subprocess.Popen[bytes]] = set()
        self._is_cut = False
        self._lock = threading.Lock()

    def cut(self) -> None:
        with self._lock:
            self._is_cut = True
            for process in self._running:
                process.kill()

    def check(self) -> None:
        if self._is_cut:
            raise ServerFailed("it was given up before its end")

    @contextlib.contextmanager
    def holding(self, process: subprocess.Popen[bytes]) -> Iterator[None]:
        with self._lock:
            self._running.add(process)
            if self._is_cut:
                process.kill()
        try:
            yield
        finally:
            with self._lock:
                self._running.discard(process)


_leash: ContextVar[Leash] = ContextVar("leash")


async def in_thread(work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Run something that waits for tools in a thread. Where the caller is cancelled its tools are ended at once."""
    leash, context = Leash(), copy_context()
    context.run(_leash.set, leash)
    running = asyncio.get_running_loop().run_in_executor(None, partial(context.run, partial(work, *args, **kwargs)))
    try:
        return await asyncio.shield(running)
    except asyncio.CancelledError:
        leash.cut()
        with contextlib.suppress(ServerFailed, OSError):
            await running
        raise


def check_wanted() -> None:
    """Raise ServerFailed where whoever asked for this has given up; for loops that may take long."""
    if (leash := _leash.get(None)) is not None:
        leash.check()


class Toolbox:
    """The tools of some software, used by the owner of a file or folder. The folders handed on are closed at the end.

    Where the platform is not root it is the only user there is.
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
        """Return a path of a folder that a tool can use, wherever it lies."""
        return self._hand_on(os.open(folder, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC))

    def reach_file(self, handle: int) -> str:
        """Return a path of an open file that a tool can use."""
        return self._hand_on(os.dup(handle))

    @contextlib.contextmanager
    def lent(self, file: IO[bytes]) -> Iterator[str]:
        """Let a tool write to a file of ours by a path; at the end nobody but us can change it any more."""
        if self._uid is not None:
            os.fchown(file.fileno(), self._uid, -1)
        try:
            yield self.reach_file(file.fileno())
        finally:
            if self._uid is not None:
                os.fchown(file.fileno(), os.getuid(), -1)

    def _hand_on(self, handle: int) -> str:
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
        """Run a tool to its end; raises ServerFailed with what it said last."""
        with self._started(program, args, env, stdin=reads):
            pass

    def read(self, program: str, args: Sequence[str], env: Mapping[str, str], take: Callable[[bytes], object]) -> None:
        """Run a tool and hand on what it writes; raises ServerFailed with what it said last."""
        with self._started(program, args, env, stdout=subprocess.PIPE) as process:
            assert process.stdout is not None
            while chunk := process.stdout.read(CHUNK):
                take(chunk)

    def lines(self, program: str, args: Sequence[str], env: Mapping[str, str], reads: IO[bytes]) -> list[str]:
        """Run a tool on a file and return the lines that it writes."""
        with self._started(program, args, env, stdin=reads, stdout=subprocess.PIPE) as process:
            assert process.stdout is not None
            return process.stdout.read().decode(errors="replace").splitlines()

    def feed(self, program: str, args: Sequence[str], env: Mapping[str, str], chunks: Iterator[bytes]) -> None:
        """Run a tool on what is handed to it; raises ServerFailed with what it said last."""
        with self._started(program, args, env, stdin=subprocess.PIPE) as process:
            assert process.stdin is not None
            # A tool that ends early says why at its end.
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
        check_wanted()
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
        said: deque[bytes] = deque(maxlen=LAST_LINES)
        listener = threading.Thread(target=_listen, args=(process.stderr, said), daemon=True)
        listener.start()
        try:
            with _leash.get(Leash()).holding(process):
                yield process
                code = process.wait()
        finally:
            _end(process, listener)
        if code:
            raise ServerFailed(_reason(program, code, said))

    def _environment(self, env: Mapping[str, str]) -> dict[str, str]:
        usual = {"PATH": "/usr/bin:/bin", "LC_ALL": "C.UTF-8", "HOME": "/"}
        made = {**usual, **self._software.tools_env, **env}
        libraries = [Path(each) for each in made.get(LIBRARIES, "").split(":") if each]
        if self._uid is not None:
            libraries += _libraries_near(Path(self._software.tools))
        if libraries:
            made[LIBRARIES] = ":".join(self.reach(each) for each in libraries if each.is_dir())
        return made


def _libraries_near(tools: Path) -> list[Path]:
    """Return where a program looks beside itself, which it cannot do by path where its folder is closed to others."""
    if tools.is_relative_to("/usr"):
        return []
    wheels = [found for above in list(tools.parents)[:3] for found in sorted(above.glob("*.libs"))]
    return [found for found in (tools.parent / "lib", *wheels) if found.is_dir()]


def _listen(stderr: IO[bytes], said: deque[bytes]) -> None:
    for line in stderr:
        if line.strip():
            said.append(line.strip())


def _end(process: subprocess.Popen[bytes], listener: threading.Thread) -> None:
    if process.poll() is None:
        process.kill()
        process.wait()
    listener.join(5)
    for stream in (process.stdin, process.stdout, process.stderr):
        if stream is not None:
            with contextlib.suppress(OSError):
                stream.close()


def _reason(program: str, code: int, said: Sequence[bytes]) -> str:
    if code < 0:
        return f"{program} was ended by {signal.Signals(-code).name}"
    words = "; ".join(line.decode(errors="replace") for line in said)[-LAST_CHARS:]
    return words or f"{program} ended with code {code}"


@contextlib.contextmanager
def disk_errors_told() -> Iterator[None]:
    """Turn what a disk refuses into a sentence."""
    try:
        yield
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
            raise ServerFailed(f"there is no room on the disk: {os.strerror(error.errno)}") from error
        raise
