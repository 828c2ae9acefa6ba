"""Access to memory and sockets of a process that waits for the supervisor.

The caller's other threads may change memory and descriptors at any time. So the supervisor reads nothing twice: it
copies an address once, and keeps a duplicate of the socket's descriptor.
"""

from __future__ import annotations

import errno
import fcntl
import os
import socket
import struct
from ipaddress import IPv4Address, IPv6Address

from moorage.core.kit.records import dataclass
from moorage.runtime.sandbox import syscalls
from moorage.runtime.sandbox.network.notify import Notification

_SO_NETNS_COOKIE = 71
_TCP_INFO = 11
_MAX_ADDRESS_BYTES = 128  # sizeof(struct sockaddr_storage)
# The errno of a non-blocking connect, for one that a signal interrupted.
_IF_INTERRUPTED: dict[int, int] = {
    socket.AF_INET: errno.EINPROGRESS,
    socket.AF_INET6: errno.EINPROGRESS,
    socket.AF_UNIX: errno.EAGAIN,
}
_MIN_ADDRESS_BYTES = {socket.AF_INET: 16, socket.AF_INET6: 24}


@dataclass(frozen=True, slots=True)
class Address:
    """The socket address of a call."""

    data: bytes  # struct sockaddr, with the family in the first two bytes
    family: int
    ip: IPv4Address | IPv6Address | None = None  # IPv4 for an IPv4-mapped address
    port: int = 0

    def for_socket(self, family: int) -> tuple[str, int] | tuple[str, int, int, int]:
        """Return the address for `socket.connect`, without flow label and zone."""
        if family == socket.AF_INET6:
            text = f"::ffff:{self.ip}" if isinstance(self.ip, IPv4Address) else str(self.ip)
            return (text, self.port, 0, 0)
        return (str(self.ip), self.port)


def read_address(notification: Notification, pointer: int, length: int) -> Address:
    if not 2 <= length <= _MAX_ADDRESS_BYTES:
        raise OSError(errno.EINVAL, "the length is not one of a socket address")
    data = syscalls.process_vm_readv(notification.thread_id, pointer, length)
    if len(data) < length:
        raise OSError(errno.EFAULT, "the address ends outside the memory")
    return parse_address(data)


def parse_address(data: bytes) -> Address:
    (family,) = struct.unpack_from("=H", data)
    if len(data) < _MIN_ADDRESS_BYTES.get(family, 2):
        raise OSError(errno.EINVAL, "the address is too short for its family")
    if family == socket.AF_INET:
        return Address(data, family, IPv4Address(data[4:8]), int.from_bytes(data[2:4], "big"))
    if family == socket.AF_INET6:
        ip = IPv6Address(data[8:24])
        return Address(data, family, ip.ipv4_mapped or ip, int.from_bytes(data[2:4], "big"))
    return Address(data, family)


def borrow_socket(notification: Notification, fd: int) -> socket.socket:
    """Duplicate the caller's socket, which shares options and state with it."""
    pidfd = _open_process(notification.thread_id)
    try:
        duplicate = syscalls.pidfd_getfd(pidfd, fd)
    finally:
        os.close(pidfd)
    try:
        return socket.socket(fileno=duplicate)
    except OSError:
        os.close(duplicate)
        raise


def _open_process(thread_id: int) -> int:
    try:
        return syscalls.pidfd_open(thread_id)
    except OSError as error:
        # A thread other than the main one gives EINVAL, or ENOENT since Linux 6.15.
        if error.errno not in (errno.EINVAL, errno.ENOENT):
            raise
        return syscalls.pidfd_open(int(_status(thread_id, "Tgid")[0]))


def _status(thread_id: int, name: str) -> list[str]:
    try:
        with open(f"/proc/{thread_id}/status") as status:
            return next(line.split()[1:] for line in status if line.startswith(f"{name}:"))
    except (FileNotFoundError, StopIteration):
        raise OSError(errno.ESRCH, "the caller is gone") from None


def open_path(notification: Notification, path: bytes, *, is_absolute: bool, flags: int = 0) -> int:
    """Open a path (O_PATH) below the caller's root or working directory."""
    link, resolve = ("root", syscalls.RESOLVE_IN_ROOT) if is_absolute else ("cwd", syscalls.RESOLVE_BENEATH)
    start = os.open(f"/proc/{notification.thread_id}/{link}", os.O_PATH | os.O_DIRECTORY)
    flags |= os.O_PATH | os.O_CLOEXEC
    try:
        return syscalls.openat2(start, path, flags, resolve | syscalls.RESOLVE_NO_MAGICLINKS)
    finally:
        os.close(start)


def filesystem_user(notification: Notification) -> int:
    return int(_status(notification.thread_id, "Uid")[3])


def filesystem_group(notification: Notification) -> int:
    return int(_status(notification.thread_id, "Gid")[3])


def file_mask(notification: Notification) -> int:
    return int(_status(notification.thread_id, "Umask")[0], 8)


def closes_on_exec(notification: Notification, fd: int) -> bool:
    try:
        with open(f"/proc/{notification.thread_id}/fdinfo/{fd}") as info:
            flags = next(line.split()[1] for line in info if line.startswith("flags:"))
    except FileNotFoundError:
        raise OSError(errno.EBADF, "the caller has closed the socket") from None
    return bool(int(flags, 8) & os.O_CLOEXEC)


def namespace_of(sock: socket.socket) -> bytes:
    """Return the cookie of a socket's network namespace, which is never reused."""
    return sock.getsockopt(socket.SOL_SOCKET, _SO_NETNS_COOKIE, 8)


def tcp_state(sock: socket.socket) -> int:
    return sock.getsockopt(socket.IPPROTO_TCP, _TCP_INFO, 1)[0]


def is_nonblocking(sock: socket.socket) -> bool:
    return bool(fcntl.fcntl(sock, fcntl.F_GETFL) & os.O_NONBLOCK)


def connect_borrowed(sock: socket.socket, address: bytes) -> int:
    """Start connecting a borrowed socket in its own namespace, and return the errno.

    O_NONBLOCK is shared with the caller, so it is set for this call only. If the caller clears it in between, the call
    blocks until the supervisor's alarm, and the connection continues in the kernel.
    """
    flags = fcntl.fcntl(sock, fcntl.F_GETFL)
    fcntl.fcntl(sock, fcntl.F_SETFL, flags | os.O_NONBLOCK)
    try:
        syscalls.connect(sock.fileno(), address)
    except OSError as error:
        return _IF_INTERRUPTED[sock.family] if error.errno == errno.EINTR else error.errno or errno.EIO
    finally:
        fcntl.fcntl(sock, fcntl.F_SETFL, flags)
    return 0
