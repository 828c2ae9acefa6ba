"""Wiring of the operator's routes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field

from moorage.accounts.operator import routes
from moorage.accounts.operator.handlers import RegisteredHandlers
from moorage.core.db.store import Database
from moorage.core.http.route import Router
from moorage.core.kit.records import dataclass
from moorage.core.product import Product
from moorage.core.worker.run import Handlers


@dataclass(frozen=True)
class Operator(Product):
    paths = ("/v1/operator",)

    db: Database
    registered: RegisteredHandlers = field(default_factory=RegisteredHandlers)

    def routers(self) -> Sequence[Router]:
        return [routes.make_router(self.db, self.registered)]

    def register(self, handlers: Handlers) -> None:
        self.registered.handlers = handlers
