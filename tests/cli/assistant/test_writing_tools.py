"""Tools of `moorage mcp --allow-writes`, as the client of the SDK calls them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.cli.assistant.support import Assistant
from tests.cli.live import Shell
from tests.e2e.projects_support import new_name, page
from tests.products.repositories.support import Checkout

pytestmark = pytest.mark.group("cli-live")


def test_a_site_is_rolled_back_and_deployed_again(shell: Shell, writer: Assistant) -> None:
    name = new_name("assistant-back")
    first = shell.sites.publish(name, {"index.html": page("one")})
    shell.sites.publish(name, {"index.html": page("two")})

    back = writer.json("roll_back_project", project=name)
    after_back = shell.sites.text(name)
    again = writer.json("redeploy_project", project=name, operation="restart")
    refused = writer.error("roll_back_project", project=name, deployment_uuid="none")

    assert back["status"] == again["status"] == "succeeded"
    assert back["deploymentUuid"] != first
    assert after_back == shell.sites.text(name) == page("one")
    assert "trace id" in refused


def test_a_function_is_called_and_its_variables_are_changed_by_name(shell: Shell, writer: Assistant) -> None:
    code = "import os\ndef main(params):\n    return {'body': {'mode': os.environ.get('MODE'), 'secret': 'hunter2'}}\n"
    name = shell.sites.create(new_name("assistant-call"), "python", code)

    set_first = writer.json("set_env", kind="function", name=name, variables={"MODE": "fast", "OLD": "1"})
    set_then = writer.json("set_env", kind="function", name=name, variables={"NEW": "2"}, remove=["OLD"])
    called = writer.json("invoke_function", name=name, params={"a": 1})
    unknown = writer.error("set_env", kind="function", name=name, remove=["GONE"])
    rolled = writer.error("roll_back_function", name=name, version=7)

    assert set_first["variables"] == ["MODE", "OLD"]
    assert set_then["variables"] == ["MODE", "NEW"]
    assert (called["status"], called["result"]["body"]) == ("success", {"mode": "fast", "secret": "****"})
    assert "has no variable GONE" in unknown
    assert "trace id" in rolled


def test_a_monitor_is_created_and_shown_with_its_checks(shell: Shell, writer: Assistant) -> None:
    url = f"http://localhost:{shell.sites.running.ports['api']}/health"

    made = writer.json("create_monitor", name="API", url=url, interval_seconds=3600)
    shown = writer.json("show_monitor", monitor_id=made["id"])
    listed = writer.json("list_monitors")

    assert made["firstCheck"] is not None
    assert [check["status"] for check in shown["checks"]] == [made["firstCheck"]["status"]]
    assert shown["incidents"] == []
    assert made["id"] in [each["id"] for each in listed["items"]]
    shell.client.monitors.delete(made["id"])


def test_a_cronjob_is_run_and_its_log_is_read(shell: Shell, writer: Assistant, tmp_path: Path) -> None:
    work = Checkout.init(tmp_path / "work")
    work.commit("first", run_py="import os\nprint('at work', 'password=' + os.environ['WORD'])\n")
    name = new_name("assistant-job")
    shell.sites.push(work, f"assistant/{name}")
    shell.client.cronjobs.create(
        name=name, cron_schedule="0 0 1 1 *", repository_name=f"assistant/{name}", language="python",
        command="python run.py", wait=60,
    )  # fmt: skip

    before = writer.text("read_cronjob_log", name=name)
    writer.json("set_env", kind="cronjob", name=name, variables={"WORD": "hunter2"})
    run = writer.json("trigger_cronjob", name=name)
    log = writer.text("read_cronjob_log", name=name, execution_uuid=run["executionUuid"])
    shown = writer.json("show_cronjob", name=name)

    assert before == "The cronjob has not run yet."
    assert run["status"] == "succeeded"
    assert "at work password=****" in log
    assert shown["runs"][0]["executionUuid"] == run["executionUuid"]
    shell.client.cronjobs.delete(name)


def test_sql_reads_by_default_and_writes_with_another_tool(shell: Shell, reader: Assistant, writer: Assistant) -> None:
    name = new_name("assistant-db")
    shell.client.databases.create(name=name, type="postgresql", version="16.4.0", instance_type="micro", wait=60)

    writer.json("write_database", name=name, sql="CREATE TABLE account (id int, password text, note text)")
    writer.json(
        "write_database", name=name, sql="INSERT INTO account VALUES (1, 'hunter2', 'ok'), (2, 'hunter3', 'ok')"
    )
    rows = reader.json("query_database", name=name, sql="SELECT * FROM account ORDER BY id")
    many = reader.text("query_database", name=name, sql="SELECT repeat('x', 500) AS x FROM generate_series(1, 900)")
    refused = reader.error(
        "query_database", name=name, sql="WITH x AS (DELETE FROM account RETURNING 1) SELECT * FROM x"
    )
    wrong = reader.error("query_database", name=name, sql="SELECT nothing FROM account")
    missing = reader.error("query_database", name="no-such-database", sql="SELECT 1")
    shown = reader.text("show_database", name=name)
    password = shell.client.databases.read_password(name).password

    assert rows["rows"] == [{"id": 1, "password": "****", "note": "ok"}, {"id": 2, "password": "****", "note": "ok"}]
    assert json.loads(many)["leftOut"] > 0
    assert len(many) < 21_000
    assert "read-only" in refused
    assert '"nothing" does not exist' in wrong
    assert "next: list the resources" in missing
    assert password is not None
    assert password not in shown
    shell.client.databases.delete(name)


def test_a_folder_is_planned_and_deployed_with_its_address(shell: Shell, writer: Assistant, root: Path) -> None:
    name = new_name("assistant-folder")
    (root / "site").mkdir()
    (root / "site" / "index.html").write_text(page("from a folder"))

    plan = writer.text("deploy_folder", path="site", name=name, plan_only=True)
    exists = name in [project.name for project in shell.client.projects.iterate()]
    done = writer.json("deploy_folder", path="site", name=name)

    assert f"{name} (create)" in plan
    assert not exists
    assert done["status"] == "succeeded"
    assert name in done["url"]
    assert shell.sites.text(name) == page("from a folder")


def test_a_folder_with_nothing_to_deploy_is_explained(writer: Assistant, root: Path) -> None:
    (root / "rust").mkdir()
    (root / "rust" / "Cargo.toml").write_text("x")

    assert "Rust is not supported" in writer.error("deploy_folder", path="rust")


def test_a_folder_outside_of_the_root_is_not_deployed(writer: Assistant, root: Path, tmp_path: Path) -> None:
    (root / "link").symlink_to(tmp_path)

    refused = [writer.error("deploy_folder", path=path) for path in ("..", "/etc", "link", "../..")]
    missing = writer.error("deploy_folder", path="missing")

    assert [message for message in refused if "is outside of" not in message] == []
    assert "is not a folder below" in missing
