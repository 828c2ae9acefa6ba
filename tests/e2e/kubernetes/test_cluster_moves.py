"""A platform of one machine moves to a cluster: the same store, and the apps are pods."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import pytest
from tests.command import moorage
from tests.e2e.apps_support import Apps, started_apps
from tests.e2e.functions_support import wait_until
from tests.e2e.images_support import serving_python
from tests.e2e.kubernetes.cluster_support import DOCKERFILE, Harbor, make_cluster, server, settings_of
from tests.e2e.machines.fleet import end_runs

SOON_S = 120.0
pytestmark = [pytest.mark.deep, pytest.mark.group("cluster-moves")]


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


# By name. A database called mysql would have the name of a system schema.
KINDS = {"log-postgresql": ("postgresql", "16.4.0"), "log-mysql": ("mysql", "8.4.2")}


def query(apps: Apps, name: str, sql: str, *, write: bool = False) -> list[list[Any]]:
    return list(apps.call("POST", f"/v1/databases/{name}/query", {"sql": sql, "write": write})["rows"])


def database(apps: Apps, name: str) -> dict[str, Any]:
    found: dict[str, Any] = apps.call("GET", f"/v1/databases/{name}")
    return found


def password(apps: Apps, name: str) -> str:
    return str(apps.call("GET", f"/v1/databases/{name}/password")["password"])


def is_running(apps: Apps, name: str) -> bool:
    return bool(database(apps, name)["status"] == "running")


def base_backups(apps: Apps) -> list[dict[str, Any]]:
    """Return the complete physical backups."""
    items = apps.call("GET", "/v1/databases/log-postgresql/backups")["items"]
    return [each for each in items if (each["method"], each["status"]) == ("physical", "completed")]


def wait_for_move(apps: Apps, name: str) -> None:
    try:
        wait_until(partial(is_running, apps, name), 2 * SOON_S)
    except AssertionError as error:
        raise AssertionError(database(apps, name)["statusReason"]) from error


def files_below(folder: Path) -> dict[str, bytes]:
    """Return the files of a data folder, without sockets and working files of jobs."""
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and not {"backups-tmp", "run"} & set(path.relative_to(folder).parts)
    }


def test_databases_move_with_their_data_and_apps_reach_them(tmp_path: Path) -> None:
    cluster = make_cluster(tmp_path)
    backup, data = tmp_path / "backup.tar.gz", tmp_path / "restored"
    try:
        with serving_python() as registry:
            with started_apps(tmp_path / "data") as apps:
                for name, (type_, version) in KINDS.items():
                    body = {"name": name, "type": type_, "version": version, "instanceType": "micro"}
                    apps.call("POST", "/v1/databases", body)
                for name in KINDS:
                    wait_until(partial(is_running, apps, name), SOON_S)
                    query(apps, name, "CREATE TABLE ships (name varchar(20))", write=True)
                    query(apps, name, "INSERT INTO ships VALUES ('gull'), ('tern')", write=True)
                policy = {"enabled": True, "method": "physical"}
                apps.call("PATCH", "/v1/databases/log-postgresql/backups", policy)
                wait_until(lambda: len(base_backups(apps)) == 1, SOON_S)
                passwords = {name: password(apps, name) for name in KINDS}
                made = moorage("backup", backup, "--data", apps.running.data)
            end_runs(tmp_path / "data")
            restored = moorage("restore", backup, "--data", data)
            assert (made.returncode, restored.returncode) == (0, 0), made.stderr + restored.stderr
            before = files_below(data / "databases")
            settings = settings_of(cluster, registry)
            with started_apps(data, None, settings) as apps:
                for name in KINDS:
                    wait_for_move(apps, name)
                    assert query(apps, name, "SELECT name FROM ships ORDER BY name") == [["gull"], ["tern"]]
                    assert password(apps, name) == passwords[name]
                    found = database(apps, name)
                    assert f"database-{found['id']}." in found["privateUrl"]
                    assert (found["publicUrl"], found["statusReason"]) == (None, None)
                    assert len(cluster.objects("Pod", f"moorage.dev/name=database-{found['id']}")) == 1
                    query(apps, name, "INSERT INTO ships VALUES ('skua')", write=True)
                wait_until(lambda: len(base_backups(apps)) == 2, SOON_S)
            with started_apps(data, None, settings) as apps:
                for name in KINDS:
                    wait_until(partial(is_running, apps, name), SOON_S)
                    rows = query(apps, name, "SELECT name FROM ships ORDER BY name")
                    assert rows == [["gull"], ["skua"], ["tern"]]
            assert files_below(data / "databases") == before
    finally:
        cluster.close()


DISK_APP = """
import http.server, os
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        if self.path == "/write":
            with open("/data/ships", "w") as file:
                file.write("gull tern")
            for number in range(30):
                with open(f"/data/part-{number}", "wb") as file:
                    file.write(os.urandom(1 << 20))
        body = open("/data/ships").read().encode() if os.path.exists("/data/ships") else b"none"
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
    def log_message(self, *words):
        pass
http.server.ThreadingHTTPServer((os.environ["HOST"], int(os.environ["PORT"])), Handler).serve_forever()
"""


def test_volumes_move_with_their_files_also_when_the_platform_is_killed_meanwhile(tmp_path: Path) -> None:
    cluster = make_cluster(tmp_path)
    backup, data = tmp_path / "backup.tar.gz", tmp_path / "restored"
    try:
        with serving_python() as registry:
            with started_apps(tmp_path / "data") as apps:
                apps.call("PATCH", f"/v1/orgs/{apps.org}", {"createOnPush": False})
                before = Harbor(apps, cluster, registry, tmp_path)
                work = before.repository("raft", main__py=DISK_APP, requirements__txt="")
                apps.live(apps.launch("raft", work, language="python", startCmd="python3 main.py", disk=1))
                assert apps.text("raft", "/write") == "gull tern"
                made = moorage("backup", backup, "--data", apps.running.data)
            end_runs(tmp_path / "data")
            restored = moorage("restore", backup, "--data", data)
            assert (made.returncode, restored.returncode) == (0, 0), made.stderr + restored.stderr
            files = files_below(data / "volumes")
            settings = settings_of(cluster, registry)
            with started_apps(data, None, settings) as apps:
                wait_until(partial(is_filling, cluster), SOON_S)
                apps.kill_all(apps.running.children()["control"])
            with started_apps(data, None, settings) as apps:
                wait_until(partial(answers, apps, "raft"), SOON_S)
                assert apps.text("raft") == "gull tern"
                assert any("copied the files of its volume" in line for line in apps.printed_by("raft"))
            assert files_below(data / "volumes") == files
    finally:
        cluster.close()


def is_filling(cluster: Any) -> bool:
    return any(pod["metadata"]["name"].startswith("fill-") for pod in cluster.objects("Pod"))
