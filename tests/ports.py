"""Ports for servers that tests start: none that the system gives to clients, or the platform to apps and databases."""

from __future__ import annotations

import contextlib
import itertools
import os
import random
import socket

PORTS = range(30_000, 32_768)
_WORKERS = 8  # processes that run tests at the same time, at most

# Each process has ports of its own, and comes back to one only after all the others.
_own = PORTS[int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw")) % _WORKERS :: _WORKERS]
_turn = itertools.cycle(_own)
for _ in range(random.randrange(len(_own))):  # A run after another one does not meet the servers that it left behind.
    next(_turn)


def free_port() -> int:
    """Return a port that nobody listens at, and that nobody else takes meanwhile."""
    for port in itertools.islice(_turn, len(_own)):
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port
    raise RuntimeError(f"every port from {PORTS.start} to {PORTS.stop - 1} that is this process's is taken")
