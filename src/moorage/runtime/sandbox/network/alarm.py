"""A bound on how long one call of a sandbox can hold up the supervisor that all of them share.

Some calls wait for a sandbox or can be made to: a descriptor is put in place by the caller itself, which may not be
given a processor; a connect whose non-blocking flag another thread takes away; the last close of a socket that lingers.
The kernel ends each of these waits when a signal comes.
"""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Iterator
from types import FrameType

PATIENCE_S = 0.005


class Alarm:
    """Interrupts the main thread, again and again, while a watched block takes too long."""

    def __init__(self) -> None:
        self.rang = False
        signal.signal(signal.SIGALRM, self._ring)

    def _ring(self, number: int, frame: FrameType | None) -> None:
        self.rang = True

    @contextlib.contextmanager
    def watch(self) -> Iterator[None]:
        """Watch a block that does not await anything. Afterwards `rang` tells whether it took too long."""
        self.rang = False
        signal.setitimer(signal.ITIMER_REAL, PATIENCE_S, PATIENCE_S)
        try:
            yield
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
