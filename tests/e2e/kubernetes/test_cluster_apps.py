"""Apps and cronjobs as pods: pushed with git, built, run in a cluster, used through the gateway."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.e2e.apps_support import pairs
from tests.e2e.functions_support import wait_until
from tests.e2e.kubernetes.cluster_support import Harbor, server, started_harbor

SOON_S = 90.0
pytestmark = [pytest.mark.deep, pytest.mark.group("cluster-apps")]


@pytest.fixture(scope="module")
def harbor(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Harbor]:
    with started_harbor(tmp_path_factory.mktemp("harbor")) as started:
        work = started.dockerized("ship", "first")
        uuid = started.apps.launch("ship", work, language="docker", secrets=pairs({"GREETING": "a-secret-greeting"}))
        started.apps.live(uuid)
        yield started


def test_a_dockerfile_runs_as_a_pod_with_its_log(harbor: Harbor) -> None:
    apps = harbor.apps
    [pod] = harbor.pods("ship")

    assert apps.text("ship") == f"first {pod['status']['podIP']}"
    assert pod["spec"]["containers"][0]["image"].startswith(f"127.0.0.1:{harbor.registry.port}/pods/org-")
    assert pod["spec"]["securityContext"]["runAsUser"] == 1001
    wait_until(lambda: "asked for /" in apps.printed_by("ship"), SOON_S)
    assert "a-secret-greeting" not in "\n".join(apps.printed_by("ship"))


def test_a_command_runs_in_a_pod_of_its_own(harbor: Harbor) -> None:
    done = harbor.apps.execute("ship", "pwd; echo $GREETING; exit 3")

    assert (done["exitCode"], done["stdout"].split()) == (3, ["/srv", "****"])


def test_a_redeploy_replaces_the_pod_and_more_replicas_are_more_pods(harbor: Harbor) -> None:
    apps = harbor.apps
    [before] = harbor.pods("ship")
    bounds = {"enabled": True, "minReplicas": 2, "maxReplicas": 3}

    apps.live(apps.change("ship", autoScaling=bounds))

    wait_until(lambda: len({apps.text("ship") for _ in range(6)}) == 2, SOON_S)
    wait_until(lambda: len(harbor.pods("ship")) == 2, SOON_S)
    assert before["metadata"]["uid"] not in {pod["metadata"]["uid"] for pod in harbor.pods("ship")}


def test_a_folder_without_a_dockerfile_runs_on_the_base_image(harbor: Harbor) -> None:
    apps = harbor.apps
    work = harbor.repository("raft", main__py=server("from a folder"), requirements__txt="")

    apps.live(apps.launch("raft", work, language="python", startCmd="python3 main.py"))

    [pod] = harbor.pods("raft")
    assert apps.text("raft") == f"from a folder {pod['status']['podIP']}"


def test_a_ready_image_that_ends_fails_with_a_sentence(harbor: Harbor) -> None:
    apps, image = harbor.apps, f"127.0.0.1:{harbor.registry.port}/python:latest"
    body = {"slug": "container", "name": "buoy", "publicImage": image, "startCmd": "sh -c 'echo started; exit 4'"}

    uuid = apps.call("POST", "/v1/projects", body)["deploymentUuid"]
    wait_until(lambda: apps.status(uuid)["terminal"], SOON_S)

    assert apps.status(uuid)["status"] == "failed"
    assert "it ended with exit code 4" in "\n".join(apps.log(uuid))


def test_a_cronjob_with_an_image_runs_as_a_job(harbor: Harbor) -> None:
    apps, image = harbor.apps, f"127.0.0.1:{harbor.registry.port}/python:latest"
    fields = {"name": "tide", "cronSchedule": "0 0 1 1 *", "command": "sh -c 'echo high water'"}
    apps.call("POST", "/v1/cronjobs", {**fields, "imageSource": "public_image", "publicImage": image})

    uuid = str(apps.call("POST", "/v1/cronjobs/tide/trigger")["executionUuid"])

    def log() -> str:
        return str(apps.call("GET", f"/v1/cronjobs/executions/{uuid}/logs")["logs"])

    wait_until(lambda: "exit code 0" in log(), SOON_S)
    assert "high water" in log()
    wait_until(lambda: not harbor.cluster.objects("Job"), SOON_S)


def test_a_cluster_without_room_delays_a_release_and_the_live_one_stays(harbor: Harbor) -> None:
    apps = harbor.apps
    harbor.cluster.set_room(has_room=False)
    try:
        uuid = apps.call("POST", "/v1/projects/ship/redeploy", status=202)["deploymentUuid"]
        wait_until(lambda: [pod for pod in harbor.pods("ship") if not pod["spec"].get("nodeName")], SOON_S)
        during = apps.ask("ship", "GET", "/").status
    finally:
        harbor.cluster.set_room(has_room=True)
    apps.live(uuid)

    assert during == 200


def test_an_api_server_that_is_away_stops_no_app(harbor: Harbor) -> None:
    apps = harbor.apps
    harbor.cluster.pause(is_paused=True)
    try:
        uuid = apps.call("POST", "/v1/projects/ship/redeploy", status=202)["deploymentUuid"]
        during = {apps.ask("ship", "GET", "/").status for _ in range(20)}
    finally:
        harbor.cluster.pause(is_paused=False)
    apps.live(uuid)

    assert during == {200}
