"""Time limit for a sandbox's call in the supervisor, which all sandboxes share.

Some system calls of the supervisor block on a sandbox, or a sandbox can make them block: installing a descriptor needs
the caller to run, and it may get no CPU; another thread may clear the O_NONBLOCK flag of a connecting socket; the last
close of a socket with SO_LINGER waits. A signal interrupts each of them.
"""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Iterator
from types import FrameType

CALL_TIME_LIMIT_S = 0.005


class Alarm:
    """Sends SIGALRM repeatedly while a watched block takes too long."""

    def __init__(self) -> None:
        self.rang = False
        signal.signal(signal.SIGALRM, self._ring)

    def _ring(self, number: int, frame: FrameType | None) -> None:
        self.rang = True

    @contextlib.contextmanager
    def watch(self) -> Iterator[None]:
        """Watch a block without `await`; afterwards `rang` is true if it took too long."""
        self.rang = False
        signal.setitimer(signal.ITIMER_REAL, CALL_TIME_LIMIT_S, CALL_TIME_LIMIT_S)
        try:
            yield
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
