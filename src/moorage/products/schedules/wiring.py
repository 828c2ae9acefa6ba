"""Wiring of scheduled functions."""

from __future__ import annotations

from collections.abc import Sequence

from moorage.core.db.store import Database
from moorage.core.http.route import Router
from moorage.core.kit.records import dataclass
from moorage.core.product import Product, Reconciled
from moorage.core.telemetry import Telemetry
from moorage.core.worker.run import Handlers
from moorage.products.functions import service as functions
from moorage.products.functions.wiring import Functions
from moorage.products.schedules import jobs, routes, service
from moorage.products.schedules.runner import ScheduleRunner


@dataclass(frozen=True)
class Schedules(Product):
    paths = ("/v1/scheduled-functions", "/v1/cron")

    db: Database
    runner: ScheduleRunner

    @classmethod
    def make(cls, db: Database, telemetry: Telemetry, of: Functions) -> Schedules:
        return cls(db, ScheduleRunner(db, of.edge, telemetry, of.recorder.catch_up))

    def routers(self) -> Sequence[Router]:
        return [routes.make_router(self.runner)]

    def register(self, handlers: Handlers) -> None:
        jobs.register(handlers, self.runner)
        self.db.env.hooks.add(functions.REMOVE, "schedules", service.remove_of_function)

    def reconciled(self) -> Sequence[Reconciled]:
        return [Reconciled("schedules", self.runner.ensure, every_s=2)]

    async def stop(self) -> None:
        await self.runner.stop()
