"""`?wait=` on the routes of functions, which answer after their work anyway."""

from __future__ import annotations

import pytest
from tests.client import Client
from tests.products.functions.support import NODE, form, make_team, zip_of

from moorage.app import App
from moorage.core.db.store import Database

pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("impatient")]


async def test_a_function_that_waits_is_answered_with_its_status_too(app: App, db: Database) -> None:
    team = await make_team(app.asgi, db)
    api: Client = team.api

    made = await api.post("/v1/functions?wait=60", **form(zip_of(NODE), name="hello"))
    deployed = await api.post("/v1/functions/hello/deploy?wait=60", **form(zip_of(NODE)))
    changed = await api.patch("/v1/functions/hello?wait=60", json={"memory": 512})
    refused = await api.patch("/v1/functions/hello?wait=61", json={"memory": 128})
    read = await api.patch("/v1/functions/hello", json={})
    await app.products.functions.edge.close()

    assert (made.status, made.data["currentVersion"]) == (200, 1)
    assert set(made.data) - set(read.data) == {"status"}
    assert made.data["status"] == deployed.data["status"] == changed.data["status"] == "succeeded"
    assert changed.data["memory"] == read.data["memory"] == 512
    assert set(refused.error["fields"]) == {"wait"}
