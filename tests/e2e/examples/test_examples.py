"""Every folder of `examples/` is deployed with the command line, as its README says, and answers."""

from __future__ import annotations

import json
import re
import shutil
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

import pytest
from tests import forked
from tests.cli.live import Shell
from tests.e2e.functions_support import wait_until
from tests.products.repositories.support import Checkout

pytestmark = pytest.mark.group("cli-live")

EXAMPLES = Path(__file__).parents[3] / "examples"
DEPLOY_TIMEOUT_S = 900  # Go compiles its standard library in the first build of a machine.
TESTED = {  # by which test
    "static-site": "pages",
    "function-node": "node",
    "function-python": "python",
    "express": "express",
    "vite-react": "vite",
    "go": "go",
    "django": "django",
    "fastapi-postgres": "fastapi",
    "cronjob": "cronjob",
}


def deploy(shell: Shell, example: str, *words: str, **env: str) -> str:
    """Deploy an example from its folder and return the host name of its address."""
    done = forked.run(["deploy", *words], cwd=EXAMPLES / example, env=shell.env | env, timeout_s=DEPLOY_TIMEOUT_S)
    assert done.returncode == 0, f"{done.stdout}{done.stderr}"
    (url,) = done.stdout.split()
    matched = re.fullmatch(r"http://([a-z0-9-]+)\.localhost:\d+", url)
    assert matched, url
    return matched[1]


def fetch(shell: Shell, name: str, path: str = "/") -> Any:
    return json.loads(shell.sites.text(name, path))


def test_every_example_is_tested_and_has_a_short_readme() -> None:
    folders = {path.name for path in EXAMPLES.iterdir() if path.is_dir()}

    assert folders == TESTED.keys()
    for name in folders:
        lines = (EXAMPLES / name / "README.md").read_text().splitlines()
        assert len(lines) <= 12, name
        assert any(line.startswith("moorage ") for line in lines), name
        assert f"]({name})" in (EXAMPLES / "README.md").read_text()


def test_the_pages_of_the_static_site_are_live(shell: Shell) -> None:
    name = deploy(shell, "static-site", "--name", "example-lights")

    assert "<h1>Harbor lights</h1>" in shell.sites.text(name)
    assert "every day" in shell.sites.text(name, "/hours.html").lower()
    missing = shell.sites.visit(name, "/gone")
    assert (missing.status, b"has sailed" in missing.body) == (404, True)


def test_the_function_in_node_answers(shell: Shell) -> None:
    shell.ok("functions", "deploy", cwd=EXAMPLES / "function-node")

    called = shell.ok("functions", "invoke", "function-node", "-p", "metres=100")

    assert '"fathoms": 54.68' in called or '"fathoms":54.68' in called
    assert "function-node" in shell.ok("functions", "list")


def test_the_function_in_python_gets_its_variable(shell: Shell) -> None:
    shell.ok("functions", "deploy", "--env", "GREETING=Hello", cwd=EXAMPLES / "function-python")

    called = shell.ok("functions", "invoke", "function-python", "-p", "name=Ada")

    assert "Hello, Ada!" in called


@pytest.mark.deep
def test_express_answers_and_a_second_deployment_is_quick_and_harmless(shell: Shell) -> None:
    name = deploy(shell, "express", "--name", "example-express", "--env", "HARBOR=Rotterdam")
    first = fetch(shell, name)
    again = deploy(shell, "express", "--name", "example-express")

    assert first == {"harbor": "Rotterdam", "ships": 1}
    assert again == name
    assert fetch(shell, name, "/ships/ada") == {"name": "Ada", "berth": 7}
    shell.client.projects.delete(name)  # Apps outlive the platform.


@pytest.mark.deep
def test_vite_builds_the_variable_into_the_page(shell: Shell) -> None:
    name = deploy(shell, "vite-react", "--name", "example-vite", "--env", "VITE_HARBOR=Rotterdam")

    page = shell.sites.text(name)
    (script,) = re.findall(r'src="(/assets/[^"]+\.js)"', page)
    assert '<div id="root">' in page
    assert "Rotterdam" in shell.sites.text(name, script)


@pytest.mark.deep
def test_go_answers(shell: Shell) -> None:
    name = deploy(shell, "go", "--name", "example-tides")

    assert 0 <= fetch(shell, name)["metres"] <= 4
    shell.client.projects.delete(name)  # Apps outlive the platform.


@pytest.mark.deep
def test_django_gets_its_secret_and_renders_the_template(shell: Shell) -> None:
    name = deploy(shell, "django", "--name", "example-django", "--secret", "SECRET_KEY", SECRET_KEY="x" * 60)

    assert "<h1>Berths</h1>" in shell.sites.text(name)
    assert fetch(shell, name, "/berths/7/") == {"berth": 7, "ship": "Ada"}
    assert [each.name for each in shell.client.projects.list_secrets(name)] == ["SECRET_KEY"]
    shell.client.projects.delete(name)  # Apps outlive the platform.


@pytest.mark.deep
def test_fastapi_keeps_its_rows_in_the_database_of_the_file(shell: Shell) -> None:
    planned = shell("deploy", "--plan", cwd=EXAMPLES / "fastapi-postgres")
    assert "fastapi-postgres-db" in planned.stderr + planned.stdout
    name = deploy(shell, "fastapi-postgres", "--yes")

    body = json.dumps({"name": "Ada", "berth": 7})
    port = shell.sites.running.ports["gateway"]
    connection = HTTPConnection("127.0.0.1", port, timeout=20)
    headers = {"Host": f"{name}.localhost:{port}", "Content-Type": "application/json"}
    connection.request("POST", "/ships", body, headers)
    status = connection.getresponse().status
    connection.close()

    assert status == 201
    assert fetch(shell, name) == [{"name": "Ada", "berth": 7}]
    shell.client.projects.delete(name)
    shell.client.databases.delete("fastapi-postgres-db")


@pytest.mark.deep
def test_the_cronjob_of_the_file_runs(shell: Shell, tmp_path: Path) -> None:
    folder = tmp_path / "cronjob"
    work = Checkout.init(folder)
    shutil.copytree(EXAMPLES / "cronjob", folder, dirs_exist_ok=True)
    work.git("add", ".")
    work.git("-c", "user.name=Ada", "-c", "user.email=ada@example.com", "commit", "-m", "first report")
    url = shell.sites.git_url("examples/harbor-report")
    work.git("-c", "http.extraHeader=X-Moorage-Deploy: none", "push", url, "main")

    shell.ok("apply", "--yes", cwd=folder)
    wait_until(lambda: shell.client.cronjobs.read("harbor-report").status == "running", 60)
    printed = shell.ok("cronjobs", "trigger", "harbor-report", "--follow")

    assert "3 ships in the harbor" in printed
    shell.client.cronjobs.delete("harbor-report")
