"""A DNS server, and the API of domains over it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.products.domains.dns_server import DnsServer, Zone, running_dns
from tests.products.domains.support import Desk

from moorage.core.db.store import Database
from moorage.settings import Settings


@pytest.fixture(scope="session")
def dns_server() -> Iterator[DnsServer]:
    with running_dns() as server:
        yield server


@pytest.fixture
def zone(dns_server: DnsServer) -> Zone:
    dns_server.zone.clear()
    return dns_server.zone


@pytest.fixture
def settings(tmp_path: Path, dns_server: DnsServer, request: pytest.FixtureRequest) -> Settings:
    """Settings with the test's own DNS resolver."""
    marker = request.node.get_closest_marker("settings")
    given: dict[str, Any] = {
        "data": tmp_path / "data",
        "rate_limit": 1_000_000,
        "apps_domain": "apps.example.net",
        "resolver": dns_server.address,
        **(marker.kwargs if marker else {}),
    }
    return Settings(_env_file=None, **given)


@pytest.fixture
async def desk(db: Database, zone: Zone) -> AsyncIterator[Desk]:
    desk = Desk(db, zone)
    yield desk
    await desk.close()
