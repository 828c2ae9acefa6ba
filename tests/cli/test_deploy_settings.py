"""`moorage deploy` applies moorage.toml: settings of the project, its database, rules and monitors."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.cli.live import Shell

pytestmark = pytest.mark.group("cli-live")

SERVER = """
const url = process.env.DATABASE_URL || ''
require('http').createServer((request, response) => {
  response.end(`${process.env.GREETING} ${url.split(':')[0]}`)
}).listen(process.env.PORT)
"""

SETTINGS = """
[project]
name = "harbour-shop"
health-check-path = "/"

[project.env]
GREETING = "hello"

[[databases]]
name = "harbour-shop-db"
type = "postgresql"
version = "16.4.0"
instance-type = "free"

[[redirects]]
source = "/old"
destination = "/new"
status = 301

[[monitors]]
name = "harbour shop"
url = "http://127.0.0.1:9/"
"""


@pytest.fixture
def folder(shell: Shell) -> Path:
    made = shell.home / "shop"
    made.mkdir()
    (made / "package.json").write_text(json.dumps({"name": "shop", "scripts": {"start": "node server.js"}}))
    (made / "server.js").write_text(SERVER)
    (made / "moorage.toml").write_text(SETTINGS)
    return made


def test_one_command_makes_the_project_its_database_rules_and_monitor(shell: Shell, folder: Path) -> None:
    first = shell("deploy", folder)
    assert first.returncode == 0, first.stderr
    answered = shell.sites.text("harbour-shop")
    redirects = shell.client.rules.list_redirects("harbour-shop")
    again = shell("deploy", folder)
    (folder / "moorage.toml").write_text(SETTINGS.replace('"hello"', '"again"').partition("[[monitors]]")[0])
    changed = shell("deploy", folder)

    assert "+ database harbour-shop-db" in first.stderr
    assert answered == "hello postgresql"
    assert [each.source for each in redirects] == ["/old"]
    assert "no difference between moorage.toml and the platform" in again.stderr
    assert "~ project harbour-shop" in changed.stderr
    assert shell.sites.text("harbour-shop") == "again postgresql"
    assert [each.name for each in shell.client.monitors.list() if each.name == "harbour shop"]  # not pruned


def test_a_wrong_file_is_refused_before_anything_is_sent(shell: Shell) -> None:
    folder = shell.home / "wrong"
    folder.mkdir()
    (folder / "index.html").write_text("page")
    (folder / "moorage.toml").write_text('[project]\nname = "wrong-file"\nnme = 1\n')

    done = shell("deploy", folder)

    assert done.returncode == 1
    assert "moorage.toml:3" in done.stderr
    assert shell.client.projects.check_name(name="wrong-file").available


def test_the_settings_file_is_not_published(shell: Shell) -> None:
    folder = shell.home / "quiet"
    folder.mkdir()
    (folder / "index.html").write_text("page")
    (folder / "moorage.toml").write_text('[project]\nname = "quiet-site"\n')

    shell.ok("deploy", folder)

    assert shell.sites.visit("quiet-site", "/moorage.toml").status == 404
