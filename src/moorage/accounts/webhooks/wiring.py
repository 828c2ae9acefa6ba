"""Wiring of webhooks: deliveries of Stripe and GitHub."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field

from moorage.accounts.webhooks import jobs, routes, service
from moorage.accounts.webhooks.service import GithubEvents
from moorage.core import maintenance
from moorage.core.db.store import Database
from moorage.core.http.route import Router
from moorage.core.kit.records import dataclass
from moorage.core.product import Product
from moorage.core.worker.run import Handlers


@dataclass(frozen=True)
class Webhooks(Product):
    paths = ("/webhook", "/api")

    db: Database
    github: GithubEvents = field(default_factory=GithubEvents)  # products add their listeners here

    def routers(self) -> Sequence[Router]:
        return [routes.make_router(self.db)]

    def register(self, handlers: Handlers) -> None:
        jobs.register(handlers, self.github)
        self.db.env.hooks.add(maintenance.SWEEP, "webhooks", service.sweep)
