"""`bind` calls of a sandbox that accepts connections from a host listener.

An accepted connection is a host socket. After it has ended, the kernel would let its owner bind it to any port of the
host and block that port. So `bind` is refused for host sockets, and the supervisor binds the sandbox's own sockets, on
a duplicate: the original call never continues, because its descriptor could be replaced in the meantime.
"""

from __future__ import annotations

import contextlib
import errno
import os
import socket
import struct
from collections.abc import Iterator

from moorage.runtime.sandbox import syscalls
from moorage.runtime.sandbox.network import callers
from moorage.runtime.sandbox.network.callers import Address
from moorage.runtime.sandbox.network.notify import Notification, SeccompListener

_NO_NAMES = (b"", b".", b"..")


def bind(listener: SeccompListener, call: Notification, own: socket.socket, address: Address) -> int:
    """Bind a sandbox's own socket; return the errno or raise OSError."""
    path = address.data[2:].partition(b"\0")[0] if address.family == socket.AF_UNIX else b""
    if own.family != socket.AF_UNIX or not path:
        syscalls.bind(own.fileno(), address.data)
        return 0
    parent, _, name = path.rpartition(b"/")
    if name in _NO_NAMES:
        return errno.EADDRINUSE
    folder = callers.open_path(call, parent or b".", is_absolute=path.startswith(b"/"), flags=os.O_DIRECTORY)
    try:
        listener.require_waiting(call)
        target = f"/proc/self/fd/{folder}/".encode() + name + b"\0"
        with _as_caller(call):
            syscalls.bind(own.fileno(), struct.pack("=H", socket.AF_UNIX) + target)
    finally:
        os.close(folder)
    return 0


@contextlib.contextmanager
def _as_caller(call: Notification) -> Iterator[None]:
    """Create files with the caller's file system uid and gid, and its umask."""
    user, group, mask = callers.filesystem_user(call), callers.filesystem_group(call), callers.file_mask(call)
    before = os.umask(mask)
    syscalls.set_file_user(user, group)
    try:
        yield
    finally:
        syscalls.set_file_user(os.geteuid(), os.getegid())
        os.umask(before)
