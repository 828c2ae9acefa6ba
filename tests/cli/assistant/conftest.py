"""One server with all tools, and one that only reads, for the tests of a file."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.cli.assistant.support import Assistant, assistant
from tests.cli.live import shell
from tests.e2e.projects_support import Sites


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder that the writer may deploy from."""
    return tmp_path_factory.mktemp("root")


@pytest.fixture(scope="module")
def reader(tmp_path_factory: pytest.TempPathFactory, sites: Sites) -> Iterator[Assistant]:
    with assistant(shell(tmp_path_factory.mktemp("reader"), sites)) as user:
        yield user


@pytest.fixture(scope="module")
def writer(tmp_path_factory: pytest.TempPathFactory, root: Path, sites: Sites) -> Iterator[Assistant]:
    with assistant(shell(tmp_path_factory.mktemp("writer"), sites), "--allow-writes", "--root", str(root)) as user:
        yield user
