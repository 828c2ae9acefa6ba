"""One platform for all tests here, since starting it takes longer than most of them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.products.images.image_pushes import Harbor, running_harbor


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory, sqlite_template: Path) -> Iterator[Harbor]:
    with running_harbor(tmp_path_factory.mktemp("harbor"), sqlite_template) as harbor:
        yield harbor


@pytest.fixture
def harbor(running: Harbor) -> Iterator[Harbor]:
    """The platform, which still serves after each test, without an unhandled error in its loop."""
    yield running
    assert running.platform.server.is_serving()
    assert running.platform.server.crashes == []
