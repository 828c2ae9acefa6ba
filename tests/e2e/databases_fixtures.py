"""One platform for all end-to-end tests of databases. Test modules name this one in `pytest_plugins`."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests import memory
from tests.e2e.apps_support import end_shims
from tests.e2e.databases_support import Databases, Harbor


@pytest.fixture(scope="session")
def harbor() -> Iterator[Harbor]:
    """A running platform; tests share it, and use databases of their own."""
    with memory.folder("moorage-databases-") as folder:
        made = Harbor(folder)
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
