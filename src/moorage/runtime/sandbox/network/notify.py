"""Seccomp user notification: receive calls, replace descriptors, answer."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import select
import struct

from moorage.core.kit.records import dataclass

_RECEIVE = 0xC0502100
_SEND = 0xC0182101
_ID_VALID = 0x40082102
_ADD_FD = 0x40182103
_SET_FLAGS = 0x40082104
_SYNC_WAKE_UP = 1
_ADD_FD_REPLACE = 1


@dataclass(frozen=True, slots=True)
class Notification:
    """A system call that waits for its answer."""

    id: int
    thread_id: int  # 0 if the caller is in a PID namespace that this process cannot see
    number: int
    arguments: tuple[int, ...]


class SeccompListener:
    """Owns a filter's notify descriptor. After `close`, late answers have no effect."""

    def __init__(self, fd: int) -> None:
        self.fd = fd
        self._poll = select.poll()
        self._poll.register(fd, select.POLLIN)
        with contextlib.suppress(OSError):  # Faster wake-ups between caller and listener, since Linux 6.6.
            fcntl.ioctl(fd, _SET_FLAGS, _SYNC_WAKE_UP)

    def close(self) -> None:
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1

    def events(self) -> int:
        """Return the poll events; before Linux 6.11, `receive` blocks without POLLIN."""
        ready = self._poll.poll(0) if self.fd >= 0 else []
        return ready[0][1] if ready else 0

    def receive(self) -> Notification | None:
        """Receive the next call; None if its caller was killed, or after a signal."""
        buffer = bytearray(80)
        try:
            fcntl.ioctl(self.fd, _RECEIVE, buffer)
        except OSError as error:
            if error.errno in (errno.ENOENT, errno.EINTR):  # After a signal, the call is still pending.
                return None
            raise
        id_, thread_id, _, number, _, _, *arguments = struct.unpack("=QIIiIQ6Q", buffer)
        return Notification(id_, thread_id, number, tuple(arguments))

    def require_waiting(self, notification: Notification) -> None:
        """Raise OSError unless the caller still waits, so its thread ID was not reused."""
        self._ioctl(_ID_VALID, struct.pack("=Q", notification.id))

    def replace_descriptor(self, notification: Notification, fd: int, target_fd: int, *, cloexec: bool) -> None:
        """Replace the caller's descriptor `target_fd` by a duplicate of `fd`.

        The caller has to run for this: without a CPU for it, the call blocks until a signal raises InterruptedError,
        with nothing changed.
        """
        flags = os.O_CLOEXEC if cloexec else 0
        self._require_open()
        fcntl.ioctl(self.fd, _ADD_FD, struct.pack("=QIIII", notification.id, _ADD_FD_REPLACE, fd, target_fd, flags))

    def answer(self, notification: Notification, code: int) -> None:
        """Finish the call with an errno, or 0. A caller that has exited is no error."""
        try:
            self._ioctl(_SEND, struct.pack("=QqiI", notification.id, 0, -code, 0))
        except OSError as error:
            if error.errno != errno.ENOENT:
                raise

    def _ioctl(self, request: int, argument: bytes) -> None:
        self._require_open()
        while True:
            with contextlib.suppress(InterruptedError):
                fcntl.ioctl(self.fd, request, argument)
                return

    def _require_open(self) -> None:
        if self.fd < 0:
            raise OSError(errno.ENOENT, "the sandbox has ended")
