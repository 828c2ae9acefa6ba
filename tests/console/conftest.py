"""One platform and one browser for all tests of the console."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

import pytest
from bench.browser import headless_shell
from playwright.sync_api import Page
from tests.console.support import Console, Visit
from tests.platform.leftovers import ended_workloads
from tests.platform.running import Running, running
from tests.products.domains.dns_server import DnsServer, Zone, running_dns
from tests.shared import SharedServers


@contextlib.contextmanager
def started(data: Path, dns: DnsServer) -> Iterator[Running]:
    """A platform, whose apps and databases end with it."""
    env = {"MOORAGE_RATE_LIMIT": "1000000", "MOORAGE_RESOLVER": dns.address}
    with ended_workloads(data), running(data, env=env) as platform:
        yield platform


@pytest.fixture(scope="module")
def console(tmp_path_factory: pytest.TempPathFactory, shared: SharedServers) -> Console:
    """The console of a running platform; tests use names of their own."""
    dns: DnsServer = shared.get("dns of the console", running_dns)
    platform: Running = shared.get("console", lambda: started(tmp_path_factory.mktemp("console") / "data", dns))
    return Console(platform, shared.get("browser", headless_shell))


@contextlib.contextmanager
def open_pages() -> Iterator[list[Page]]:
    """Pages that no test uses at the moment; they close with the browser."""
    yield []


@pytest.fixture
def zone(shared: SharedServers) -> Zone:
    """The DNS records that the platform sees; tests use names of their own."""
    dns: DnsServer = shared.get("dns of the console", running_dns)
    return dns.zone


@pytest.fixture
def own_profile() -> None:
    """For a test that changes the clock or the settings of its browser profile, or opens more pages of the console."""


@pytest.fixture
def visit(console: Console, shared: SharedServers, request: pytest.FixtureRequest) -> Iterator[Visit]:
    """A person at the console who has not signed in.

    Tests use one page one after another: the first load in a new browser profile takes twice the CPU time of others.
    """
    if "own_profile" in request.fixturenames:
        with console.visit() as visit:
            yield visit
    else:
        pages: list[Page] = shared.get("pages of the console", open_pages)
        page = pages.pop() if pages else console.new_page()
        with Visit(console, page).listening() as visit:
            yield visit
        visit.leave()
        pages.append(page)  # If it could not be left, the next test opens another one.
    assert visit.problems == []
