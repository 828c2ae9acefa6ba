"""Interpreters that the operator's user has installed with pyenv or uv."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path

from moorage.runtime.workers.runtimes import Runtime

OLDEST = 8  # minor version; uv installs into no older one
_READABLE = 0o005  # An app does not run as the operator's user.
_RELEASE = re.compile(r"(?:cpython-)?3\.(\d{1,2})\.(\d{1,3})(?:-linux-.*)?")


def find() -> dict[str, Runtime]:
    """Return them by version, each in its newest release."""
    releases: dict[int, tuple[int, Path]] = {}
    for folder in _folders():
        match = _RELEASE.fullmatch(folder.name)
        if match is None or int(match[1]) < OLDEST or folder.is_symlink():
            continue
        minor, patch = int(match[1]), int(match[2])
        program = folder / "bin" / f"python3.{minor}"
        if _is_usable(folder, program) and patch > releases.get(minor, (-1, program))[0]:
            releases[minor] = patch, program.resolve()
    names = {minor: f"3.{minor}" for minor in sorted(releases)}
    return {name: Runtime(f"python:{name}", "python", releases[minor][1]) for minor, name in names.items()}


def _folders() -> Iterator[Path]:
    home = Path(os.path.expanduser("~"))
    pyenv = Path(os.environ.get("PYENV_ROOT") or home / ".pyenv") / "versions"
    uv = Path(os.environ.get("UV_PYTHON_INSTALL_DIR") or home / ".local/share/uv/python")
    for parent in (pyenv, uv):
        try:
            yield from sorted(parent.iterdir())
        except OSError:
            continue


def _is_usable(folder: Path, program: Path) -> bool:
    """Whether others may run it, and its links lead out of its folder nowhere."""
    try:
        modes = [each.stat().st_mode & _READABLE for each in (folder, folder / "lib", program)]
        return all(mode == _READABLE for mode in modes) and program.resolve().is_relative_to(folder.resolve())
    except OSError:
        return False
