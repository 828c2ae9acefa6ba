"""One platform and one code host for all end-to-end tests of projects: starting them costs more than most of the tests.

Test modules name this one in `pytest_plugins`.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.e2e.projects_support import GITHUB_SECRET, Codehost, Sites, page, running_codehost, started_sites
from tests.products.repositories.support import Checkout


@pytest.fixture(scope="session")
def codehost(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Codehost]:
    with running_codehost(tmp_path_factory.mktemp("codehost")) as made:
        yield made


@pytest.fixture(scope="session")
def sites(tmp_path_factory: pytest.TempPathFactory, codehost: Codehost) -> Iterator[Sites]:
    """A running platform; tests share it and use names of their own."""
    data = tmp_path_factory.mktemp("projects") / "data"
    with started_sites(data, codehost_url=codehost.url, github_webhook_secret=GITHUB_SECRET) as platform:
        yield platform


@pytest.fixture
def work(tmp_path: Path) -> Checkout:
    """A repository on somebody's machine, with a page in it."""
    made = Checkout.init(tmp_path / "work")
    made.commit("the first", index_html=page("one"))
    return made
