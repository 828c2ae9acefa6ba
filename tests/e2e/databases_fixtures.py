"""One platform for all end-to-end tests of databases. Test modules name this one in `pytest_plugins`."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.e2e.apps_support import end_shims
from tests.e2e.databases_support import Databases, Harbor


@pytest.fixture(scope="session")
def harbor(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Harbor]:
    """A running platform; tests share it, and use databases of their own."""
    made = Harbor(tmp_path_factory.mktemp("databases"))
    try:
        made.start()
        yield made
    finally:
        made.stop()
        made.end_servers()
        end_shims(made.data)


@pytest.fixture
def databases(harbor: Harbor) -> Databases:
    return harbor.databases
