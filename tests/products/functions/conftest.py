"""A stand-in for the edge, and an organization with functions that it serves."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from tests.products.functions.edge_stand_in import EdgeStandIn, running
from tests.products.functions.support import Team, make_team

from moorage.app import App
from moorage.core.db.store import Database
from moorage.settings import Settings


@pytest.fixture
async def gateway(settings: Settings) -> AsyncIterator[EdgeStandIn]:
    async with running(EdgeStandIn(settings.folder("run") / "edge.sock")) as stand_in:
        yield stand_in


@pytest.fixture
async def team(app: App, db: Database, gateway: EdgeStandIn) -> AsyncIterator[Team]:
    yield await make_team(app.asgi, db)
    await app.products.functions.edge.close()
