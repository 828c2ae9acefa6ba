"""One platform and one code host for all end-to-end tests of projects: starting them costs more than most of the tests.

Test modules name this one in `pytest_plugins`.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.e2e.projects_support import GITHUB_SECRET, Codehost, Sites, page, running_codehost, started_sites
from tests.products.repositories.support import Checkout
from tests.shared import SharedServers


@pytest.fixture(scope="module")
def codehost(tmp_path_factory: pytest.TempPathFactory, shared: SharedServers) -> Codehost:
    return shared.get("codehost", lambda: running_codehost(tmp_path_factory.mktemp("codehost")))


@pytest.fixture(scope="module")
def sites(tmp_path_factory: pytest.TempPathFactory, shared: SharedServers, codehost: Codehost) -> Sites:
    """A running platform; the tests of a group share it and use names of their own."""
    data = tmp_path_factory.mktemp("projects") / "data"
    return shared.get(
        "sites",
        lambda: started_sites(data, codehost_url=codehost.url, github_webhook_secret=GITHUB_SECRET),
    )


@pytest.fixture
def work(tmp_path: Path) -> Checkout:
    """A repository on somebody's machine, with a page in it."""
    made = Checkout.init(tmp_path / "work")
    made.commit("the first", index_html=page("one"))
    return made
