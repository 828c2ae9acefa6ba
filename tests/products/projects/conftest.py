"""An organization with projects."""

from __future__ import annotations

import pytest
from tests.products.projects.support import Team, make_team

from moorage.app import App
from moorage.core.db.store import Database


@pytest.fixture
async def team(app: App, db: Database) -> Team:
    return await make_team(app, db)


@pytest.fixture
async def stranger(app: App, db: Database) -> Team:
    """Another organization of the same platform."""
    return await make_team(app, db)
