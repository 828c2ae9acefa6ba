"""What tests of backups and of restores share: data folders to write and compare, and commands to kill half way."""

from __future__ import annotations

import hashlib
import os
import signal
import stat
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.command import argv, environment

from moorage.settings import Settings

ARTIFACT = "artifacts/sha256/ab/" + "c" * 62 + ".0123456789abcdef"
SAVED = ("store/moorage.db", "artifacts", "databases", "keys", "instance")


def quiet(_: str) -> None:
    pass


def settings_for(data: Path, **given: Any) -> Settings:
    return Settings(_env_file=None, data=data, **given)


def write(path: Path, content: bytes, mode: int = 0o600) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    path.chmod(mode)


def tree(folder: Path, *names: str) -> dict[str, tuple[int, str]]:
    """Every file and folder with its mode and content, to compare two data folders."""
    found = {}
    for top in names or sorted(path.name for path in folder.iterdir()):
        for path in sorted([folder / top, *(folder / top).rglob("*")]):
            if path.name != "lock" and path.exists():
                content = hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else "folder"
                found[str(path.relative_to(folder))] = (stat.S_IMODE(path.stat().st_mode), content)
    return found


def kill_when(appears: Callable[[], bool], *words: str | Path) -> int:
    """Start a command and kill it as soon as it is in the middle of its work; return its exit code."""
    with subprocess.Popen(argv(*words), env=environment(), stdout=subprocess.DEVNULL) as process:
        while not appears():
            assert process.poll() is None, "it ended before it was in the middle"
            time.sleep(0.001)
        os.kill(process.pid, signal.SIGKILL)
    return process.returncode


def size_of(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0
