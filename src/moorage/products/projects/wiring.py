"""Wiring of projects: deployments, uploads and previews."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from moorage.accounts.plans import service as plans
from moorage.accounts.webhooks.service import GithubEvents
from moorage.core import maintenance
from moorage.core.artifacts.store import ArtifactStore
from moorage.core.artifacts.unpacked import Unpacked
from moorage.core.db.store import Database
from moorage.core.http.route import Router
from moorage.core.kit.records import dataclass
from moorage.core.product import Duties, Product, Reconciled
from moorage.core.worker.run import Handlers
from moorage.products.projects import detection_routes, downgrades, github, jobs, routes, service, uploads
from moorage.products.projects.deployments import routes as deployment_routes
from moorage.products.projects.deployments.followers import Followers
from moorage.products.projects.deployments.pipeline import Pipeline
from moorage.products.projects.deployments.pushes import Pushes
from moorage.products.projects.deployments.ready_images import ReadyImages
from moorage.products.projects.deployments.runner import Apps
from moorage.products.projects.uploads import Uploads
from moorage.products.repositories.fetch import Sources
from moorage.runtime.builds.ports import Builds
from moorage.runtime.engines.ports import Programs
from moorage.runtime.images import blobs, sources
from moorage.runtime.images.building import cache as layer_cache
from moorage.runtime.sandbox.heavy import HeavyWork


class SiteGateway(Protocol):
    """The public gateway, as far as projects need it."""

    @property
    def releases(self) -> Unpacked:
        """The folders of published sites."""
        ...

    @property
    def finish_site(self) -> str:
        """The name, as `module:function`, of the function that prepares an unpacked site."""
        ...

    async def sync_routes(self) -> None:
        """Return when the gateway serves the state of the store."""
        ...


class AppRunner(Protocol):
    """Container apps, as far as projects need them."""

    @property
    def programs(self) -> Programs: ...

    @property
    def deploying(self) -> Apps: ...

    def wake(self) -> None:
        """Compare replicas with the store soon."""
        ...


@dataclass(frozen=True)
class Projects(Product):
    paths = ("/v1/projects", "/v1/deployments")

    db: Database
    github: GithubEvents
    pipeline: Pipeline
    uploads: Uploads
    heavy: HeavyWork

    @classmethod
    def make(
        cls,
        db: Database,
        artifacts: ArtifactStore,
        github: GithubEvents,
        gateway: SiteGateway,
        apps: AppRunner,
        builds: Builds,
        image_sources: sources.Sources,
        runs_apps: bool,
        heavy: HeavyWork,
    ) -> Projects:
        """Make the wiring. Deployments of apps wait for a process that runs apps."""

        async def sync_routes() -> None:
            apps.wake()
            await gateway.sync_routes()

        pipeline = Pipeline(
            db=db,
            artifacts=artifacts,
            releases=gateway.releases,
            programs=apps.programs,
            sources=Sources(db, heavy),
            builder=builds,
            followers=Followers(db.env.hooks),
            sync_routes=sync_routes,
            images=ReadyImages(db, blobs.ImageBlobs(db, artifacts), image_sources),
            apps=apps.deploying if runs_apps else None,
        )
        uploading = Uploads(db, artifacts, gateway.releases, heavy, finish=gateway.finish_site)
        return cls(db, github, pipeline, uploading, heavy)

    @property
    def pushes(self) -> Pushes:
        """Start deployments after a push to the built-in git server."""
        return Pushes(self.db, self.pipeline.followers)

    def routers(self) -> Sequence[Router]:
        detection = detection_routes.Detection(self.pipeline.sources, self.pipeline.releases, self.heavy)
        services = routes.RouteServices(self.db, self.pipeline.remove_unused, self.pipeline.sync_routes)
        return [
            routes.make_router(services),
            uploads.make_router(self.db, self.uploads),
            detection_routes.make_router(detection),
            deployment_routes.make_router(self.db, self.pipeline.followers),
        ]

    def register(self, handlers: Handlers) -> None:
        jobs.register(handlers, self.pipeline)
        github.listen(self.github)
        hooks = self.db.env.hooks
        hooks.add(plans.COUNT, "projects", service.count)
        hooks.add(maintenance.SWEEP, "deployment logs", jobs.sweep)
        hooks.add(maintenance.SWEEP, "image layers", layer_cache.sweep)
        hooks.add(maintenance.COLLECT, "sites", self.pipeline.releases.collect)

    def reconciled(self) -> Sequence[Reconciled]:
        return [Reconciled("compute", downgrades.ensure, every_s=15)]

    async def adopt(self, duties: Duties) -> None:
        if duties.works:
            await self.pipeline.clear_up()

    async def close(self) -> None:
        self.uploads.close()
