"""A data folder with something of everything in it, and a backup of it."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from tests.command import fill, in_store
from tests.platform.backup_support import ARTIFACT, quiet, settings_for, write

from moorage.platform.backups import backup


@pytest.fixture(scope="session")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A data folder to copy: making its store takes longer than most of what is done with it."""
    folder = tmp_path_factory.mktemp("filled") / "data"
    in_store(folder, fill)
    return folder


@pytest.fixture
def data(tmp_path: Path, filled: Path) -> Path:
    """A data folder with a user, a secret, an artifact and the files of a stopped database server."""
    folder = shutil.copytree(filled, tmp_path / "data")
    write(folder / ARTIFACT, b"\0artifact" * 1000, 0o644)
    write(folder / "databases/7/base/1", b"rows", 0o600)
    (folder / "databases/7/pg_notify").mkdir(mode=0o700)
    return folder


@pytest.fixture
def file(tmp_path: Path, data: Path) -> Path:
    """A good backup of `data`."""
    target = tmp_path / "good.tar.gz"
    backup.back_up(settings_for(data), target, snapshot=None, report=quiet)
    return target
