"""Startup steps of server processes: limits, sockets, readiness."""

from __future__ import annotations

import resource
import socket
from collections.abc import Mapping
from pathlib import Path


def raise_open_files_limit() -> None:
    """Raise the soft limit of open files to the hard limit."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def bind_unix_socket(path: Path, kind: socket.SocketKind = socket.SOCK_STREAM) -> socket.socket:
    """Bind a unix socket that only this user can connect to, replacing a stale one."""
    path.unlink(missing_ok=True)
    sock = socket.socket(socket.AF_UNIX, kind)
    sock.bind(str(path))
    path.chmod(0o600)
    return sock


def report_ready(environment: Mapping[str, str]) -> None:
    """Report readiness to the parent: on MOORAGE_READY_FD, else on standard output."""
    descriptor = environment.get("MOORAGE_READY_FD")
    if not descriptor:
        print("listening", flush=True)
        return
    with open(int(descriptor), "wb", buffering=0) as pipe:
        pipe.write(b"ready\n")
