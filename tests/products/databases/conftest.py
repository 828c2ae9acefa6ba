"""Organizations with databases."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests import memory
from tests.products.databases.support import Team, make_team

from moorage.app import App
from moorage.core.db.store import Database


@pytest.fixture
async def team(app: App, db: Database) -> Team:
    return await make_team(app, db)


@pytest.fixture
async def stranger(app: App, db: Database) -> Team:
    """Another organization of the same platform."""
    return await make_team(app, db)


@pytest.fixture
def tmp_path() -> Iterator[Path]:
    """A folder on tmpfs: the fsync calls of all tests would take minutes on a disk."""
    with memory.folder("moorage-") as made:
        yield made
