"""The parts of cronjobs that live beside the requests; whoever runs the platform starts and closes them."""

from __future__ import annotations

from collections.abc import Coroutine
from dataclasses import dataclass
from typing import Any

from moorage.accounts.identity.organizations.service import OrganizationDeleted
from moorage.accounts.webhooks.service import GithubEvents
from moorage.core.artifacts.store import ArtifactStore
from moorage.core.artifacts.unpacked import Unpacked
from moorage.core.db.scope import across_organizations
from moorage.core.db.store import Database
from moorage.core.db.tx import Tx
from moorage.core.http.route import Router
from moorage.core.jobs.timetable import Tick, TickHandler
from moorage.core.telemetry import Telemetry
from moorage.core.worker.run import Handlers
from moorage.products.cronjobs import building, log_routes, pushes, retention, routes, service, tables
from moorage.products.cronjobs.building import Builds
from moorage.products.cronjobs.launching import Launcher
from moorage.products.cronjobs.running import Runner
from moorage.products.projects.deployments.followers import Followers
from moorage.products.repositories.fetch import Sources
from moorage.runtime.builds.builder import Builder
from moorage.runtime.builds.collect import APP_CAPS
from moorage.runtime.engines.local import LocalReplicas
from moorage.runtime.engines.ports import Replicas
from moorage.runtime.images.layers import GB, MB
from moorage.runtime.images.store import Images, Limits


@dataclass(frozen=True)
class Cronjobs:
    db: Database
    engine: Replicas
    images: Images
    builds: Builds
    runner: Runner

    @classmethod
    def make(
        cls,
        db: Database,
        telemetry: Telemetry,
        artifacts: ArtifactStore,
        sources: Sources,
        builder: Builder,
        *,
        is_sandboxed: bool,
    ) -> Cronjobs:
        """Make the parts. Builder and sources are those of projects: all builds of a machine take turns."""
        settings = db.env.settings
        engine = LocalReplicas(settings.folder("run"), "cronjobs")
        limits = Limits(
            reserve_bytes=settings.disk_reserve_mb * MB,
            organization_bytes=settings.images_gb * GB,
            organization_entries=settings.image_files,
        )
        images = Images(settings.folder("images"), settings.targets, db.env.clock, limits=limits)
        # Each cronjob runs as a user of its own, and reads the files of its release as one of all.
        releases = Unpacked(settings.folder("cronjob-releases"), APP_CAPS, is_used=building.is_used)
        launcher = Launcher(db, artifacts, releases, images, is_sandboxed)
        return cls(
            db=db,
            engine=engine,
            images=images,
            builds=Builds(db, artifacts, releases, sources, builder, Followers()),
            runner=Runner(db, engine, launcher, telemetry),
        )

    @property
    def releases(self) -> Unpacked:
        """The folders that runs find their files in; the platform's chores collect them."""
        return self.builds.releases

    def routers(self) -> list[Router]:
        return [routes.make_router(self.runner.wake), log_routes.make_router(self.db)]

    def register(self, handlers: Handlers, ticks: dict[str, TickHandler], github: GithubEvents) -> None:
        @across_organizations("the tick names the organization")
        def on_tick(tx: Tx, tick: Tick) -> None:
            service.on_tick(tx, tick.org_id, int(tick.ref), tick.at)
            tx.after_commit(self.runner.wake)

        @across_organizations("the event names the organization")
        def delete_all(tx: Tx, event: OrganizationDeleted) -> None:
            service.delete_all(tx, event.org_id)
            tx.after_commit(self.runner.wake)

        ticks[tables.KIND] = on_tick
        handlers.listen(OrganizationDeleted, delete_all)
        building.register(handlers, self.builds)
        retention.register(handlers, ticks, self.images)
        pushes.listen(github)

    async def ensure(self, db: Database, now: int) -> None:
        """Make sure the timetable holds the chores; for the reconciler."""
        await retention.ensure(db, now)

    async def adopt(self) -> None:
        """Find what runs already; before any loop, and only where runs are kept."""
        await self.runner.adopt()

    def loops(self) -> list[Coroutine[Any, Any, None]]:
        """Return what runs for as long as the process that keeps the runs."""
        return [self.runner.run()]

    async def close(self) -> None:
        """Let go of all runs, which go on."""
        await self.engine.close()
