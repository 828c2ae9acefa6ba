"""Memory of a program's file that a process used to start, and needs no more.

A large program such as Caddy maps most of its file while it starts. The kernel frees these pages only when memory is
scarce, so they count until then. Only the standard library is imported here: the supervisor uses this module.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import socket
from pathlib import Path

MADV_PAGEOUT = 21
PROCESS_MADVISE = 440  # number of the system call on every architecture; since Linux 5.10
TIMEOUT_S = 5.0
REQUEST = b"HEAD / HTTP/1.1\r\nHost: moorage.invalid\r\nConnection: close\r\n\r\n"


class _Range(ctypes.Structure):
    _fields_ = (("start", ctypes.c_void_p), ("length", ctypes.c_size_t))


def drop(pid: int) -> int:
    """Free the pages of the program file of a process; the kernel reads them again on their next use.

    Returns the number of bytes of the mappings. It is 0 where the kernel does not allow this: it needs CAP_SYS_NICE and
    a program file that this user may write or owns.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    advised = 0
    with contextlib.suppress(OSError):
        descriptor = os.pidfd_open(pid)
        try:
            for start, end in _program_ranges(pid):
                mapping = _Range(start, end - start)
                advised += max(libc.syscall(PROCESS_MADVISE, descriptor, ctypes.byref(mapping), 1, MADV_PAGEOUT, 0), 0)
        finally:
            os.close(descriptor)
    return advised


def request_once(address: tuple[str, int]) -> None:
    """Send one request to an HTTP server, so that the pages which a request needs are read before a visitor waits."""
    with contextlib.suppress(OSError), socket.create_connection(address, timeout=TIMEOUT_S) as connection:
        connection.sendall(REQUEST)
        while connection.recv(4096):
            pass


def _program_ranges(pid: int) -> list[tuple[int, int]]:
    """Return the address ranges in which a process maps its program file without write permission."""
    program = os.readlink(f"/proc/{pid}/exe")
    ranges = []
    for line in Path(f"/proc/{pid}/maps").read_text().splitlines():
        addresses, permissions, _offset, _device, _inode, *path = line.split(maxsplit=5)
        if path == [program] and "w" not in permissions:
            start, _, end = addresses.partition("-")
            ranges.append((int(start, 16), int(end, 16)))
    return ranges
