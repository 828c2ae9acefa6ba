"""A cron expression in words, with its next runs."""

from __future__ import annotations

import pytest
from tests.builders import make_user, session_for
from tests.client import Client

from moorage.core.db.store import Database

pytestmark = pytest.mark.anyio


async def test_the_next_runs_follow_the_time_zone(api: Client, db: Database) -> None:
    session = session_for(db, await make_user(db))

    reply = await api.get("/v1/cron/next?expression=0%209%20*%20*%201-5&timezone=Europe%2FBerlin", token=session)

    assert reply.data["description"] == "At 09:00 on Monday through Friday"
    assert (reply.data["expression"], reply.data["timezone"]) == ("0 9 * * 1-5", "Europe/Berlin")
    runs = reply.data["nextRuns"]
    assert len(runs) == 5
    assert sorted(run["at"] for run in runs) == [run["at"] for run in runs]
    assert all("T09:00:00+0" in run["localTime"] for run in runs)


@pytest.mark.parametrize(
    ("query", "field"),
    [
        ("expression=61+*+*+*+*", "expression"),
        ("", "expression"),
        ("expression=@daily&timezone=Nowhere", "timezone"),
    ],
)
async def test_a_bad_expression_or_zone_is_named(api: Client, db: Database, query: str, field: str) -> None:
    reply = await api.get(f"/v1/cron/next?{query}", token=session_for(db, await make_user(db)))

    assert (reply.status, list(reply.error["fields"])) == (400, [field])
