"""Child processes of an event loop, started without a copy of this process's memory map.

uvloop starts a child by `fork`, which copies the page tables of the whole process: 25 ms for a control process on a
busy machine, in which the event loop does nothing else. `subprocess.Popen` starts it by `vfork`, in 1 ms.
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

LIMIT = 2**16


class _Pipe:
    """This process's end of a pipe, for the event loop to close.

    uvloop closes the descriptor and then calls `close` of the object that it was given. A file object would close the
    same number again, which is another thread's file by then.
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


class _Reading(asyncio.StreamReaderProtocol):
    """Feeds a reader, and has its pipe closed at the end of the output."""

    def eof_received(self) -> bool:
        super().eof_received()
        return False


class Child:
    """A running process, with the same names as one of asyncio's."""

    def __init__(self, popen: subprocess.Popen[bytes]) -> None:
        self._popen = popen
        self._loop = asyncio.get_running_loop()
        self._ended: asyncio.Future[None] = self._loop.create_future()
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
        """Return the exit code once the process has ended."""
        await asyncio.shield(self._ended)
        return self._popen.wait()

    def terminate(self) -> None:
        self._popen.terminate()

    def kill(self) -> None:
        self._popen.kill()

    def kill_now(self) -> None:
        """Kill the process and return when it has ended."""
        self._popen.kill()
        self._popen.wait()

    async def _open(self, limit: int) -> None:
        """Connect the pipes to the event loop, and learn of the end."""
        self._watch()
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
        protocol = _Reading(reader)
        await self._loop.connect_read_pipe(lambda: protocol, _Pipe(pipe, self._loop))
        return reader

    def _watch(self) -> None:
        try:
            handle = os.pidfd_open(self.pid)
        except OSError:  # Some containers do not allow it.
            waiting = self._loop.run_in_executor(None, self._popen.wait)
            waiting.add_done_callback(lambda _: self._note_end())
            return

        def ended() -> None:
            self._loop.remove_reader(handle)
            os.close(handle)
            self._popen.wait()
            self._note_end()

        self._loop.add_reader(handle, ended)

    def _note_end(self) -> None:
        if not self._ended.done():
            self._ended.set_result(None)


async def start(
    argv: Sequence[str],
    *,
    env: Mapping[str, str],
    cwd: Path | None = None,
    stdin: int | IO[bytes] = DEVNULL,
    stdout: int = PIPE,
    stderr: int | None = DEVNULL,
    limit: int = LIMIT,
) -> Child:
    """Start a program in a session of its own; raises OSError."""
    popen = subprocess.Popen(  # noqa: ASYNC220 - it is the quicker way; see above
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
