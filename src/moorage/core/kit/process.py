"""What every process of the platform that serves others does first: make room, listen, say that it is ready."""

from __future__ import annotations

import resource
import socket
from collections.abc import Mapping
from pathlib import Path


def open_many() -> None:
    """Let this process have as many open files as it may: thousands of connections and cells need them."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


def bind_locally(path: Path) -> socket.socket:
    """Return a socket for the processes of this user alone, in the place of one that an earlier process left."""
    path.unlink(missing_ok=True)
    sock = socket.socket(socket.AF_UNIX)
    sock.bind(str(path))
    path.chmod(0o600)
    return sock


def say_ready(environment: Mapping[str, str]) -> None:
    """Tell who started this process that it listens: on the descriptor it named, else on standard output."""
    descriptor = environment.get("MOORAGE_READY_FD")
    if not descriptor:
        print("listening", flush=True)
        return
    with open(int(descriptor), "wb", buffering=0) as pipe:
        pipe.write(b"ready\n")
