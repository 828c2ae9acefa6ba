"""`moorage deploy`: from a folder to a live address, and everything that may be wrong with the folder."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from tests.cli.live import Shell

pytestmark = pytest.mark.group("cli-live")

SERVER = """
require('http').createServer((request, response) => {
  response.end(`${process.env.GREETING} ${(process.env.API_KEY || '').length}`)
}).listen(process.env.PORT)
"""


def write(folder: Path, **files: str) -> Path:
    """Write files; `index_html` is index.html."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        (folder / name.replace("_", ".")).write_text(text)
    return folder


def git(folder: Path, *words: str) -> str:
    identity = ["-c", "user.name=Ada", "-c", "user.email=ada@example.com"]
    done = subprocess.run(["git", "-C", folder, *identity, *words], check=True, capture_output=True, text=True)
    return done.stdout.strip()


def test_a_folder_of_static_files_is_live_after_one_command(shell: Shell) -> None:
    folder = write(shell.home / "first-page", index_html="<h1>one</h1>")

    first = shell.ok("deploy", folder)
    write(folder, index_html="<h1>two</h1>")
    shell.ok("deploy", folder)

    assert first.strip().startswith("http://first-page.")
    assert shell.sites.text("first-page") == "<h1>two</h1>"
    assert shell.client.projects.read("first-page").repository_name is None  # it was an upload


def test_a_terminal_shows_the_plan_the_log_and_the_address(shell: Shell) -> None:
    folder = write(shell.home / "seen", index_html="seen")

    shown = shell.terminal("deploy", folder)

    assert shown.code == 0, shown.text
    for part in ("project:", "seen (create)", "detected: static site", "Publishing 1 file", "deployed seen in"):
        assert part in shown.text, shown.text
    assert shown.text.strip().splitlines()[-1].startswith("http://seen.")


def test_an_app_is_sent_as_one_commit_with_variables_and_secrets(shell: Shell) -> None:
    package = json.dumps({"name": "app", "version": "1.0.0", "scripts": {"start": "node server.js"}})
    folder = write(shell.home / "small-app", package_json=package, server_js=SERVER)

    shell.ok("deploy", folder, "--env", "GREETING=hello", "--secret", "API_KEY", API_KEY="12345")
    first = shell.sites.text("small-app")
    shell.ok("deploy", folder, "--env", "GREETING=again")

    assert first == "hello 5"
    assert shell.sites.text("small-app") == "again 5"
    assert not (folder / ".git").exists()


def test_the_users_repository_is_not_changed_and_uncommitted_files_are_sent(shell: Shell) -> None:
    folder = write(shell.home / "repo-site", index_html="committed", tracked_log="kept", _gitignore="*.log\nprivate\n")
    git(folder, "init", "-q", "-b", "main")
    git(folder, "add", "-A", "--force")
    git(folder, "commit", "-q", "-m", "the first")
    write(folder, index_html="changed", new_html="new", private="secret", draft_txt="draft", _env="KEY=1")
    (folder / ".moorageignore").write_text("draft.txt\n")
    before = (git(folder, "status", "--porcelain"), git(folder, "rev-parse", "HEAD"), git(folder, "branch", "-a"))

    shell.ok("deploy", folder)

    assert (
        git(folder, "status", "--porcelain"),
        git(folder, "rev-parse", "HEAD"),
        git(folder, "branch", "-a"),
    ) == before
    visit = shell.sites.visit
    assert [visit("repo-site", path).status for path in ("/new.html", "/tracked.log")] == [200, 200]
    assert [visit("repo-site", path).status for path in ("/private", "/draft.txt", "/.env")] == [404, 404, 404]
    assert shell.sites.text("repo-site") == "changed"
    latest = shell.client.deployments.list("repo-site").items[0]
    assert latest.branch == "main"


def test_a_nested_repository_is_sent_with_its_files(shell: Shell) -> None:
    folder = write(shell.home / "nested", index_html="outer")
    inner = write(folder / "theme", style_css="a{}")
    for each in (folder, inner):
        git(each, "init", "-q", "-b", "main")
    git(inner, "add", "-A")
    git(inner, "commit", "-q", "-m", "theme")

    shell.ok("deploy", folder)

    assert shell.sites.text("nested", "/theme/style.css") == "a{}"


def test_the_same_state_again_sends_nothing_and_deploys(shell: Shell) -> None:
    folder = write(shell.home / "same", index_html="same")
    git(folder, "init", "-q", "-b", "main")

    first, second = (json.loads(shell.ok("deploy", folder, "--json")) for _ in range(2))

    assert [first["status"], second["status"]] == ["succeeded", "succeeded"]
    commits = {each.commit_sha for each in shell.client.deployments.list("same").items}
    assert len(commits) == 1


def test_the_plan_alone_changes_nothing(shell: Shell) -> None:
    folder = write(shell.home / "only-planned", index_html="planned")

    done = shell("deploy", folder, "--plan")

    assert done.returncode == 0
    assert "only-planned (create)" in done.stderr
    assert shell.client.projects.check_name(name="only-planned").available


def test_without_waiting_the_deployment_is_named(shell: Shell) -> None:
    folder = write(shell.home / "no-wait", index_html="later")

    done = shell("deploy", folder, "--no-wait")

    assert done.returncode == 0, done.stderr
    assert shell.client.deployments.read_status(done.stdout.strip()).project_name == "no-wait"
    assert "moorage deployments logs -f no-wait" in done.stderr


def test_a_failed_deployment_exits_with_one_and_its_reason_comes_last(shell: Shell) -> None:
    package = json.dumps({"name": "bad", "scripts": {"start": "node server.js", "build": "exit 3"}})
    folder = write(shell.home / "bad-build", package_json=package, server_js=SERVER)

    done = shell("deploy", folder)

    assert done.returncode == 1
    assert done.stdout == ""
    assert "the deployment of bad-build failed: " in done.stderr.strip().splitlines()[-1]


def test_ctrl_c_leaves_the_deployment_running(shell: Shell) -> None:
    package = json.dumps({"name": "slow", "scripts": {"start": "node server.js", "build": "sleep 4"}})
    folder = write(shell.home / "slow-build", package_json=package, server_js=SERVER)

    shown = shell.terminal("deploy", folder, keys={"$ npm": "\x03"})

    assert shown.code == 130, shown.text
    assert "The deployment goes on. Follow it with: moorage deployments logs -f slow-build" in shown.text
    uuid = shell.client.deployments.list("slow-build").items[0].deployment_uuid
    events = [event for event in shell.client.deployments.follow(uuid) if event.name == "done"]
    assert [event.data["status"] for event in events] == ["succeeded"]


@pytest.mark.parametrize(
    ("files", "said"),
    [
        pytest.param({}, "", id="an empty folder"),
        pytest.param({"notes_txt": "text"}, "", id="a folder with nothing to deploy"),
    ],
)
def test_a_folder_with_nothing_to_deploy_is_explained(shell: Shell, files: dict[str, str], said: str) -> None:
    folder = write(shell.home / "nothing", **files)

    done = shell("deploy", folder)

    assert done.returncode == 1
    assert done.stderr.startswith("moorage: ")
    assert "Traceback" not in done.stderr
    assert shell.client.projects.check_name(name="nothing").available


def test_a_folder_that_does_not_exist_is_named(shell: Shell) -> None:
    assert "is not a folder" in shell("deploy", "missing").stderr


@pytest.mark.parametrize("is_git", [False, True], ids=["zip", "git"])
def test_two_gigabytes_are_refused_before_anything_is_sent(shell: Shell, is_git: bool) -> None:
    folder = write(shell.home / "large", index_html="large")
    with (folder / "video.bin").open("wb") as file:
        os.truncate(file.fileno(), 2 * 2**30)  # a sparse file
    if is_git:
        git(folder, "init", "-q", "-b", "main")

    done = shell("deploy", folder)

    assert done.returncode == 1
    assert "2,048 MB in 2 files" in done.stderr
    assert "video.bin (2048 MB)" in done.stderr
    assert ".moorageignore" in done.stderr


@pytest.mark.parametrize("is_git", [False, True], ids=["zip", "git"])
def test_a_full_disk_while_packing_is_named(shell: Shell, is_git: bool) -> None:
    folder = write(shell.home / "no-room", index_html="page")
    (folder / "noise.bin").write_bytes(os.urandom(4 * 2**20))  # cannot be compressed
    if is_git:
        git(folder, "init", "-q", "-b", "main")
    small = shell.home / "small"
    small.mkdir()

    mounted = ["unshare", "--map-root-user", "--mount", "sh", "-c", 'mount -t tmpfs -o size=1m tmpfs "$0" && exec "$@"']
    command = [sys.executable, "-m", "moorage.cli.main", "deploy", str(folder)]
    env = shell.env | {"XDG_CACHE_HOME": str(small)}
    done = subprocess.run([*mounted, str(small), *command], env=env, capture_output=True, text=True, timeout=180)

    assert done.returncode != 0
    assert "No space left on device" in done.stderr
    assert "Traceback" not in done.stderr
    assert shell.client.projects.check_name(name="no-room").available


def test_a_name_that_is_taken_is_answered_with_a_free_one(shell: Shell) -> None:
    organization = shell.client.organizations.create(name="Other harbour")
    folder = write(shell.home / "popular", index_html="mine")
    shell.ok("--org", organization.organization_id, "deploy", folder)

    piped = shell("deploy", folder)
    typed = shell.terminal("deploy", folder, keys={"is taken. Another name": "popular-too\n"})

    assert piped.returncode == 1
    assert "the name popular is taken by another organization" in piped.stderr
    assert typed.code == 0, typed.text
    assert shell.sites.text("popular-too") == "mine"


def test_a_secret_without_a_value_is_explained_in_a_pipe(shell: Shell) -> None:
    folder = write(shell.home / "secretive", index_html="page")

    done = shell("deploy", folder, "--secret", "API_KEY")

    assert done.returncode == 1
    assert "set the environment variable of that name" in done.stderr


def test_a_variable_without_a_value_is_refused(shell: Shell) -> None:
    folder = write(shell.home / "mistyped", index_html="page")

    assert "--env needs NAME=VALUE, not GREETING" in shell("deploy", folder, "--env", "GREETING").stderr


def test_a_folder_with_a_function_becomes_a_function(shell: Shell) -> None:
    folder = write(shell.home / "greeter", index_js="exports.main = (params) => ({ hello: params.name })")

    done = shell("deploy", folder, "--env", "MODE=fast")

    assert done.returncode == 0, done.stderr
    assert "detected: nodejs function" in done.stderr
    assert shell.client.functions.invoke("greeter", body={"params": {"name": "Ada"}}).result == {"hello": "Ada"}
