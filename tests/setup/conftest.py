"""Runs of the setup as make starts it."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
Run = Callable[..., subprocess.CompletedProcess[str]]


def environment(home: Path, **extra: str) -> dict[str, str]:
    kept = {name: text for name, text in os.environ.items() if not name.startswith(("MOORAGE_", "PIP_", "UV_"))}
    return kept | {"HOME": str(home), "PIP_CERT": os.environ.get("PIP_CERT", "")} | extra


@pytest.fixture
def run(tmp_path: Path) -> Run:
    """Run the setup with an empty home folder."""
    (tmp_path / "home").mkdir()

    def run(*arguments: str | Path, timeout_s: float = 600, **extra: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [ROOT / "requirements" / "setup", *arguments], env=environment(tmp_path / "home", **extra),
            capture_output=True, text=True, timeout=timeout_s, check=False,
        )  # fmt: skip

    return run


def sentences(ended: subprocess.CompletedProcess[str]) -> list[str]:
    """Return the messages of a failed setup."""
    assert ended.returncode == 1, ended.stdout + ended.stderr
    assert "Traceback" not in ended.stderr
    return [line for line in ended.stderr.splitlines() if line.startswith("setup: ")]
