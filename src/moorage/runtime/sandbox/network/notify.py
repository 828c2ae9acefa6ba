"""The kernel's side of a supervised call: receive it, replace a descriptor of its caller, answer it."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import select
import struct
from dataclasses import dataclass

_RECEIVE = 0xC0502100
_SEND = 0xC0182101
_ID_VALID = 0x40082102
_ADD_FD = 0x40182103
_SET_FLAGS = 0x40082104
_SYNC_WAKE_UP = 1
_ADD_FD_IN_PLACE = 1


@dataclass(frozen=True, slots=True)
class Notification:
    """A call that waits for its answer."""

    id: int
    thread_id: int  # 0 when the caller lives in a process namespace that this process cannot see.
    number: int
    arguments: tuple[int, ...]


class Listener:
    """The listening end of a filter. Once closed it does nothing, so a late answer cannot reach another sandbox."""

    def __init__(self, fd: int) -> None:
        self.fd = fd
        self._poll = select.poll()
        self._poll.register(fd, select.POLLIN)
        with contextlib.suppress(OSError):  # Linux 6.6 brought this shorter way between caller and listener.
            fcntl.ioctl(fd, _SET_FLAGS, _SYNC_WAKE_UP)

    def close(self) -> None:
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1

    def events(self) -> int:
        """Tell what poll reports now. Receiving without a waiting call would block on kernels before 6.11."""
        ready = self._poll.poll(0) if self.fd >= 0 else []
        return ready[0][1] if ready else 0

    def receive(self) -> Notification | None:
        """Take the next call; None when its caller was killed in the meantime."""
        buffer = bytearray(80)
        try:
            fcntl.ioctl(self.fd, _RECEIVE, buffer)
        except OSError as error:
            if error.errno in (errno.ENOENT, errno.EINTR):  # After a signal it is there to be taken again.
                return None
            raise
        id_, thread_id, _, number, _, _, *arguments = struct.unpack("=QIIiIQ6Q", buffer)
        return Notification(id_, thread_id, number, tuple(arguments))

    def require_waiting(self, notification: Notification) -> None:
        """Make sure the caller still waits, so that what was read of it by its number was not another process's."""
        self._ioctl(_ID_VALID, struct.pack("=Q", notification.id))

    def put_in_place(self, notification: Notification, fd: int, target_fd: int, *, cloexec: bool) -> None:
        """Let the caller's descriptor refer to what `fd` refers to here.

        The caller itself has to run for this. One that is not given a processor makes us wait, until a signal comes:
        then nothing was done, and it is an `InterruptedError`.
        """
        flags = os.O_CLOEXEC if cloexec else 0
        self._require_open()
        fcntl.ioctl(self.fd, _ADD_FD, struct.pack("=QIIII", notification.id, _ADD_FD_IN_PLACE, fd, target_fd, flags))

    def answer(self, notification: Notification, code: int) -> None:
        """End the call with an errno, or 0. A caller that is gone is no error."""
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
