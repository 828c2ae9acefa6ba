"""Wiring of container apps."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

from moorage.core import maintenance
from moorage.core.db.store import Database
from moorage.core.http.route import Router
from moorage.core.kit.records import dataclass
from moorage.core.machines import placement
from moorage.core.machines import service as machines
from moorage.core.product import Duties, Loop, Product
from moorage.core.telemetry import Telemetry
from moorage.core.worker.run import Handlers
from moorage.products.apps import removal, retention
from moorage.products.apps.autoscaler import Autoscaler
from moorage.products.apps.deploying import AppDeployer
from moorage.products.apps.exec import routes as exec_routes
from moorage.products.apps.launching import Launcher
from moorage.products.apps.logs import routes as log_routes
from moorage.products.apps.machines import placing
from moorage.products.apps.metrics import routes as metric_routes
from moorage.products.apps.metrics import service as metrics
from moorage.products.apps.metrics.service import RequestCounter
from moorage.products.apps.reconciler import AppReconciler
from moorage.products.apps.waker import Waker
from moorage.products.apps.waking import AppStarter
from moorage.products.projects import service as projects
from moorage.runtime.engines.ports import Engine, Logs, Programs, ReplicaEngine
from moorage.runtime.machines.links import Links

WAKE_EXTRA_S = 10  # beyond the time that an app may take to start


class AppGateway(Protocol):
    """The public gateway, as far as apps need it."""

    @property
    def waker_socket(self) -> Path:
        """The socket to which the gateway sends requests for apps without a ready replica."""
        ...

    async def sync_routes(self) -> None: ...

    def host_of(self, key: str, stored: str) -> str:
        """Return the present address of a replica."""
        ...


@dataclass(frozen=True)
class Apps(Product):
    paths = ("/v1/projects",)

    db: Database
    engine: ReplicaEngine
    reconciler: AppReconciler
    deploying: AppDeployer
    autoscaler: Autoscaler
    waker: Waker
    logs: Logs
    programs: Programs
    launcher: Launcher

    @classmethod
    def make(
        cls,
        db: Database,
        telemetry: Telemetry,
        engine: Engine,
        programs: Programs,
        gateway: AppGateway,
        links: Links,
        is_sandboxed: bool,
    ) -> Apps:
        settings = db.env.settings
        workloads = engine.workloads
        links.is_own_port.append(lambda port: any(state.port == port for state in workloads.states().values()))
        launcher = Launcher(db, engine, programs, is_sandboxed)
        reconciler = AppReconciler(db, workloads, launcher, telemetry, gateway.sync_routes)
        return cls(
            db=db,
            engine=engine.workloads,
            reconciler=reconciler,
            deploying=AppDeployer(db, reconciler, engine.logs, gateway.sync_routes),
            autoscaler=Autoscaler(db, engine.workloads, reconciler, telemetry),
            waker=Waker(
                gateway.waker_socket,
                AppStarter(db, reconciler, links.local_address, gateway.host_of).wake,
                within_s=settings.app_start_s + WAKE_EXTRA_S,
            ),
            logs=engine.logs,
            programs=programs,
            launcher=launcher,
        )

    @property
    def request_counter(self) -> RequestCounter:
        """Count requests of the access log, for metrics and for the autoscaler."""
        return RequestCounter(self.autoscaler.window)

    def wake(self) -> None:
        self.reconciler.wake()

    def routers(self) -> Sequence[Router]:
        return [
            log_routes.make_router(self.db, self.logs),
            metric_routes.make_router(),
            exec_routes.make_router(self.db, self.launcher.prepare_command),
        ]

    def register(self, handlers: Handlers) -> None:
        removal.register(handlers, self.launcher.engine)
        retention.register(handlers, self.logs)
        hooks = self.db.env.hooks
        hooks.add(projects.REMOVE, "apps", removal.remove_of_project)
        hooks.add(projects.REMOVE, "app metrics", metrics.remove_of_project)
        hooks.add(projects.ABSENCE, "apps", placing.explain_absence)
        hooks.add(maintenance.COLLECT, "apps", lambda _: self.programs.collect())
        hooks.add(placement.COMMITTED, "apps", placing.committed_memory)
        hooks.add(machines.COUNT, "replicas", placing.count)
        hooks.add(machines.MOVABLE, "apps", placing.count_movable)
        hooks.add(machines.STATEFUL, "apps", placing.describe_held)
        hooks.add(machines.LOST, "apps", placing.give_up)
        hooks.add(machines.REMOVED, "apps", placing.forget_machine)

    async def check(self) -> None:
        """Raise CannotStart if the engine cannot work with its settings."""
        await self.launcher.engine.check()
        if self.launcher.engine.is_exclusive:
            await self.db.read(placing.check_is_alone)

    async def start(self, duties: Duties) -> None:
        # Running replicas are found before any route is made: after a reboot none runs, and stored ports are stale.
        if duties.runs_apps:
            await self.reconciler.adopt()
        if duties.has_gateway:
            await self.waker.start()

    def loops(self, duties: Duties) -> Sequence[Loop]:
        return [self.reconciler.run(), self.autoscaler.run()] if duties.runs_apps else []

    async def stop(self) -> None:
        await self.waker.close()

    async def close(self) -> None:
        await self.engine.close()
