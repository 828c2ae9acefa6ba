"""The result of a check, and helpers that look for programs."""

from __future__ import annotations

import os
import subprocess
from enum import StrEnum
from importlib import util
from pathlib import Path

from moorage.core.kit.records import dataclass

VERSION_TIMEOUT_S = 20


class State(StrEnum):
    OK = "ok"  # no problem
    WARN = "warn"  # the platform runs, but something works less well or less safely
    FAIL = "fail"  # the platform cannot do its work


@dataclass(frozen=True)
class Check:
    name: str
    state: State
    found: str
    fix: str | None = None


def program(name: str, path: str | None, otherwise: State, fix: str, *, flag: str = "--version") -> Check:
    """Run a program for its version: a binary for another architecture does not help."""
    if path is None:
        return Check(name, otherwise, "not found", fix)
    try:
        process = subprocess.run([path, flag], capture_output=True, text=True, timeout=VERSION_TIMEOUT_S, check=True)
    except (OSError, subprocess.SubprocessError) as error:
        return Check(name, otherwise, f"{path} cannot be run: {error}", fix)
    first = process.stdout.strip().partition("\n")[0]
    return Check(name, State.OK, f"{first.partition(' h1:')[0]} ({path})")  # Caddy adds a checksum.


def in_package(package: str, path: str) -> str | None:
    """Return an executable of an installed package, without importing the package."""
    spec = util.find_spec(package)
    for folder in (spec.submodule_search_locations or []) if spec else []:
        if os.access(Path(folder) / path, os.X_OK):
            return str(Path(folder) / path)
    return None
