"""A platform of one machine moves to a cluster: the same store, and the apps are pods."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest
from tests.command import moorage
from tests.e2e.apps_support import Apps, started_apps
from tests.e2e.functions_support import wait_until
from tests.e2e.images_support import serving_python
from tests.e2e.kubernetes.cluster_support import DOCKERFILE, Harbor, make_cluster, server, settings_of

SOON_S = 120.0
pytestmark = [pytest.mark.deep, pytest.mark.xdist_group("cluster-moves")]


def test_a_restored_backup_of_one_machine_runs_its_apps_as_pods(tmp_path: Path) -> None:
    cluster = make_cluster(tmp_path)
    backup, data = tmp_path / "backup.tar.gz", tmp_path / "restored"
    try:
        with serving_python() as registry:
            with started_apps(tmp_path / "data") as apps:
                apps.call("PATCH", f"/v1/orgs/{apps.org}", {"createOnPush": False})
                before = Harbor(apps, cluster, registry, tmp_path)
                work = before.repository("raft", main__py=server("from a folder"), requirements__txt="")
                apps.live(apps.launch("raft", work, language="python", startCmd="python3 main.py"))
                image = before.repository("ship", Dockerfile=DOCKERFILE, server__py=server("from an image"))
                apps.live(apps.launch("ship", image, language="docker"))
                apps.publish("page", {"index.html": "a page"})
                made = moorage("backup", backup, "--data", apps.running.data)
            restored = moorage("restore", backup, "--data", data)
            assert (made.returncode, restored.returncode) == (0, 0), made.stderr + restored.stderr
            with started_apps(data, None, settings_of(cluster, registry)) as apps:
                after = Harbor(apps, cluster, registry, tmp_path)
                for name, text in (("raft", "from a folder"), ("ship", "from an image")):
                    wait_until(partial(answers, apps, name), SOON_S)
                    (pod,) = after.pods(name)
                    assert apps.text(name) == f"{text} {pod['status']['podIP']}"
                assert apps.text("page") == "a page"
                uuid = apps.call("POST", "/v1/projects/ship/redeploy", status=202)["deploymentUuid"]
                apps.live(uuid)
    finally:
        cluster.close()


def answers(apps: Apps, name: str) -> bool:
    return apps.ask(name, "GET", "/").status == 200
