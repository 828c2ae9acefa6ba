"""The process that shims come from: it has imported everything that they need, and forks when one is asked for.

So a shim is there in moments, and what it has imported is in memory once for all of them. The nest itself never reads
what a shim is told: whatever it knew would be in the memory of all that come after. It ends with whoever asks it.
"""

from __future__ import annotations

import contextlib
import gc
import os
import socket
from pathlib import Path

from moorage.runtime.engines import wire
from moorage.runtime.sandbox.cgroups.files import read

ARG_START = 45  # of /proc/<pid>/stat, counted from the field behind the name


def wait_to_become(folder: Path) -> Path:
    """Wait for whoever is at our standard input to ask for shims; return the folder of each, in a fork of its own.

    A fork has the three usual streams to whoever asked, and no other; nobody has to wait for its end.
    """
    gc.collect()
    gc.freeze()  # What is shared stays so for longer where no collector goes over it.
    door = socket.socket(fileno=0)
    while True:
        key, streams, *_ = socket.recv_fds(door, wire.LONGEST_KEY, 1, socket.MSG_CMSG_CLOEXEC)
        if not key:
            os._exit(0)
        if _is_fork(streams[0]):
            door.detach()  # Its number is that of another stream now.
            return folder / key.decode()
        os.close(streams[0])


def _is_fork(stream: int) -> bool:
    """Fork; tell whether this is the fork."""
    try:
        pid = os.fork()
    except OSError as error:
        with contextlib.suppress(OSError):
            os.write(stream, wire.line({"error": f"it cannot be started: {error}"}))
        return False
    if pid:
        os.waitpid(pid, 0)
        return False
    for number in (0, 1, 2):
        os.dup2(stream, number)
    os.closerange(3, 65536)
    if os.fork():
        os._exit(0)
    return True


def show(nest: Path, folder: Path) -> None:
    """Let lists of processes say whose shim this is: our arguments are those of the nest, with room for more."""
    with contextlib.suppress(OSError, ValueError):
        given = Path("/proc/self/cmdline").read_bytes()
        at = given.rindex(os.fsencode(nest) + b"\0")
        shown = os.fsencode(folder)[: len(given) - at - 1].ljust(len(given) - at, b"\0")
        memory = os.open("/proc/self/mem", os.O_WRONLY)
        try:
            os.pwrite(memory, shown, int(read("/proc/self/stat").rpartition(")")[2].split()[ARG_START]) + at)
        finally:
            os.close(memory)
