"""The Python worker as a snapshot: forks instances of a loaded function.

Part of the Python worker: it imports only the standard library and runs on Python 3.9 and later.
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
JOURNAL = 4  # descriptor of the log journal
HIGH_JOURNAL = 901
_DESCRIPTORS = 4


def high_journal() -> int:
    """Move the journal to a high descriptor and return it; -1 without journal."""
    try:
        if not stat.S_ISREG(os.fstat(JOURNAL).st_mode):
            return -1
        os.dup2(JOURNAL, HIGH_JOURNAL, inheritable=False)
    except OSError:
        return -1
    os.close(JOURNAL)
    return HIGH_JOURNAL


def can_fork(own: int) -> bool:
    """Whether this process has one thread and no sockets besides its own."""
    if len(os.listdir("/proc/self/task")) > 1:
        return False
    for name in os.listdir("/proc/self/fd"):
        try:
            if int(name) != own and os.readlink(f"/proc/self/fd/{name}").startswith("socket:"):
                return False
        except OSError:
            continue  # The descriptor of the listing itself is closed by now.
    return True


def serve(channel: socket.socket, enter: Callable[[bool], None]) -> socket.socket:
    """Fork for each FORK frame; returns only in the forks, with their socket."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    # All forks have the same user, and the kernel counts the processes per user.
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
        except OSError:  # Too many processes: the invoker sees the socket close, and the snapshot keeps running.
            child = -1
        enter(False)
        if child == 0:
            return _take_descriptors(channel, *descriptors)
        for descriptor in descriptors:
            os.close(descriptor)


def _take_descriptors(channel: socket.socket, own: int, out: int, err: int, journal: int) -> socket.socket:
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
    own_channel = socket.socket(fileno=number)
    own_channel.settimeout(None)
    return own_channel
