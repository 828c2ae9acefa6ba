"""A DNS server with dynamic updates, a real certificate authority, a real gateway, and the task that orders."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from tests.gateway.wildcard.update_server import KEY_NAME, UpdatedZone
from tests.ports import free_port
from tests.products.domains.dns_server import DnsServer, running_dns
from tests.products.domains.gateway_support import running_gateway
from tests.products.domains.pebble_server import Pebble, running_pebble

from moorage.core.artifacts.store import ArtifactStore
from moorage.core.db.store import Database
from moorage.core.hooks import Hooks
from moorage.core.kit.clock import ManualClock
from moorage.core.product import Duties
from moorage.core.telemetry import Telemetry
from moorage.core.worker.pool import Worker
from moorage.core.worker.run import Handlers
from moorage.gateway.wildcard import jobs, state
from moorage.gateway.wildcard.state import Failures
from moorage.gateway.wiring import Gateway
from moorage.settings import Settings, load

WORKER_ONLY = Duties(works=True, has_gateway=False, has_edge=False)


@pytest.fixture(scope="package")
def update_server() -> Iterator[DnsServer]:
    with running_dns(UpdatedZone()) as server:
        yield server


@pytest.fixture
def zone(update_server: DnsServer) -> UpdatedZone:
    zone = update_server.zone
    assert isinstance(zone, UpdatedZone)
    zone.clear()
    zone.zones = {"example.net"}
    zone.secret, zone.algorithm, zone.hidden, zone.refused = UpdatedZone.secret, UpdatedZone.algorithm, False, False
    zone.lagging, zone.wildcard, zone.updates = set(), None, []
    return zone


@pytest.fixture(scope="package")
def ports() -> dict[str, int]:
    return {"gateway_port": free_port(), "https_port": free_port()}


@pytest.fixture(scope="package")
def authority(
    tmp_path_factory: pytest.TempPathFactory, update_server: DnsServer, ports: dict[str, int]
) -> Iterator[Pebble]:
    folder = tmp_path_factory.mktemp("pebble")
    http_port, tls_port = ports.values()
    with running_pebble(
        folder, dns=update_server.address, http_port=http_port, tls_port=tls_port, rejected_nonces=15
    ) as pebble:
        yield pebble


@pytest.fixture
def settings(tmp_path: Path, zone: UpdatedZone, update_server: DnsServer, request: pytest.FixtureRequest) -> Settings:
    """Settings of a platform that orders; mark a test with `@pytest.mark.settings(...)` to change some."""
    authority: Pebble = request.getfixturevalue("authority")
    marker = request.node.get_closest_marker("settings")
    given = {
        "data": tmp_path / "data",
        "apps_domain": "apps.example.net",
        "functions_domain": "fn.example.net",
        "resolver": update_server.address,
        "acme_directory": authority.directory,
        "acme_ca": str(authority.ca_file),
        "dns_update_server": update_server.address,
        "dns_update_key_name": KEY_NAME,
        "dns_update_key": zone.encoded_secret,
        "dns_update_wait_s": 0,
        "api_port": free_port(),
        "edge_port": free_port(),
        **request.getfixturevalue("ports"),
        **(marker.kwargs if marker else {}),
    }
    return load(**given)


@dataclass
class Platform:
    """The gateway's part of a control process, which a test steps."""

    db: Database
    gateway: Gateway
    handlers: Handlers

    @property
    def clock(self) -> ManualClock:
        clock = self.db.env.clock
        assert isinstance(clock, ManualClock)
        return clock

    async def start(self) -> None:
        """Start as a process that runs jobs, and run them."""
        await self.gateway.start(WORKER_ONLY)
        await self.run_jobs()

    async def tick(self, after_ms: int) -> None:
        """Advance the clock and run the maintenance task."""
        self.clock.advance(after_ms)
        await self.db.write(jobs.request)
        await self.run_jobs()

    async def run_jobs(self) -> None:
        await Worker(self.db, self.handlers, Telemetry(quiet=True), slots=2).run_due(turns=3)

    async def failures(self) -> Failures | None:
        return await self.db.read(state.find_failures)

    async def certificate(self) -> x509.Certificate | None:
        """Return the stored certificate."""
        ordered = await self.db.read(state.find_ordered)
        return None if ordered is None else x509.load_pem_x509_certificate(ordered.bundle.encode())


def make_platform(db: Database) -> Platform:
    telemetry, handlers = Telemetry(quiet=True), Handlers()
    gateway = Gateway.make(db, telemetry, ArtifactStore(db), str, True)
    gateway.register(handlers)
    return Platform(db, gateway, handlers)


@pytest.fixture
async def platform(db: Database) -> AsyncIterator[Platform]:
    made = make_platform(db)
    yield made
    await made.gateway.close()


@pytest.fixture
def caddy(settings: Settings) -> Iterator[Settings]:
    with running_gateway(settings):
        yield settings


def restart(db: Database, **changed: Any) -> Platform:
    """Return a platform with other settings on the same store."""
    db.env = replace(db.env, settings=load(**{**vars(db.env.settings), **changed}), hooks=Hooks())
    return make_platform(db)
