"""Ports for servers that tests start: none that the system gives to clients, or the platform to apps and databases."""

from __future__ import annotations

import contextlib
import secrets
import socket

PORTS = range(30_000, 32_768)


def free_port() -> int:
    """Return a port that nobody listens at, and that no connection of another test takes meanwhile."""
    while True:
        port = secrets.choice(PORTS)
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port
