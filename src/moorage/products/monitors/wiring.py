"""Wiring of monitors."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from moorage.accounts.identity.organizations.service import OrganizationDeleted
from moorage.accounts.plans import service as plans
from moorage.core.db.scope import across_organizations
from moorage.core.db.store import Database
from moorage.core.db.tx import Tx
from moorage.core.http.dispatch import Mount
from moorage.core.http.route import Router
from moorage.core.kit.records import dataclass
from moorage.core.mail.sender import Mailer
from moorage.core.net.client import GuardedClient
from moorage.core.product import Duties, Loop, Product
from moorage.core.telemetry import Telemetry
from moorage.core.worker.run import Handlers
from moorage.products.monitors import retention, routes, service
from moorage.products.monitors.alerts import delivering
from moorage.products.monitors.alerts import routes as alert_routes
from moorage.products.monitors.alerts.delivering import Delivery
from moorage.products.monitors.probing.checks import Checker
from moorage.products.monitors.probing.prober import Prober
from moorage.products.monitors.status_page import page as status_page
from moorage.products.monitors.status_page.page import StatusPage
from moorage.products.projects import service as projects

CANARY_TIMEOUT_S = 3.0


@dataclass(frozen=True)
class Monitors(Product):
    paths = ("/v1/monitors", "/v1/alerts")

    db: Database
    checker: Checker
    prober: Prober
    client: GuardedClient
    delivery: Delivery
    page: StatusPage

    @classmethod
    def make(cls, db: Database, telemetry: Telemetry, mailer: Mailer) -> Monitors:
        settings = db.env.settings
        checker = Checker(settings.targets)
        canary = Canary(settings.monitor_canary).answers if settings.monitor_canary else None
        prober = Prober(
            db, checker, telemetry, owns_store=not settings.uses_postgres, most=settings.monitor_checks, canary=canary
        )
        client = GuardedClient(settings.targets, user_agent="Moorage-Alerts")
        return cls(db, checker, prober, client, Delivery(db, client, mailer), StatusPage(db))

    def routers(self) -> Sequence[Router]:
        return [routes.make_router(self.prober.wake), alert_routes.make_router()]

    def mounts(self) -> Sequence[Mount]:
        """Return the public status pages. No rate limit: Caddy is the client."""
        return [Mount(status_page.PATH, self.page.handle, is_counted=False)]

    def register(self, handlers: Handlers) -> None:
        @across_organizations("the event names the organization")
        def delete_all(tx: Tx, event: OrganizationDeleted) -> None:
            service.delete_all(tx, event.org_id)
            tx.after_commit(self.prober.wake)

        handlers.listen(OrganizationDeleted, delete_all)
        delivering.register(handlers, self.delivery)
        retention.register(handlers)
        hooks = self.db.env.hooks
        hooks.add(plans.COUNT, "monitors", service.count)
        hooks.add(projects.REMOVE, "monitors", service.detach_project)

    def loops(self, duties: Duties) -> Sequence[Loop]:
        return [self.prober.run()] if duties.works else []

    async def close(self) -> None:
        """Store the results of finished checks, and release the leases of monitors."""
        await self.prober.stop()
        await self.checker.close()
        await self.client.close()


class Canary:
    """Address set by the operator; unreachable while this machine's network is down."""

    def __init__(self, address: str) -> None:
        self._host, _, port = address.rpartition(":")
        self._port = int(port)

    async def answers(self) -> bool:
        try:
            async with asyncio.timeout(CANARY_TIMEOUT_S):
                _, writer = await asyncio.open_connection(self._host.strip("[]"), self._port)
        except OSError:  # includes TimeoutError
            return False
        writer.close()
        return True
