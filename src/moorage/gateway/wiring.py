"""Wiring of the public gateway: routes to sites and apps, and permission for certificates."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import field
from pathlib import Path

from moorage.core.artifacts.store import ArtifactStore
from moorage.core.artifacts.unpacked import Unpacked
from moorage.core.db.scope import across_organizations
from moorage.core.db.store import Database
from moorage.core.db.tx import Tx
from moorage.core.gateways import service as gateways
from moorage.core.http.answer import Answer, plain_json
from moorage.core.http.dispatch import Mount
from moorage.core.http.request import Request
from moorage.core.kit.records import dataclass
from moorage.core.machines import service as machines
from moorage.core.product import Duties, Loop, Product
from moorage.core.reconciler.rounds import Rounds
from moorage.core.telemetry import Telemetry
from moorage.core.worker.run import Handlers
from moorage.gateway.config.app_proxy import waker_socket
from moorage.gateway.config.tls import ASK_PATH, GatewayCertificates
from moorage.gateway.reconciler import GatewayReconciler, key_of
from moorage.gateway.releases import SITES, prepare
from moorage.gateway.routes import Routes
from moorage.gateway.wildcard import files as wildcard_files
from moorage.gateway.wildcard import jobs as wildcard_jobs
from moorage.gateway.wildcard import state as wildcard_state
from moorage.products.domains.issuance import Permission
from moorage.products.projects.deployments import service as deployments
from moorage.runtime.engines.ports import Locator, stored_host
from moorage.settings import Settings

FIRST_SYNC_S = 10.0
FIRST_ADDRESSES_S = 5.0  # A gateway starts with stored addresses while the API server is away.
SYNC_INTERVAL_S = 15.0
SHARED_SYNC_INTERVAL_S = 1.0  # where other processes change the same store
HEARTBEAT_INTERVAL_S = 5.0
CERTIFICATE_INTERVAL_S = 5.0  # If this process alone writes the store, it waits for a commit, too.


def make_releases(settings: Settings) -> Unpacked:
    """Return the folders of published sites. The gateway may run as another user, so they are readable by all."""
    return Unpacked(settings.folder("releases"), SITES, is_used=deployments.is_published, finish=prepare, mode=0o755)


@dataclass(frozen=True)
class Gateway(Product):
    db: Database
    telemetry: Telemetry
    releases: Unpacked
    reconciler: GatewayReconciler
    certificates: GatewayCertificates
    is_here: bool
    locator: Locator | None = None
    _may_route: asyncio.Event = field(default_factory=asyncio.Event)

    @classmethod
    def make(
        cls,
        db: Database,
        telemetry: Telemetry,
        artifacts: ArtifactStore,
        local_address: Callable[[str], str],
        is_here: bool,
        locator: Locator | None = None,
    ) -> Gateway:
        """Make the wiring; `is_here` says whether the gateway runs on this machine.

        `local_address` returns an address on this machine for a replica on another one. A gateway that runs no apps has
        a locator where the engine moves replicas by itself.
        """
        settings = db.env.settings
        releases = make_releases(settings)
        host_of = locator.host_of if locator is not None else stored_host
        routes = Routes(settings, telemetry)
        reconciler = GatewayReconciler(db, routes, releases, artifacts, telemetry, local_address, host_of)
        gateway = cls(db, telemetry, releases, reconciler, GatewayCertificates(settings), is_here, locator)
        gateway._may_route.set()
        return gateway

    @property
    def finish_site(self) -> str:
        return f"{prepare.__module__}:{prepare.__name__}"

    @property
    def waker_socket(self) -> Path:
        return waker_socket(self.db.env.settings)

    def host_of(self, key: str, stored: str) -> str:
        """Return the present address of a replica."""
        return self.locator.host_of(key, stored) if self.locator is not None else stored

    async def sync_routes(self) -> None:
        """Return when the gateway serves the state of the store; on other machines it reconciles by itself."""
        if self.is_here:
            await self._may_route.wait()
            await self.reconciler.sync_routes()

    def hold_routes(self) -> None:
        """Let `sync_routes` wait until `start`: before, stored ports of apps may be stale."""
        self._may_route.clear()

    def mounts(self) -> Sequence[Mount]:
        permission = Permission(self.db, self.certificates, self.telemetry.log)

        async def may_have_certificate(request: Request) -> Answer | None:
            if request.path != ASK_PATH or request.method != "GET":
                return None
            is_served = await permission.ask(request.from_query("domain") or "")
            return plain_json({"served": is_served}, 200 if is_served else 404)

        return [Mount(ASK_PATH.rpartition("/")[0] + "/", may_have_certificate, is_counted=False)]

    def register(self, handlers: Handlers) -> None:
        self.db.env.hooks.add(machines.REMOVED, "gateway", _forget)
        if self.db.env.settings.orders_certificate:
            wildcard_jobs.register(handlers, self.telemetry.log)

    async def start(self, duties: Duties) -> None:
        self._may_route.set()
        if duties.works and self.db.env.settings.orders_certificate:
            await self.db.write(wildcard_jobs.request)
        if duties.has_gateway:
            if self.db.env.settings.uses_postgres:
                await self.db.write(gateways.forget_stale)
            if self.locator is not None and (why := await self.locator.load(FIRST_ADDRESSES_S)) is not None:
                self.telemetry.log.warning("the gateway begins with stored addresses of apps", reason=why)
            await self.reconciler.ready(FIRST_SYNC_S)

    async def stop(self) -> None:
        if self.is_here:
            await self.reconciler.leave()

    def loops(self, duties: Duties) -> Sequence[Loop]:
        if not duties.has_gateway:
            return []
        is_shared = self.db.env.settings.uses_postgres
        every_s = SHARED_SYNC_INTERVAL_S if is_shared else SYNC_INTERVAL_S
        syncing = Rounds(self.telemetry, "gateway", every_s).run(self.reconciler.sync_routes)
        loops = [syncing]
        if self.db.env.settings.orders_certificate:
            copying = Rounds(self.telemetry, "wildcard certificate", CERTIFICATE_INTERVAL_S, self.db.commits)
            loops.append(copying.run(self.sync_certificate))
        if not is_shared:
            return loops
        # A loop of its own, because a sync may take long: it fetches releases of sites.
        beating = Rounds(self.telemetry, "gateway heartbeat", HEARTBEAT_INTERVAL_S).run(self.reconciler.beat)
        return [*loops, beating, *([self.locator.run()] if self.locator is not None else [])]

    async def sync_certificate(self) -> bool:
        """Copy the ordered certificate from the store, and load it."""
        settings = self.db.env.settings
        ordered, failures = await self.db.read(
            lambda tx: (wildcard_state.find_ordered(tx), wildcard_state.find_failures(tx))
        )
        if await asyncio.to_thread(wildcard_files.sync, settings, ordered, failures):
            await self.reconciler.sync_routes()
        return True

    async def close(self) -> None:
        if self.locator is not None:
            await self.locator.close()


@across_organizations("a gateway serves all organizations")
def _forget(tx: Tx, machine_id: int) -> None:
    gateways.forget(tx, key_of(machine_id))
