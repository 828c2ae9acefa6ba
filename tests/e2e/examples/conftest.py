"""The platform of the tests of the command line, for the examples as well."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.cli.live import Shell, shell
from tests.e2e.projects_support import Sites, started_sites
from tests.shared import SharedServers


@pytest.fixture(scope="module")
def sites(tmp_path_factory: pytest.TempPathFactory, shared: SharedServers) -> Sites:
    data = tmp_path_factory.mktemp("cli") / "data"
    return shared.get("cli", lambda: started_sites(data, function_pool="1"))


@pytest.fixture(name="shell")
def shell_fixture(tmp_path: Path, sites: Sites) -> Shell:
    return shell(tmp_path / "home", sites)
