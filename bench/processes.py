"""Child processes of a benchmark: started, waited for, and never left behind."""

from __future__ import annotations

import ctypes
import os
import select
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

READY_S = 60.0
STOP_S = 15.0
_PR_SET_PDEATHSIG = 1
_libc = ctypes.CDLL(None)


class NotReady(Exception):
    """A child exited or timed out before it printed the expected line."""


def environment(**settings: object) -> dict[str, str]:
    """Return this process's variables, with only the given settings of the product."""
    env = {name: value for name, value in os.environ.items() if not name.startswith("MOORAGE_")}
    return {**env, **{f"MOORAGE_{name.upper()}": str(value) for name, value in settings.items()}}


def start(
    argv: list[str], log: Path, env: dict[str, str], *, pass_fds: tuple[int, ...] = (), user: int | None = None
) -> subprocess.Popen[bytes]:
    """Start a child whose standard error goes to a file, and which dies with us, however we die.

    With `user`, which needs root, the child has the rights of this user and of no group.
    """
    with log.open("ab") as stderr:
        return subprocess.Popen(
            argv,
            env=env,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=stderr,
            pass_fds=pass_fds,
            user=user,
            group=user,
            extra_groups=None if user is None else [],
            preexec_fn=die_with_parent,
        )


def die_with_parent() -> None:
    _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def wait_for_line(source: int, prefix: str, log: Path, timeout_s: float = READY_S) -> str:
    """Read lines from a pipe until one starts with `prefix`, and return it; raises NotReady."""
    deadline = time.monotonic() + timeout_s
    heard = b""
    while (left := deadline - time.monotonic()) > 0:
        if not select.select([source], [], [], left)[0]:
            break
        chunk = os.read(source, 65536)
        heard += chunk
        *whole, _ = heard.decode().split("\n")
        for line in whole:
            if line.startswith(prefix):
                return line
        if not chunk:
            break
    raise NotReady(f"no line {prefix!r}; it said {heard.decode()!r} and logged {_tail(log)!r}")


def stop(process: subprocess.Popen[bytes]) -> None:
    """Ask a child to end, make it end if it does not, and collect it. Safe to repeat."""
    if process.poll() is None:
        process.terminate()
        try:
            process.wait(STOP_S)
        except subprocess.TimeoutExpired:
            process.kill()
    process.wait()
    if process.stdout is not None:
        process.stdout.close()


@contextmanager
def running(argv: list[str], log: Path, env: dict[str, str]) -> Iterator[subprocess.Popen[bytes]]:
    process = start(argv, log, env)
    try:
        yield process
    finally:
        stop(process)


def free_ports(count: int) -> list[int]:
    """Return ports that nothing listens on; held together while they are chosen, so that they differ."""
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports: list[int] = [each.getsockname()[1] for each in sockets]
    for each in sockets:
        each.close()
    return ports


def _tail(log: Path) -> str:
    return log.read_text(errors="replace")[-2000:] if log.exists() else ""
