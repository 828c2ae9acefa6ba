"""Installed runtimes, and the resolution of requested names."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from moorage.runtime.workers import zygotes
from moorage.runtime.workers.runtimes import LANGUAGES, Runtime, installed, resolve

OWN = f"python:{sys.version_info[0]}.{sys.version_info[1]}"


def test_every_runtime_runs_and_has_the_version_of_its_name() -> None:
    for name, runtime in installed().items():
        said = subprocess.run([runtime.executable, "--version"], capture_output=True, text=True, check=True, env={})
        version = said.stdout.strip().lower().removeprefix("python ").removeprefix("v")

        assert name == runtime.name
        assert version.startswith(name.partition(":")[2] + ".")
        assert runtime.language == name.partition(":")[0]


def test_the_python_that_runs_the_platform_is_one_of_them() -> None:
    assert OWN in installed()
    assert resolve(OWN) == OWN


@pytest.mark.parametrize("language", LANGUAGES)
def test_a_language_alone_means_the_first_of_its_kind(language: str) -> None:
    first = next(name for name in installed() if name.startswith(f"{language}:"))

    assert resolve(language) == first


def test_any_python_3_will_do_for_who_asks_for_no_other() -> None:
    assert resolve("python:3") == resolve("python")


@pytest.mark.parametrize(
    "asked", ["python:2", "python:3.1", "nodejs:4", "nodejs:", "ruby", "", "Python", "python:3.11 "]
)
def test_what_is_not_installed_is_nothing(asked: str) -> None:
    assert resolve(asked) is None


@pytest.mark.parametrize(
    ("executable", "inside", "mounted"),
    [
        ("/usr/bin/node", "/usr/bin/node", {}),
        ("/bin/node", "/bin/node", {}),
        ("/usr/local/bin/node", "/opt/nodejs-24/bin/node", {"/opt/nodejs-24": "/usr/local"}),
        ("/usr/lib/node/bin/node", "/opt/nodejs-24/bin/node", {"/opt/nodejs-24": "/usr/lib/node"}),
        ("/srv/wheel/bin/node", "/opt/nodejs-24/bin/node", {"/opt/nodejs-24": "/srv/wheel"}),
    ],
)
def test_a_node_is_started_where_it_is_mounted(executable: str, inside: str, mounted: dict[str, str]) -> None:
    node = Runtime("nodejs:24", "nodejs", Path(executable))

    worker = {"/opt/moorage/node_worker.js": str(zygotes.NODE_WORKER)}
    assert zygotes.inside(node) == inside
    assert zygotes.binds({node.name: node}) == {**mounted, **worker}


@pytest.mark.parametrize(("prefix", "is_mounted"), [("/usr", False), ("/usr/local", True), ("/srv/python", True)])
def test_a_python_stays_where_it_is(prefix: str, is_mounted: bool) -> None:
    python = Runtime("python:3.11", "python", Path(prefix, "bin/python3.11"))

    assert zygotes.inside(python) == f"{prefix}/bin/python3.11"
    assert (zygotes.binds({python.name: python}).get(prefix) == prefix) is is_mounted
