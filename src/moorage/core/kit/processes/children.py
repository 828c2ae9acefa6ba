"""Child processes for an event loop, started by `vfork`.

uvloop starts a child by `fork`, which copies the page tables of the whole process: 25 ms for a control process on a
busy machine, during which the event loop is blocked. `subprocess.Popen` uses `vfork` and takes 1 ms.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from subprocess import DEVNULL, PIPE
from typing import IO

READER_LIMIT_BYTES = 2**16


class _Pipe:
    """The parent's end of a pipe, closed by the event loop.

    uvloop closes the descriptor and then calls `close` of the pipe object. A file object would close the same number
    twice, and another thread may have opened a file under that number in between.
    """

    def __init__(self, file: IO[bytes], loop: asyncio.AbstractEventLoop) -> None:
        self._descriptor = os.dup(file.fileno())
        self._is_closed_by_loop = type(loop).__module__.startswith("uvloop")
        file.close()

    def fileno(self) -> int:
        return self._descriptor

    def close(self) -> None:
        if not self._is_closed_by_loop:
            os.close(self._descriptor)


class _PipeReaderProtocol(asyncio.StreamReaderProtocol):
    """Closes the pipe at the end of the output."""

    def eof_received(self) -> bool:
        super().eof_received()
        return False


class Child:
    """A running process with the interface of `asyncio.subprocess.Process`."""

    def __init__(self, popen: subprocess.Popen[bytes]) -> None:
        self._popen = popen
        self._loop = asyncio.get_running_loop()
        self._exited: asyncio.Future[None] = self._loop.create_future()
        self.stdin: asyncio.StreamWriter | None = None
        self.stdout: asyncio.StreamReader | None = None
        self.stderr: asyncio.StreamReader | None = None

    @property
    def pid(self) -> int:
        return self._popen.pid

    @property
    def returncode(self) -> int | None:
        return self._popen.poll()

    async def wait(self) -> int:
        """Return the exit code after the process has exited."""
        await asyncio.shield(self._exited)
        return self._popen.wait()

    def terminate(self) -> None:
        self._popen.terminate()

    def kill(self) -> None:
        self._popen.kill()

    def kill_now(self) -> None:
        """Kill the process and block until it has exited."""
        self._popen.kill()
        self._popen.wait()

    async def _open(self, limit: int) -> None:
        """Connect the pipes to the event loop and watch for the exit."""
        self._watch_exit()
        popen = self._popen
        if popen.stdin is not None:
            protocol = asyncio.StreamReaderProtocol(asyncio.StreamReader())
            transport, _ = await self._loop.connect_write_pipe(lambda: protocol, _Pipe(popen.stdin, self._loop))
            self.stdin = asyncio.StreamWriter(transport, protocol, None, self._loop)
        self.stdout = await self._reader(popen.stdout, limit)
        self.stderr = await self._reader(popen.stderr, limit)

    async def _reader(self, pipe: IO[bytes] | None, limit: int) -> asyncio.StreamReader | None:
        if pipe is None:
            return None
        reader = asyncio.StreamReader(limit)
        protocol = _PipeReaderProtocol(reader)
        await self._loop.connect_read_pipe(lambda: protocol, _Pipe(pipe, self._loop))
        return reader

    def _watch_exit(self) -> None:
        try:
            handle = os.pidfd_open(self.pid)
        except OSError:  # Some containers do not allow `pidfd_open`.
            waiting = self._loop.run_in_executor(None, self._popen.wait)
            waiting.add_done_callback(lambda _: self._set_exited())
            return

        def on_exit() -> None:
            self._loop.remove_reader(handle)
            os.close(handle)
            self._popen.wait()
            self._set_exited()

        self._loop.add_reader(handle, on_exit)

    def _set_exited(self) -> None:
        if not self._exited.done():
            self._exited.set_result(None)


async def start(
    argv: Sequence[str],
    *,
    env: Mapping[str, str],
    cwd: Path | None = None,
    stdin: int | IO[bytes] = DEVNULL,
    stdout: int = PIPE,
    stderr: int | None = DEVNULL,
    limit: int = READER_LIMIT_BYTES,
) -> Child:
    """Start a program in a new session; raises OSError."""
    popen = subprocess.Popen(  # noqa: ASYNC220 - `vfork` is faster; see the module docstring
        argv, env=env, cwd=cwd, stdin=stdin, stdout=stdout, stderr=stderr, start_new_session=True, bufsize=0
    )
    child = Child(popen)
    try:
        await child._open(limit)
    except BaseException:
        with contextlib.suppress(ProcessLookupError):
            child.kill()
        raise
    return child
