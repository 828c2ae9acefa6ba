"""Folders as strangers publish them: repositories with links, and with programs in their configuration."""

from __future__ import annotations

import subprocess
from pathlib import Path

IDENTITY = ("-c", "user.name=Ada", "-c", "user.email=ada@example.com", "-c", "protocol.file.allow=always")


def write(folder: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    return folder


def git(folder: Path, *words: str) -> str:
    done = subprocess.run(["git", *IDENTITY, "-C", folder, *words], check=True, capture_output=True, text=True)
    return done.stdout


def repository(folder: Path, files: dict[str, str]) -> Path:
    """Write files and commit them."""
    write(folder, files)
    git(folder, "init", "-q", "-b", "main")
    git(folder, "add", "-A")
    git(folder, "commit", "-q", "-m", "the first")
    return folder
