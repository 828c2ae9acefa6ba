"""`?wait=` on the routes of projects: the answer has the end of the deployment."""

from __future__ import annotations

import pytest
from tests.conftest import RunJobs
from tests.products.functions.support import form, zip_of
from tests.products.projects.support import SITE, Team
from tests.waiting import answer_of

from moorage.gateway import sites
from moorage.settings import Settings

pytestmark = pytest.mark.anyio


async def test_an_upload_that_waits_is_live_when_it_is_answered(
    team: Team, run_jobs: RunJobs, settings: Settings
) -> None:
    sent = form(zip_of(SITE), sent_as="staticFiles", name="site")

    reply = await answer_of(team.api.post("/v1/projects/static-upload?wait=60", **sent), run_jobs)

    assert reply.data["status"] == "succeeded"
    assert sites.find(settings, "site.localhost") is not None


async def test_a_new_project_whose_deployment_fails_is_answered_as_any_other(team: Team, run_jobs: RunJobs) -> None:
    body = {"slug": "static", "name": "site", "repositoryName": "acme/site"}

    reply = await answer_of(team.api.post("/v1/projects?wait=60", json=body), run_jobs)

    assert reply.status == 200
    assert set(reply.data) == {"projectId", "name", "deploymentId", "deploymentUuid", "status"}
    assert reply.data["status"] == "failed"


async def test_deploy_redeploy_and_rollback_wait_for_their_own_deployment(team: Team, run_jobs: RunJobs) -> None:
    first = (await team.upload()).data["uploadId"]
    await run_jobs()
    await team.create("other")
    await run_jobs()

    restarted = await answer_of(
        team.api.post("/v1/projects/site/deploy?wait=60", json={"operation": "restart"}), run_jobs
    )
    rolled_back = await answer_of(
        team.api.post("/v1/projects/site/rollback?wait=60", json={"deploymentUuid": first}), run_jobs
    )
    deployed = await answer_of(team.api.post("/v1/projects/other/deploy?wait=60"), run_jobs)

    assert (restarted.status, restarted.data["status"]) == (202, "succeeded")
    assert (rolled_back.status, rolled_back.data["status"]) == (200, "succeeded")
    assert (deployed.status, deployed.data["status"]) == (202, "failed")
    assert (await team.read())["latestDeployment"]["status"] == "succeeded"


async def test_a_change_of_settings_waits_for_the_deployment_that_it_starts(team: Team, run_jobs: RunJobs) -> None:
    await team.create("app", "container")
    await run_jobs()
    env = [{"name": "A", "value": "1"}]

    reply = await answer_of(team.api.patch("/v1/projects/app?wait=60", json={"env": env}), run_jobs)

    status = await team.status(reply.data["triggeredDeploymentUuid"])
    assert status["terminal"]
    assert reply.data["latestDeployment"]["status"] == reply.data["status"] == status["status"] == "failed"
    assert reply.data["env"] == env


async def test_a_change_of_settings_that_starts_nothing_is_answered_at_once(team: Team) -> None:
    await team.create()

    reply = await team.api.patch("/v1/projects/site?wait=60", json={"autoDeploy": True})

    assert reply.data["autoDeploy"] is True
    assert not {"triggeredDeploymentUuid", "status"} & set(reply.data)
