"""One platform for all tests of the command line.

A test module with `pytestmark = pytest.mark.group("cli-live")` shares it with the others of that group; tests use
names of their own. `shell("projects", "list")` runs the command in a pipe, `shell.terminal(...)` in a pseudo-terminal.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.cli.live import Shell, shell
from tests.e2e.projects_support import GITHUB_SECRET, Sites, started_sites
from tests.platform.leftovers import ended_workloads
from tests.shared import SharedServers


@pytest.fixture(scope="module")
def sites(tmp_path_factory: pytest.TempPathFactory, shared: SharedServers) -> Sites:
    return shared.get("cli", lambda: started(tmp_path_factory.mktemp("cli") / "data"))


@contextlib.contextmanager
def started(data: Path) -> Iterator[Sites]:
    platform = started_sites(data, function_pool="1", github_webhook_secret=GITHUB_SECRET)
    with ended_workloads(data), platform as sites:
        yield sites


@pytest.fixture(name="shell")
def shell_fixture(tmp_path: Path, sites: Sites) -> Shell:
    """A user with an empty home, signed in by the environment."""
    return shell(tmp_path / "home", sites)
