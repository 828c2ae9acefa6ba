"""Wiring of cronjobs."""

from __future__ import annotations

from collections.abc import Sequence

from moorage.accounts.identity.organizations.service import OrganizationDeleted
from moorage.accounts.plans import service as plans
from moorage.accounts.webhooks.service import GithubEvents
from moorage.core import maintenance
from moorage.core.db.scope import across_organizations
from moorage.core.db.store import Database
from moorage.core.db.tx import Tx
from moorage.core.http.route import Router
from moorage.core.jobs.timetable import Tick
from moorage.core.kit.records import dataclass
from moorage.core.machines import placement
from moorage.core.machines import service as machines
from moorage.core.product import Duties, Loop, Product
from moorage.core.telemetry import Telemetry
from moorage.core.worker.run import Handlers
from moorage.products.cronjobs import building, log_routes, ownership, pushes, retention, routes, service, tables
from moorage.products.cronjobs.building import Builds
from moorage.products.cronjobs.launching import Launcher
from moorage.products.cronjobs.running import Runner
from moorage.products.projects.deployments.pushes import PUSHED
from moorage.products.projects.pushed import USES_REPOSITORY
from moorage.runtime.engines.ports import Engine, Logs, Programs, ReplicaEngine
from moorage.runtime.images.store import Images


@dataclass(frozen=True)
class Cronjobs(Product):
    paths = ("/v1/cronjobs",)

    db: Database
    github: GithubEvents
    engine: ReplicaEngine
    logs: Logs
    images: Images
    programs: Programs
    builds: Builds
    runner: Runner

    @classmethod
    def make(
        cls,
        db: Database,
        telemetry: Telemetry,
        github: GithubEvents,
        engine: Engine,
        programs: Programs,
        images: Images,
        builds: Builds,
        is_sandboxed: bool,
    ) -> Cronjobs:
        launcher = Launcher(db, programs, engine.logs, is_sandboxed)
        return cls(
            db=db,
            github=github,
            engine=engine.workloads,
            logs=engine.logs,
            images=images,
            programs=programs,
            builds=builds,
            runner=Runner(db, engine.workloads, launcher, telemetry),
        )

    def routers(self) -> Sequence[Router]:
        return [routes.make_router(self.runner.wake), log_routes.make_router(self.db, self.logs)]

    def register(self, handlers: Handlers) -> None:
        @across_organizations("the tick names the organization")
        def on_tick(tx: Tx, tick: Tick) -> None:
            service.on_tick(tx, tick.org_id, int(tick.ref), tick.at)
            tx.after_commit(self.runner.wake)

        @across_organizations("the event names the organization")
        def delete_all(tx: Tx, event: OrganizationDeleted) -> None:
            service.delete_all(tx, event.org_id)
            tx.after_commit(self.runner.wake)

        handlers.ticks[tables.KIND] = on_tick
        handlers.listen(OrganizationDeleted, delete_all)
        building.register(handlers, self.builds)
        retention.register(handlers, self.images, self.logs)
        self.github.listen("push", pushes.on_github_push)
        hooks = self.db.env.hooks
        hooks.add(plans.COUNT, "cronjobs", service.count)
        hooks.add(PUSHED, "cronjobs", pushes.on_push)
        hooks.add(USES_REPOSITORY, "cronjobs", pushes.uses_repository)
        hooks.add(maintenance.COLLECT, "cronjobs", lambda _: self.programs.collect())
        hooks.add(placement.COMMITTED, "cronjobs", ownership.committed_memory)
        hooks.add(machines.COUNT, "runs", ownership.count_by_machine)
        hooks.add(machines.REMOVED, "cronjobs", ownership.forget_machine)

    async def adopt(self, duties: Duties) -> None:
        if duties.runs_apps:
            await self.runner.adopt()

    def loops(self, duties: Duties) -> Sequence[Loop]:
        return [self.runner.run()] if duties.runs_apps else []

    async def close(self) -> None:
        await self.engine.close()
