"""Fork server of shims: it has imported all modules and forks on request.

Forking makes a shim start in milliseconds, and shims share the memory of imported modules. The fork server never reads
a replica's spec: later shims would inherit its secrets in their memory. It exits when the control process closes the
request socket.
"""

from __future__ import annotations

import contextlib
import gc
import os
import socket
from pathlib import Path

from moorage.runtime.engines import wire
from moorage.runtime.sandbox.cgroups.files import read

ARG_START = 45  # index of arg_start in /proc/<pid>/stat, counted after the process name


def serve_until_forked(folder: Path) -> Path:
    """Serve requests on standard input; return a run folder in each forked shim.

    The shim has standard input, output and error connected to the requester, and no other descriptor. It is forked
    twice, so it needs no parent to reap it.
    """
    gc.collect()
    gc.freeze()  # Pages stay shared for longer if the garbage collector never writes to them.
    requests = socket.socket(fileno=0)
    while True:
        key, streams, *_ = socket.recv_fds(requests, wire.MAX_KEY_BYTES, 1, socket.MSG_CMSG_CLOEXEC)
        if not key:
            os._exit(0)
        if _fork_shim(streams[0]):
            requests.detach()  # Descriptor 0 is the shim's stream now.
            return folder / key.decode()
        os.close(streams[0])


def _fork_shim(stream: int) -> bool:
    """Fork twice and connect the grandchild to `stream`; True in the grandchild."""
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


def set_process_title(shims_folder: Path, folder: Path) -> None:
    """Show the run folder in `ps`: overwrite the folder argument and the padding."""
    with contextlib.suppress(OSError, ValueError):
        cmdline = Path("/proc/self/cmdline").read_bytes()
        at = cmdline.rindex(os.fsencode(shims_folder) + b"\0")
        argument = os.fsencode(folder)[: len(cmdline) - at - 1].ljust(len(cmdline) - at, b"\0")
        memory = os.open("/proc/self/mem", os.O_WRONLY)
        try:
            os.pwrite(memory, argument, int(read("/proc/self/stat").rpartition(")")[2].split()[ARG_START]) + at)
        finally:
            os.close(memory)
