"""The Python worker as a template: it has loaded a function's code, and forks an instance whenever it is asked to.

Part of the worker: standard library only, every Python that functions may ask for.
"""

from __future__ import annotations

import array
import os
import resource
import signal
import socket
import stat
import sys
from collections.abc import Callable

FORK = 3
JOURNAL = 4  # where a cell finds the file that its logs are written to as they come
HIGH_JOURNAL = 901
_DESCRIPTORS = 4


def high_journal() -> int:
    """Move the journal out of the way of the function's own descriptors; -1 where there is none."""
    try:
        if not stat.S_ISREG(os.fstat(JOURNAL).st_mode):
            return -1
        os.dup2(JOURNAL, HIGH_JOURNAL, inheritable=False)
    except OSError:
        return -1
    os.close(JOURNAL)
    return HIGH_JOURNAL


def can_fork(own: int) -> bool:
    """Tell whether this process may be forked: one thread, and no connection that two processes would share."""
    if len(os.listdir("/proc/self/task")) > 1:
        return False
    for name in os.listdir("/proc/self/fd"):
        try:
            if int(name) != own and os.readlink(f"/proc/self/fd/{name}").startswith("socket:"):
                return False
        except OSError:
            continue  # The folder's own descriptor is gone by now.
    return True


def serve(channel: socket.socket, enter: Callable[[bool], None]) -> socket.socket:
    """Fork as often as asked. Returns in each fork, with the socket that its calls will come through."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    # All forks have one user, whose processes are counted together.
    hard = resource.getrlimit(resource.RLIMIT_NPROC)[1]
    resource.setrlimit(resource.RLIMIT_NPROC, (hard, hard))
    while True:
        data, ancillary, _, _ = channel.recvmsg(5, socket.CMSG_SPACE(4 * _DESCRIPTORS))
        if len(data) < 5 or data[4] != FORK:
            os._exit(0)
        descriptors = array.array("i")
        for level, kind, content in ancillary:
            if (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS):
                descriptors.frombytes(content[: 4 * _DESCRIPTORS])
        enter(True)
        try:
            child = os.fork()
        except OSError:  # Too many processes; who asked sees the socket end, and the template lives on.
            child = -1
        enter(False)
        if child == 0:
            return _settle(channel, *descriptors)
        for descriptor in descriptors:
            os.close(descriptor)


def _settle(channel: socket.socket, own: int, out: int, err: int, journal: int) -> socket.socket:
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    number = channel.fileno()
    channel.close()
    os.dup2(own, number, inheritable=False)
    os.dup2(out, 1)
    os.dup2(err, 2)
    if journal != JOURNAL:
        os.dup2(journal, JOURNAL)
    for descriptor in (own, out, err, journal):
        if descriptor != JOURNAL:
            os.close(descriptor)
    sys.stdout.flush()
    taken = socket.socket(fileno=number)
    taken.settimeout(None)
    return taken
