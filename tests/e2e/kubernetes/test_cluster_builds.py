"""Builds as Jobs of a cluster: pushed with git, built in a pod, run in another one."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from typing import Any

import pytest
from tests.e2e.apps_support import pairs
from tests.e2e.functions_support import wait_until
from tests.e2e.kubernetes.cluster_support import BUILD_IMAGE, Harbor, make_lab, server, started_harbor

SOON_S = 120.0
BUILDS = "moorage.dev/kind=build"
SLOW = """FROM PYTHON
WORKDIR /srv
RUN echo begun && python3 -c "import time; time.sleep(SECONDS)"
COPY server.py ./
USER 1001
CMD ["python3", "server.py"]
"""
pytestmark = [pytest.mark.deep, pytest.mark.group("cluster-builds")]


@pytest.fixture(scope="module")
def harbor(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Harbor]:
    folder = tmp_path_factory.mktemp("harbor")
    with started_harbor(folder, make_lab, kubernetes_build_image=BUILD_IMAGE) as started:
        yield started


def jobs(harbor: Harbor) -> list[dict[str, Any]]:
    return harbor.cluster.objects("Job", BUILDS)


def begun(harbor: Harbor, name: str, seconds: int) -> str:
    """Deploy a Dockerfile that takes some time; return its deployment once the build has printed a line."""
    dockerfile = SLOW.replace("SECONDS", str(seconds))
    work = harbor.repository(name, Dockerfile=dockerfile, server__py=server(name))
    uuid = harbor.apps.launch(name, work, language="docker")
    events = harbor.apps.follow(uuid)  # live, as the build prints them
    assert any(event.data["message"] == "begun" for event in events if event.name == "log")
    return uuid


def test_a_python_app_is_built_in_a_restricted_pod_and_runs_in_another(harbor: Harbor) -> None:
    apps = harbor.apps
    main = "import markupsafe\n" + server("built in a pod")
    work = harbor.repository("raft", main__py=main, requirements__txt="markupsafe==3.0.2\n")

    uuid = apps.launch(
        "raft", work, language="python", startCmd="python3 main.py", secrets=pairs({"GREETING": "a-secret-greeting"})
    )
    wait_until(lambda: jobs(harbor) or apps.status(uuid)["terminal"], SOON_S)
    (job,) = jobs(harbor)
    apps.live(uuid)

    pod = job["spec"]["template"]["spec"]
    assert pod["securityContext"]["runAsNonRoot"] is True
    assert job["metadata"]["namespace"].startswith("moorage-org-")
    assert apps.text("raft").startswith("built in a pod")
    assert not jobs(harbor)


def test_a_dockerfile_is_built_in_a_namespace_of_its_own(harbor: Harbor) -> None:
    apps = harbor.apps
    uuid = begun(harbor, "ship", 8)
    (job,) = jobs(harbor)

    apps.live(uuid)

    assert job["metadata"]["namespace"].startswith("moorage-build-org-")
    assert apps.text("ship").startswith("ship")


def test_a_deleted_project_ends_the_job_of_its_build(harbor: Harbor) -> None:
    begun(harbor, "wreck", 600)

    harbor.apps.call("DELETE", "/v1/projects/wreck")

    wait_until(lambda: not jobs(harbor), SOON_S)
    wait_until(lambda: not harbor.cluster.objects("Pod", BUILDS), SOON_S)


def test_a_control_process_that_is_killed_builds_again_once(harbor: Harbor) -> None:
    apps = harbor.apps
    uuid = begun(harbor, "buoy", 5)
    (before,) = jobs(harbor)

    os.kill(apps.running.children()["control"], signal.SIGKILL)

    apps.live(uuid)
    assert "The platform was restarted while this deployment ran; it starts over" in apps.log(uuid)
    assert apps.text("buoy").startswith("buoy")
    wait_until(lambda: not jobs(harbor), SOON_S)
    assert before["metadata"]["name"] not in [job["metadata"]["name"] for job in harbor.cluster.objects("Job")]
