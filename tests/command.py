"""The `moorage` command as a process of its own, with no setting of this machine in its environment."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeVar

from tests import forked
from tests.ports import free_port

from moorage.accounts.identity.operators import commands as operator
from moorage.accounts.identity.organizations import members
from moorage.core.db.tx import Tx
from moorage.core.vault import service as vault
from moorage.platform import opening
from moorage.settings import Settings

T = TypeVar("T")

STARTED_S = 60


def environment(**settings: str) -> dict[str, str]:
    clean = {name: value for name, value in os.environ.items() if not name.startswith("MOORAGE_")}
    return clean | {f"MOORAGE_{name}": value for name, value in settings.items()}


def argv(*words: str | Path) -> list[str]:
    return [sys.executable, "-m", "moorage.cli.main", *map(str, words)]


def moorage(*words: str | Path, **settings: str) -> subprocess.CompletedProcess[str]:
    return forked.run([*map(str, words)], cwd=Path.cwd(), env=environment(**settings))


@contextlib.contextmanager
def running(data: Path, **settings: str) -> Iterator[subprocess.Popen[bytes]]:
    """A real API process on a data folder, from the moment its operator's socket answers."""
    words = argv("serve", "--data", data, "--api-port", str(free_port()), "--metrics-port", "0")
    process = subprocess.Popen(words, env=environment(**settings), stderr=subprocess.DEVNULL)
    try:
        _wait_for(data / "run" / "admin.sock", process)
        yield process
    finally:
        process.terminate()
        process.wait(STARTED_S)


def in_store(data: Path, unit: Callable[[Tx], T], **given: str) -> T:
    """Run one unit of work on the store of a platform that does not run."""
    opened = opening.open_store(Settings(_env_file=None, data=data, **given))
    try:
        return asyncio.run(opened.db.write(unit))
    finally:
        opened.close()


def fill(tx: Tx) -> None:
    """Write a user with an organization, and a secret of it."""
    opening.prepare(tx)
    _, org_id = operator.create_user(tx, "ada@example.com")
    vault.put(tx, org_id, "project:1", "TOKEN", "hunter2")


def secret_of(tx: Tx) -> str | None:
    user = operator.get_user(tx, "ada@example.com")
    return vault.find(tx, members.memberships(tx, user.id)[0].org_id, "project:1", "TOKEN")


def _wait_for(path: Path, process: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + STARTED_S
    while True:
        with socket.socket(socket.AF_UNIX) as sock, contextlib.suppress(OSError):
            sock.connect(str(path))
            return
        assert process.poll() is None, "the platform ended"
        assert time.monotonic() < deadline, "the platform does not start"
        time.sleep(0.02)
