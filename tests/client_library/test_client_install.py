"""The client and the users' commands work without the dependencies of the platform."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from importlib import metadata
from pathlib import Path

ROOT = Path(__file__).parents[2]

# Hides every installed distribution but those that the base dependencies need.
PROBE = """
import importlib.abc, sys
hidden = set({hidden!r})
class Hide(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in hidden:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)
sys.meta_path.insert(0, Hide())
sys.argv = {argv!r}
{code}
"""


def hidden_modules() -> list[str]:
    """Return the top modules of the distributions that only the platform needs."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    needed: set[str] = set()
    for each in project["dependencies"]:
        add_with_dependencies(name_of(each), needed)
    only_server = {name_of(each) for each in project["optional-dependencies"]["server"]} - needed
    return sorted(
        module
        for module, owners in metadata.packages_distributions().items()
        if {name_of(each) for each in owners} & only_server
    )


def name_of(requirement: str) -> str:
    found = re.match(r"[\w.-]+", requirement)
    assert found is not None
    return re.sub(r"[-_.]+", "-", found[0]).lower()


def add_with_dependencies(name: str, found: set[str]) -> None:
    if name in found:
        return
    found.add(name)
    try:
        required = metadata.requires(name) or []
    except metadata.PackageNotFoundError:  # for another system
        return
    for each in required:
        if "extra ==" not in each:
            add_with_dependencies(name_of(each), found)


def run(code: str, *argv: str) -> subprocess.CompletedProcess[str]:
    program = PROBE.format(hidden=hidden_modules(), argv=["moorage", *argv], code=code)
    return subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)


def test_the_server_is_really_hidden() -> None:
    assert {"sqlalchemy", "structlog", "uvicorn"} <= set(hidden_modules())
    assert run("import moorage.app").returncode != 0


def test_the_client_is_imported() -> None:
    done = run("from moorage.client import AsyncClient, Client; Client('http://localhost:1', token='t')")

    assert done.returncode == 0, done.stderr


def test_every_command_for_users_shows_its_help() -> None:
    code = """
from moorage.cli.commands import ENTRIES
for entry in ENTRIES:
    if entry.title == "Use a platform":
        entry.load()
        print(entry.name)
"""
    done = run(code)

    assert done.returncode == 0, done.stderr
    assert "deploy" in done.stdout.split()


def test_a_folder_is_detected(tmp_path: Path) -> None:
    (tmp_path / "index.html").write_text("page")

    done = run("from moorage.cli.main import main; main()", "detect", str(tmp_path))

    assert "detected: static site" in done.stdout, done.stderr


def test_a_command_of_the_platform_says_how_to_install_it() -> None:
    done = run("from moorage.cli.main import main; main()", "up")

    assert done.returncode == 2
    assert "pip install 'moorage[server]'" in done.stderr
