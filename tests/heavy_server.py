"""A process that has imported the work of low-priority processes and forks one of them for each request of a test.

Imports and the compilation of the scanner's rules are nearly all of its CPU time, a quarter of a second.
`tests/runtime/sandbox/test_heavy.py` starts real ones.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import os
import select
import signal
import socket
import subprocess
import sys
from typing import IO, cast

from tests.forked import requests_of

from moorage.core.kit.processes.children import Child
from moorage.runtime.sandbox import heavy, heavy_child
from moorage.runtime.scan import folders, matching

WORK = ("moorage.products.projects.unpacking", "moorage.runtime.builds.detection.preview", folders.__name__)
FILES = 2  # standard input and output


class ForkedProcess:
    """A child of the server, with the interface of `subprocess.Popen` that `Child` uses."""

    stderr = None

    def __init__(self, pid: int, stdin: IO[bytes], stdout: IO[bytes]) -> None:
        self.pid, self.stdin, self.stdout = pid, stdin, stdout
        try:
            self._handle = os.pidfd_open(pid)
        except ProcessLookupError:
            self._handle = -1

    def poll(self) -> int | None:
        """Return 0 after the process has ended: only its parent knows its exit code."""
        return self._wait_for_end(0)

    def wait(self) -> int:
        code = self._wait_for_end(None)
        assert code is not None
        return code

    def kill(self) -> None:
        if self._handle >= 0:
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(self._handle, signal.SIGKILL)

    def _wait_for_end(self, timeout_s: float | None) -> int | None:
        if self._handle >= 0:
            if not select.select([self._handle], [], [], timeout_s)[0]:
                return None
            os.close(self._handle)
            self._handle = -1
        return 0


async def start(in_idle_class: bool) -> Child:
    """Fork a low-priority process, as `heavy._start` starts one."""
    stdin, stdin_end = os.pipe()
    stdout_end, stdout = os.pipe()
    requests = requests_of("tests.heavy_server")
    socket.send_fds(requests, [heavy.IDLE_CLASS_OPTION.encode() if in_idle_class else b"normal"], [stdin, stdout])
    for file in (stdin, stdout):
        os.close(file)
    pid = int(requests.recv(16))
    process = ForkedProcess(pid, os.fdopen(stdin_end, "wb", 0), os.fdopen(stdout_end, "rb", 0))
    child = Child(cast("subprocess.Popen[bytes]", process))
    await child._open(heavy.MAX_ANSWER_BYTES)
    return child


def serve(requests: socket.socket) -> None:
    """Fork a child for each message, until the tests close the socket."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    while True:
        message, files, *_ = socket.recv_fds(requests, 16, FILES)
        if not message:
            return
        pid = os.fork()
        if pid == 0:
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            os.setsid()
            for target, file in enumerate(files):
                os.dup2(file, target)
            os.closerange(3, 64)
            sys.argv[1:] = [message.decode()]
            heavy_child.main()
        requests.send(str(pid).encode())
        for file in files:
            os.close(file)


def _prepare() -> None:
    """Do what each child would do for its first task."""
    for module in WORK:
        importlib.import_module(module)
    matching.rules()  # without a scan, which would start a thread
    gc.collect()
    gc.freeze()


if __name__ == "__main__":
    with socket.socket(fileno=int(sys.argv[1])) as requests:
        _prepare()
        serve(requests)
