"""One platform and one browser for all tests of the console."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from bench.browser import chromium
from tests.console.support import Console, Visit
from tests.platform.running import Running, running
from tests.shared import SharedServers


@pytest.fixture(scope="module")
def console(tmp_path_factory: pytest.TempPathFactory, shared: SharedServers) -> Console:
    """The console of a running platform; tests use names of their own."""
    platform: Running = shared.get(
        "console",
        lambda: running(tmp_path_factory.mktemp("console") / "data", env={"MOORAGE_RATE_LIMIT": "1000000"}),
    )
    return Console(platform, shared.get("chromium", chromium))


@pytest.fixture
def visit(console: Console) -> Iterator[Visit]:
    """A person at the console who has not signed in."""
    with console.visit() as visit:
        yield visit
        assert visit.problems == []
