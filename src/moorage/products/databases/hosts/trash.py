"""Folders of deleted databases on this machine."""

from __future__ import annotations

import shutil
from pathlib import Path

from moorage.core.kit import folders


def put(root: Path, trash: Path) -> None:
    """Move the folder of a database to the trash. Safe to repeat."""
    trash.mkdir(mode=0o711, exist_ok=True)
    target = trash / name_of(root)
    if root.exists():
        folders.remove(target)
        shutil.move(root, target)


def take_back(root: Path, trash: Path) -> None:
    """Move the folder of a database back. Safe to repeat."""
    source = trash / name_of(root)
    if not root.exists() and source.exists():
        root.parent.mkdir(mode=0o711, exist_ok=True)
        shutil.move(source, root)


def name_of(root: Path) -> str:
    return f"database-{root.name}"
