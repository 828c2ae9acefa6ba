"""Ports for servers that tests start: none that the system gives to clients, or the platform to apps and databases."""

from __future__ import annotations

import contextlib
import itertools
import random
import socket
from collections.abc import Iterator

PORTS = range(30_000, 32_768)
_PROCESSES = 8  # processes that run tests at the same time, at most

# Each process has ports of its own, and comes back to one only after all the others.
_own = PORTS
_turn: Iterator[int] = iter(())


def take(process: int) -> None:
    """Take the ports of one of the processes that run tests at the same time."""
    global _own, _turn
    _own = PORTS[process % _PROCESSES :: _PROCESSES]
    _turn = itertools.cycle(_own)
    for _ in range(
        random.randrange(len(_own))
    ):  # A run after another one does not meet the servers that it left behind.
        next(_turn)


take(0)


def free_port() -> int:
    """Return a port that nobody listens at, and that nobody else takes meanwhile."""
    for port in itertools.islice(_turn, len(_own)):
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port
    raise RuntimeError(f"every port from {PORTS.start} to {PORTS.stop - 1} that is this process's is taken")
