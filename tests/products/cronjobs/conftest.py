"""Organizations with cronjobs."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest
from tests.products.cronjobs.run_support import Machine
from tests.products.cronjobs.support import Team, make_team

from moorage.app import App
from moorage.core.db.store import Database
from moorage.runtime.engines.local import LocalReplicas


@pytest.fixture
async def team(app: App, db: Database) -> Team:
    return await make_team(app, db)


@pytest.fixture
async def stranger(app: App, db: Database) -> Team:
    """Another organization of the same platform."""
    return await make_team(app, db)


@pytest.fixture
async def machine(app: App) -> AsyncIterator[Machine]:
    made = await Machine.start(app, app.products.cronjobs.runner)
    yield made
    await made.end()
    left = LocalReplicas(app.products.cronjobs.db.env.settings.folder("run"), "cronjobs")
    await left.adopt({})
    while any((app.products.cronjobs.db.env.settings.folder("run") / "cronjobs").glob("c*")):
        await asyncio.sleep(0.05)
    await left.close()
