"""One platform with a git server for all tests here, since starting it takes longer than most of them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.products.repositories.support import Checkout, Harbor, Listener, running_harbor


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory, sqlite_template: Path) -> Iterator[Harbor]:
    with running_harbor(tmp_path_factory.mktemp("harbor"), sqlite_template) as harbor:
        yield harbor


@pytest.fixture
def harbor(running: Harbor) -> Iterator[Harbor]:
    """The platform, which still serves after each test, without an unhandled error in its loop."""
    listener = running.listener
    listener.lines, listener.pushes, listener.ended = [], [], []
    listener.go_on.set()
    yield running
    listener.go_on.set()
    assert running.server.is_serving()
    assert running.server.crashes == []


@pytest.fixture
def listener(harbor: Harbor) -> Listener:
    return harbor.listener


@pytest.fixture
def work(tmp_path: Path) -> Checkout:
    """A local repository with a commit."""
    made = Checkout.init(tmp_path / "work")
    made.commit("the first", index_html="<h1>Harbor</h1>")
    return made
