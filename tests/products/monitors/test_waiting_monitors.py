"""`?wait=` on the routes of monitors: the answer has the first check."""

from __future__ import annotations

import pytest
from tests.conftest import RunJobs
from tests.products.monitors.support import URL, Team, add_beats, make_alert, make_monitor
from tests.waiting import answer_of

from moorage.core.kit.clock import ManualClock
from moorage.products.monitors import service

pytestmark = pytest.mark.anyio


async def test_a_new_monitor_waits_for_its_first_heartbeat(team: Team) -> None:
    async def check() -> None:
        for monitor in await team.db.read(lambda tx: service.all_of(tx, team.org_id)):
            if not (await team.get(f"/{monitor.id}/heartbeats")).data:
                await add_beats(team.db, monitor, team.db.env.clock.now())

    reply = await answer_of(team.post("?wait=60", json={"name": "Shop", "url": URL}), check)

    assert (reply.status, reply.data["lastHeartbeat"]["status"]) == (200, "UP")


async def test_a_resumed_monitor_waits_for_its_next_heartbeat(team: Team, clock: ManualClock) -> None:
    monitor = await make_monitor(team.db, team)
    await add_beats(team.db, monitor, clock.now())
    clock.advance(1000)
    await team.post(f"/{monitor.id}/pause")

    async def check() -> None:
        clock.advance(1000)
        if (await team.read(monitor.id))["status"] == "running":
            await add_beats(team.db, monitor, clock.now(), status="DOWN")

    reply = await answer_of(team.post(f"/{monitor.id}/resume?wait=60"), check)

    assert (reply.data["status"], reply.data["lastHeartbeat"]["status"]) == ("running", "DOWN")


async def test_a_test_notice_waits_for_its_first_attempt(team: Team, run_jobs: RunJobs) -> None:
    monitor = await make_monitor(team.db, team)
    alert = await make_alert(team.db, team, monitor, by_email=False, webhook="http://127.0.0.1:9/hook")

    reply = await answer_of(team.alert("POST", f"/{alert.id}/test?wait=60"), run_jobs)

    [delivery] = reply.data["deliveries"]
    assert (delivery["channel"], delivery["attempts"], delivery["lastError"] is None) == ("webhook", 1, False)
