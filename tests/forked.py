"""Commands of `moorage` as children of `tests.fork_server`, which has done their imports."""

from __future__ import annotations

import contextlib
import functools
import json
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from select import select


@functools.cache
def requests_of(server: str) -> socket.socket:
    """Start the module of a server; it ends with this process, which closes the socket."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with theirs:
        number = theirs.fileno()
        subprocess.Popen([sys.executable, "-m", server, str(number)], pass_fds=[number])
    return ours


@dataclass(frozen=True, slots=True)
class Forked:
    """A command that runs."""

    pid: int
    status: int  # the descriptor on which its exit code comes

    def wait(self, timeout_s: float) -> int:
        """Return the exit code; kills the command if it does not end in time."""
        if not select([self.status], [], [], timeout_s)[0]:
            self.kill()
            raise AssertionError(f"the command did not end within {timeout_s} s")
        return int(os.read(self.status, 16))

    def has_ended(self) -> bool:
        return bool(select([self.status], [], [], 0)[0])

    def kill(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGKILL)


@contextlib.contextmanager
def start(
    words: Sequence[str], files: tuple[int, int, int], *, cwd: Path, env: Mapping[str, str], has_terminal: bool = False
) -> Iterator[Forked]:
    """Start a command with these files as its standard input, output and error."""
    command = {"words": words, "cwd": str(cwd), "env": dict(env), "has_terminal": has_terminal}
    status, theirs = os.pipe()
    try:
        socket.send_fds(requests_of("tests.fork_server"), [json.dumps(command).encode()], [*files, theirs])
        os.close(theirs)
        pid = b""
        while not pid.endswith(b" "):
            read = os.read(status, 1)
            assert read, "the fork server has ended"
            pid += read
        yield Forked(int(pid), status)
    finally:
        os.close(status)


def run(
    words: Sequence[str], *, cwd: Path, env: Mapping[str, str], stdin: str = "", timeout_s: float = 180
) -> subprocess.CompletedProcess[str]:
    """Run a command in pipes."""
    given, given_end = os.pipe()
    output, output_end = os.pipe()
    errors, errors_end = os.pipe()
    texts: dict[int, str] = {}

    def read(file: int) -> None:
        with open(file, encoding="utf-8") as stream:
            texts[file] = stream.read()

    def write() -> None:
        with contextlib.suppress(BrokenPipeError), open(given_end, "w", encoding="utf-8") as stream:
            stream.write(stdin)

    with start(words, (given, output_end, errors_end), cwd=cwd, env=env) as command:
        for file in (given, output_end, errors_end):
            os.close(file)
        threads = [threading.Thread(target=read, args=[file]) for file in (output, errors)]
        threads.append(threading.Thread(target=write))
        for thread in threads:
            thread.start()
        code = command.wait(timeout_s)
        for thread in threads:
            thread.join()
    return subprocess.CompletedProcess(list(words), code, texts[output], texts[errors])
