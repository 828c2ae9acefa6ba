"""Carrying out the `bind` of a sandbox whose connections come in through a door.

Such a connection is a socket of the host. Once it has ended the kernel would let its holder bind it to any port of the
host, and keep that port from whoever needs it. So sockets of the host are refused, and the sandbox's own are bound by
the supervisor, on a duplicate: the call itself is never let through, for its descriptor could be changed meanwhile.
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
from moorage.runtime.sandbox.network.notify import Listener, Notification

_NO_NAMES = (b"", b".", b"..")


def bind(listener: Listener, call: Notification, own: socket.socket, address: Address) -> int:
    """Bind a sandbox's own socket; an `OSError` is an outcome as well."""
    path = address.data[2:].partition(b"\0")[0] if address.family == socket.AF_UNIX else b""
    if own.family != socket.AF_UNIX or not path:
        syscalls.bind(own.fileno(), address.data)
        return 0
    parent, _, name = path.rpartition(b"/")
    if name in _NO_NAMES:
        return errno.EADDRINUSE
    folder = _open_folder(call, parent, is_absolute=path.startswith(b"/"))
    try:
        listener.require_waiting(call)
        target = f"/proc/self/fd/{folder}/".encode() + name + b"\0"
        with _seen_as(call):
            syscalls.bind(own.fileno(), struct.pack("=H", socket.AF_UNIX) + target)
    finally:
        os.close(folder)
    return 0


def _open_folder(call: Notification, path: bytes, *, is_absolute: bool) -> int:
    """Open a folder as the caller sees it."""
    place, resolve = ("root", syscalls.RESOLVE_IN_ROOT) if is_absolute else ("cwd", syscalls.RESOLVE_BENEATH)
    start = os.open(f"/proc/{call.thread_id}/{place}", os.O_PATH | os.O_DIRECTORY)
    flags = os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC
    try:
        return syscalls.openat2(start, path or b".", flags, resolve | syscalls.RESOLVE_NO_MAGICLINKS)
    finally:
        os.close(start)


@contextlib.contextmanager
def _seen_as(call: Notification) -> Iterator[None]:
    """Make files as the caller would: its own, with its own mask."""
    user, group, mask = callers.filesystem_user(call), callers.filesystem_group(call), callers.file_mask(call)
    before = os.umask(mask)
    syscalls.set_file_user(user, group)
    try:
        yield
    finally:
        syscalls.set_file_user(os.geteuid(), os.getegid())
        os.umask(before)
