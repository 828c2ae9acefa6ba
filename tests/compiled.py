"""Compiling the code and the tests once, before the processes that run tests begin.

They begin all at once and read the same files at the same time, so that each would compile everything.
"""

from __future__ import annotations

import compileall
from pathlib import Path

import pytest
from _pytest.assertion import rewrite

TESTS = Path(__file__).parent
NOT_OURS = (TESTS / "e2e" / "apps", TESTS / "npm")  # what tests deploy, and what npm installed


def compile_code(package: Path) -> None:
    compileall.compile_dir(package, quiet=2)


def compile_tests(config: pytest.Config) -> None:
    """Write what pytest keeps of every test, whose assertions it writes anew, and what Python keeps of all else."""
    for path in TESTS.rglob("*.py"):
        if any(path.is_relative_to(folder) for folder in NOT_OURS):
            continue
        if path.name.startswith("test_") or path.name == "conftest.py":
            _compile_test(path, config)
        else:
            compileall.compile_file(path, quiet=2)


def _compile_test(path: Path, config: pytest.Config) -> None:
    folder = rewrite.get_cache_dir(path)
    kept = folder / (path.stem + rewrite.PYC_TAIL)
    if rewrite._read_pyc(path, kept) is None and rewrite.try_makedirs(folder):
        source_hash, code = rewrite._rewrite_test(path, config)
        rewrite._write_pyc(config.stash[rewrite.assertstate_key], code, source_hash, kept)
