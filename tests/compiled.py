"""Compile the code and the tests once, before the processes that run tests start.

They start at the same time and read the same files, so each of them would compile everything.
"""

from __future__ import annotations

import compileall
import contextlib
import importlib
import sys
from pathlib import Path

import pytest

TESTS = Path(__file__).parent
NOT_OURS = (TESTS / "e2e" / "apps", TESTS / "npm")  # apps that tests deploy, and packages of npm


def compile_code(package: Path) -> None:
    compileall.compile_dir(package, quiet=2)


def compile_tests() -> None:
    """Import each changed test module: pytest rewrites its assertions and caches the result."""
    for path in TESTS.rglob("*.py"):
        if any(path.is_relative_to(folder) for folder in NOT_OURS):
            continue
        if not path.name.startswith("test_") and path.name != "conftest.py":
            compileall.compile_file(path, quiet=2)
        elif not _is_cached(path):
            with contextlib.suppress(Exception):  # The process that collects the module reports the error.
                importlib.import_module(".".join(path.relative_to(TESTS.parent).with_suffix("").parts))


def _is_cached(path: Path) -> bool:
    name = f"{path.stem}.{sys.implementation.cache_tag}-pytest-{pytest.__version__}.pyc"
    cached = path.parent / "__pycache__" / name
    return cached.is_file() and cached.stat().st_mtime >= path.stat().st_mtime
