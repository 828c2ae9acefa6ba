"""`?wait=` on the routes of cronjobs; the rows change here, without builds and runs."""

from __future__ import annotations

import pytest
from tests.products.cronjobs.support import IMAGE, Team
from tests.waiting import answer_of

from moorage.core.db.tx import Tx
from moorage.products.cronjobs import removal, service
from moorage.products.cronjobs.states import CronjobStatus, ExecutionStatus

pytestmark = pytest.mark.anyio

BODY = {"name": "nightly", "cronSchedule": "*/5 * * * *", "repositoryName": "acme/jobs"}


async def test_a_new_cronjob_waits_for_its_build(team: Team) -> None:
    async def work() -> None:
        if (await team.get("/nightly")).status == 200 and (await team.read())["status"] == "deploying":
            await team.fail_build()

    reply = await answer_of(team.post("?wait=60", json=BODY), work)

    assert (reply.status, reply.data["status"]) == (200, "failed")
    assert reply.data["deploymentUuid"] is not None


async def test_a_cronjob_of_an_image_has_no_build_to_wait_for(team: Team) -> None:
    body = {key: value for key, value in {**BODY, **IMAGE}.items() if value is not None}

    reply = await team.post("?wait=60", json=body)

    assert (reply.data["status"], reply.data["deploymentUuid"]) == ("running", None)


async def test_a_triggered_run_waits_for_its_end(team: Team) -> None:
    await team.create(**IMAGE)

    async def work() -> None:
        for row in await team.rows():
            if row.status == ExecutionStatus.QUEUED:
                await team.finish(row, error="it failed")

    reply = await answer_of(team.post("/nightly/trigger?wait=60"), work)

    assert reply.data["status"] == "failed"


async def test_a_deletion_waits_until_the_cronjob_is_gone(team: Team) -> None:
    await team.create(**IMAGE)

    def remove(tx: Tx) -> None:
        row = service.find(tx, team.org_id, "nightly")
        if row is not None and row.status == CronjobStatus.DELETING:
            removal._remove_rest(tx, team.org_id, row)

    async def work() -> None:
        await team.db.write(remove)

    reply = await answer_of(team.delete("nightly?wait=60"), work)

    assert reply.json == {"success": True}
    assert (await team.get("/nightly")).status == 404
