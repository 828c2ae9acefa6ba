"""`moorage mcp` as a coding assistant starts it: tools that only read."""

from __future__ import annotations

import json
from typing import Any

import pytest
from tests.cli.assistant.support import Assistant, assistant
from tests.cli.live import Shell
from tests.e2e.projects_support import new_name, page

from moorage.client.models import EnvVar, SecretUpsert

pytestmark = pytest.mark.group("cli-live")

PRINTING = (
    "def main(params):\n    print(params['text'] * params['times'])\n    return {'body': {'token': params['text']}}\n"
)


def test_without_allow_writes_every_tool_only_reads_and_is_described(reader: Assistant) -> None:
    tools = reader.tools()

    assert {"status", "list_projects", "read_app_logs", "query_database", "show_monitor"} <= tools.keys()
    assert not {"deploy_folder", "invoke_function", "set_env", "write_database"} & tools.keys()
    for tool in tools.values():
        assert tool.annotations is not None
        assert tool.annotations.read_only_hint, tool.name
        assert len(tool.description or "") > 40, tool.name
        assert undescribed(tool.input_schema) == [], tool.name
    assert "Unknown tool" in reader.error("invoke_function", name="x")


def test_writing_tools_are_marked_as_such(writer: Assistant) -> None:
    tools = writer.tools()

    hints = {name: tool.annotations for name, tool in tools.items() if tool.annotations}
    assert {name for name, hint in hints.items() if hint.read_only_hint is False} == {
        "deploy_folder",
        "redeploy_project",
        "roll_back_project",
        "invoke_function",
        "roll_back_function",
        "set_env",
        "trigger_cronjob",
        "create_monitor",
        "write_database",
    }
    assert hints["write_database"].destructive_hint is True
    assert hints["create_monitor"].destructive_hint is False
    assert [name for name, tool in tools.items() if undescribed(tool.input_schema)] == []


def undescribed(schema: dict[str, Any]) -> list[str]:
    """Return the arguments without a description or a type."""
    arguments = schema.get("properties", {})
    return [
        name for name, each in arguments.items() if "description" not in each or not {"type", "anyOf"} & each.keys()
    ]


def test_a_project_is_shown_without_the_values_of_credentials(shell: Shell, reader: Assistant) -> None:
    name = new_name("assistant-site")
    shell.sites.publish(name, {"index.html": page("one")})
    env = [EnvVar(name="DATABASE_URL", value="postgres://a:hunter2@h/d"), EnvVar(name="MODE", value="fast")]
    shell.client.projects.update(name, env=env, secrets=[SecretUpsert(name="API_KEY", value="hunter2")])

    text = reader.text("show_project", name=name)
    listed = reader.json("list_projects")
    overview = reader.json("status")
    deployments = (reader.json("list_deployments", project=name))["items"]
    log = reader.text("read_deployment_log", uuid=deployments[0]["uuid"])

    shown = json.loads(text)
    assert "hunter2" not in text
    assert shown["project"]["env"][1] == {"name": "MODE", "value": "fast"}
    assert shown["secretNames"] == ["API_KEY"]
    assert name in [each["name"] for each in listed["items"]]
    assert name in [each["name"] for each in overview["projects"]]
    assert overview["organization"]["role"] == "owner"
    assert deployments[0]["live"]
    assert log.startswith("status: succeeded")
    assert "Live at" in log


def test_logs_of_a_function_are_bounded_and_masked(shell: Shell, reader: Assistant) -> None:
    name = shell.sites.create(new_name("assistant-function"), "python", PRINTING)
    shell.sites.invoke(name, {"text": "password=hunter2 ", "times": 1})
    shell.sites.invoke(name, {"text": "ahoy\n", "times": 50_000})

    log = reader.text("read_function_logs", name=name)
    shown = reader.text("show_function", name=name)

    assert "ahoy" in log
    assert "hunter2" not in log
    assert len(log) < 21_000
    assert json.loads(shown)["versions"][0]["current"]


def test_an_error_of_the_api_says_what_to_do(reader: Assistant) -> None:
    missing = reader.error("show_project", name="no-such-project")
    wrong = reader.error("list_projects", limit=0)

    assert "next: list the resources" in missing
    assert "trace id: " in missing
    assert "greater than or equal to 1" in wrong


def test_a_refused_token_is_explained_and_not_repeated(shell: Shell) -> None:
    with assistant(shell, MOORAGE_TOKEN="psk_live_wrongtoken") as user:
        message = user.error("status")

    assert "next: sign in with `moorage login`" in message
    assert "wrongtoken" not in message


def test_without_a_credential_the_command_ends_before_it_serves(shell: Shell) -> None:
    done = shell("mcp", MOORAGE_TOKEN="")

    assert (done.returncode, done.stdout) == (1, "")
    assert "moorage login" in done.stderr
