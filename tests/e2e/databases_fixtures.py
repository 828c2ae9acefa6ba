"""One platform for all end-to-end tests of databases. Test modules name this one in `pytest_plugins`."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import pytest
from tests import memory
from tests.e2e.apps_support import end_shims
from tests.e2e.databases_support import Databases, Harbor
from tests.shared import SharedServers


@contextlib.contextmanager
def started_harbor() -> Iterator[Harbor]:
    with memory.folder("moorage-databases-") as folder:
        made = Harbor(folder)
        try:
            made.start()
            yield made
        finally:
            made.stop()
            made.end_servers()
            end_shims(made.data)


@pytest.fixture(scope="module")
def harbor(shared: SharedServers) -> Harbor:
    """A running platform; the tests of a group share it, and use databases of their own."""
    return shared.get("harbor", started_harbor)


@pytest.fixture
def databases(harbor: Harbor) -> Databases:
    return harbor.databases
