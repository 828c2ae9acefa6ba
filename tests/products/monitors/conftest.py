"""Organizations with monitors."""

from __future__ import annotations

import pytest
from tests.products.monitors.prober_support import Org, Stage, some_org
from tests.products.monitors.support import Team, make_team

from moorage.app import App
from moorage.core.db.store import Database
from moorage.core.kit.clock import ManualClock


@pytest.fixture
async def team(app: App, db: Database) -> Team:
    return await make_team(app, db)


@pytest.fixture
async def stranger(app: App, db: Database) -> Team:
    """Another organization of the same platform."""
    return await make_team(app, db, name="Elsewhere")


@pytest.fixture
async def org(db: Database) -> Org:
    return await some_org(db)


@pytest.fixture
def stage(db: Database, clock: ManualClock) -> Stage:
    return Stage(db, clock)
