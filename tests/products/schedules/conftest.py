"""A stand-in for the edge, and a control process."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from tests.builders import make_org
from tests.products.functions.edge_stand_in import EdgeStandIn, running
from tests.products.schedules.support import Control, make_function, make_schedule

from moorage.app import App
from moorage.core.db.store import Database
from moorage.core.kit.clock import ManualClock
from moorage.products.schedules.tables import Schedule
from moorage.runtime.edge.spool import SpoolWriter
from moorage.settings import Settings


@pytest.fixture
async def edge(settings: Settings, clock: ManualClock) -> AsyncIterator[EdgeStandIn]:
    writer = SpoolWriter(settings.folder("spool"), capacity=2**20)
    async with running(EdgeStandIn(settings.folder("run") / "edge.sock", writer, clock.now)) as stand_in:
        yield stand_in
    writer.close()


@pytest.fixture
async def control(db: Database, edge: EdgeStandIn) -> AsyncIterator[Control]:
    made = Control(db)
    yield made
    await made.die()


@pytest.fixture
async def live_app(app: App, edge: EdgeStandIn) -> AsyncIterator[App]:
    """The application with a running stand-in for the edge."""
    yield app
    await app.products.schedules.runner.stop()
    app.products.functions.recorder.close()
    await app.products.functions.edge.close()


@pytest.fixture
async def nightly(db: Database) -> Schedule:
    """A schedule that fires each minute."""
    org = await make_org(db)
    await make_function(db, org.id)
    return await make_schedule(db, org.id, params={"n": 1})
