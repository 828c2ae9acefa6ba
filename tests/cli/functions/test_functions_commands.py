"""`moorage functions`: from a new folder to calls, logs, versions and settings."""

from __future__ import annotations

import json
import os
import zipfile
from pathlib import Path

import pytest
from tests.cli.live import Shell
from tests.e2e.functions_support import wait_until
from tests.e2e.projects_support import new_name

pytestmark = pytest.mark.group("cli-live")

LANGUAGES = ("nodejs", "python")
CODE = (
    "def main(params):\n    print('seen', params.get('name'))\n    return {'word': '%s', 'name': params.get('name')}\n"
)
FAILING = "def main(params):\n    raise ValueError('no boat')\n"


def deployed(shell: Shell, code: str = CODE % "one") -> tuple[str, Path]:
    """Create a Python function by the API, and a folder of its code; return its name and the folder."""
    name = shell.sites.create(new_name("fn"), "python", code)
    folder = shell.home / name
    folder.mkdir()
    (folder / "main.py").write_text(code)
    return name, folder


@pytest.mark.parametrize("language", LANGUAGES)
def test_a_new_function_is_deployed_called_and_its_log_is_shown(shell: Shell, language: str) -> None:
    name = new_name(f"first-{language}")
    folder = shell.ok("functions", "new", name, "--runtime", language).strip()

    url = shell.ok("functions", "deploy", shell.home / folder).strip()
    called = shell("functions", "invoke", name, "-p", "name=Ada")
    again = shell.json("functions", "deploy", shell.home / folder)

    assert url == shell.ok("functions", "url", name).strip()
    assert f"/default/{name}" in url
    assert json.loads(called.stdout)["body"] == {"hello": "Ada"}
    assert "greeting Ada" in called.stderr
    assert " ms, " in called.stderr
    assert again["function"]["currentVersion"] == 2
    assert again["isNew"] is False
    assert set(again["seconds"]) == {"pack", "deploy"}


def test_ignored_files_and_secrets_are_not_sent(shell: Shell) -> None:
    code = "import os\n\ndef main(params):\n    return sorted(os.listdir('/code'))\n"
    ignored = {".env": "KEY=1", ".gitignore": "*.log\n", ".moorageignore": "notes/\n", "a.log": "x", "kept.txt": "x"}
    name = new_name("fn")
    folder = shell.home / name
    (folder / "notes").mkdir(parents=True)
    (folder / "notes" / "one.txt").write_text("x")
    for file, text in {"main.py": code, **ignored}.items():
        (folder / file).write_text(text)

    shell.ok("functions", "deploy", folder)

    sent = json.loads(shell.ok("functions", "invoke", name))
    assert {"main.py", "kept.txt"} <= set(sent)
    assert not {".env", "a.log", "notes"} & set(sent)


def test_settings_of_a_deployment_are_kept_by_the_next_one(shell: Shell) -> None:
    code = "import os\n\ndef main(params):\n    return [os.environ.get(n) for n in ('A', 'B', 'ONE', 'TWO')]\n"
    name, folder = deployed(shell, code)

    shell.ok("functions", "deploy", folder, "--env", "A=1", "--memory", "512", "--secret", "ONE", stdin="s1\n")
    shell.ok("functions", "deploy", folder, "--env", "B=2", "--secret", "TWO", stdin="s2")
    shown = shell.json("functions", "show", name)

    assert json.loads(shell.ok("functions", "invoke", name)) == ["1", "2", "s1", "s2"]
    assert shown["memory"] == 512
    assert {each["name"] for each in shown["env"]} == {"A", "B"}


def test_variables_and_secrets_are_set_listed_and_removed(shell: Shell) -> None:
    code = "import os\n\ndef main(params):\n    return [os.environ.get(n) for n in ('A', 'B', 'KEY')]\n"
    name, _ = deployed(shell, code)

    shell.ok("functions", "env", "set", name, "A=1", "B=x=y")
    shell.ok("functions", "env", "unset", name, "A")
    typed = shell.terminal("functions", "secrets", "set", name, "KEY", keys={"Value of KEY: ": "hidden\n"})

    assert shell.ok("functions", "env", "list", name) == "B\tx=y\n"
    assert shell.ok("functions", "secrets", "list", name) == "KEY\n"
    assert json.loads(shell.ok("functions", "invoke", name)) == [None, "x=y", "hidden"]
    assert typed.code == 0
    assert "hidden" not in typed.text
    assert shell.ok("functions", "secrets", "reveal", name, "KEY") == "hidden\n"
    assert shell("functions", "secrets", "unset", name, "KEY").returncode == 2
    shell.ok("functions", "secrets", "unset", name, "KEY", "--yes")
    assert shell.ok("functions", "secrets", "list", name) == ""


def test_versions_are_listed_and_rolled_back(shell: Shell) -> None:
    name, folder = deployed(shell)
    (folder / "main.py").write_text(CODE % "two")
    shell.ok("functions", "deploy", folder)

    shell.ok("functions", "rollback", name)

    listed = [line.split("\t")[:2] for line in shell.ok("functions", "versions", name).splitlines()]
    assert listed == [["", "2"], ["*", "1"]]
    assert json.loads(shell.ok("functions", "invoke", name))["word"] == "one"
    assert "has no version before" in shell("functions", "rollback", name).stderr
    shell.ok("functions", "rollback", name, "2")
    assert json.loads(shell.ok("functions", "invoke", name))["word"] == "two"


@pytest.mark.parametrize(
    ("words", "stdin", "expected"),
    [
        (["-d", '{"name": "text"}'], "", "text"),
        (["-d", "-"], '{"name": "piped"}', "piped"),
        (["-d", "@params.json"], "", "file"),
        (["-d", '{"name": "text"}', "-p", "name=param"], "", "param"),
        (["-d", "[1]"], "", None),
        (["-d", '{"params": {"name": "inner"}}'], "", None),
    ],
)
def test_params_come_from_options_files_and_standard_input(
    shell: Shell, called: str, words: list[str], stdin: str, expected: str | None
) -> None:
    (shell.home / "params.json").write_text('{"name": "file"}')

    result = json.loads(shell.ok("functions", "invoke", called, *words, stdin=stdin))

    assert result["name"] == expected


@pytest.fixture(name="called")
def called_function(shell: Shell) -> str:
    """A function that all cases share."""
    name = "called-by-cases"
    if name not in [each.name for each in shell.client.functions.iterate()]:
        shell.sites.create(name, "python", CODE % "x")
    return name


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (["-d", "{"], "not valid JSON"),
        (["-d", "@absent.json"], "cannot read absent.json"),
        (["-p", "x"], "should be NAME=value"),
        (["-d", "[1]", "-p", "a=b"], "not an object"),
    ],
)
def test_bad_params_are_explained(shell: Shell, words: list[str], reason: str) -> None:
    done = shell("functions", "invoke", "any", *words)

    assert done.returncode == 1
    assert reason in done.stderr


def test_a_failed_call_exits_with_1_and_shows_the_stack(shell: Shell) -> None:
    name, _ = deployed(shell, FAILING)

    done = shell("functions", "invoke", name)
    as_json = shell("functions", "invoke", name, "--json")

    assert done.returncode == as_json.returncode == 1
    assert done.stdout == ""
    assert "Traceback" in done.stderr
    assert "the function failed: ValueError: no boat" in done.stderr
    assert json.loads(as_json.stdout)["status"] == "error"


def test_logs_and_metrics_show_the_calls(shell: Shell) -> None:
    name, _ = deployed(shell)
    for number in range(3):
        shell.ok("functions", "invoke", name, "-p", f"name=n{number}")

    logs = shell.ok("functions", "logs", name)
    followed = shell.terminal("functions", "logs", "-f", name, keys={"seen n2": "\x03"})

    assert [line.strip() for line in logs.splitlines() if "seen" in line] == ["seen n0", "seen n1", "seen n2"]
    assert "success" in logs
    assert len(shell.json("functions", "logs", name, "-n", "2")) == 2
    assert followed.code == 130
    wait_until(lambda: sum(shell.json("functions", "metrics", name)["invocations"]) == 3)
    rows = [line.split("\t") for line in shell.ok("functions", "metrics", name, "--hours", "1").splitlines()]
    assert {len(row) for row in rows} == {4}
    shown = shell.terminal("functions", "metrics", name)
    assert "3 calls in 24 h, 0 errors" in shown.text
    assert "█" in shown.text


def test_functions_are_listed_and_deleted_after_a_question(shell: Shell) -> None:
    name, _ = deployed(shell)

    table = shell.terminal("functions", "list")
    refused = shell("functions", "delete", name)
    kept = shell.terminal("functions", "delete", name, keys={"[y/N]": "n\n"})
    gone = shell.terminal("functions", "delete", name, keys={"[y/N]": "y\n"})

    assert "RUNTIME" in table.text
    assert refused.returncode == 2
    assert (kept.code, gone.code) == (1, 0)
    assert name not in [each["name"] for each in shell.json("functions", "list")]
    assert "There is no such function" in shell("functions", "show", name).stderr


@pytest.mark.parametrize(
    ("files", "reason"),
    [
        ({"readme.txt": "x"}, "has no main file of a function"),
        ({"package.json": "[", "index.js": ""}, "not valid JSON"),
    ],
)
def test_a_folder_that_is_no_function_is_refused_before_anything_is_sent(
    shell: Shell, tmp_path: Path, files: dict[str, str], reason: str
) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    for file, text in files.items():
        (folder / file).write_text(text)

    done = shell("functions", "deploy", folder)

    assert done.returncode == 1
    assert reason in done.stderr


def test_a_folder_that_is_too_large_is_refused(shell: Shell, tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    (folder / "main.py").write_text(CODE)
    with zipfile.ZipFile(folder / "data.zip", "w") as archive:
        archive.writestr("random", os.urandom(12 * 2**20))

    done = shell("functions", "deploy", folder, "--name", "too-large")

    assert done.returncode == 1
    assert "at most 10 MB are sent" in done.stderr


def test_a_new_function_needs_a_good_name_and_an_empty_folder(shell: Shell) -> None:
    shell.ok("functions", "new", "twice")

    assert "is not empty" in shell("functions", "new", "twice").stderr
    assert "lower-case" in shell("functions", "new", "Not Good").stderr
    assert "should be one of nodejs, python" in shell("functions", "new", "other", "--runtime", "cobol").stderr
