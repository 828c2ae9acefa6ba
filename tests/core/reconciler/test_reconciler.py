"""Maintenance tasks are restored in the timetable."""

from __future__ import annotations

import pytest

from moorage.app import App
from moorage.core.db.store import Database
from moorage.core.jobs import tables

pytestmark = [pytest.mark.anyio, pytest.mark.both_stores]


async def test_a_chore_that_is_missing_from_the_timetable_comes_back(app: App, db: Database) -> None:
    await app.handlers.ensure_maintenance(db, 0)
    await db.write(lambda tx: tx.run(tables.REMOVE_ENTRY, kind="platform.sweep", org_id=0, ref=""))

    await app.handlers.ensure_maintenance(db, 0)

    entry = await db.read(lambda tx: tx.find(tables.FIND_ENTRY, kind="platform.sweep", org_id=0, ref=""))
    assert entry is not None
