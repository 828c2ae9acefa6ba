"""One platform and one browser for all tests of the console."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

import pytest
from bench.browser import headless_shell
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


@pytest.fixture
def zone(shared: SharedServers) -> Zone:
    """The DNS records that the platform sees; tests use names of their own."""
    dns: DnsServer = shared.get("dns of the console", running_dns)
    return dns.zone


@pytest.fixture
def visit(console: Console) -> Iterator[Visit]:
    """A person at the console who has not signed in."""
    with console.visit() as visit:
        yield visit
        assert visit.problems == []
