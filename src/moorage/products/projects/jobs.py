"""Jobs: deployments, cleanup after deleted organizations, expiry of logs."""

from __future__ import annotations

import msgspec

from moorage.accounts.identity.organizations.service import OrganizationDeleted
from moorage.core import jobs
from moorage.core.db.scope import across_organizations
from moorage.core.db.tx import Tx
from moorage.core.kit.clock import DAY_MS
from moorage.core.worker.run import Handlers, Run
from moorage.products.projects import service
from moorage.products.projects.deployments import pipeline
from moorage.products.projects.deployments import service as deployments
from moorage.products.projects.deployments import tables as rows
from moorage.products.projects.deployments.pipeline import Pipeline
from moorage.products.projects.deployments.service import BuildDeployment, PublishDeployment
from moorage.products.projects.route_sync import SyncGateway

LOG_RETENTION_MS = 90 * DAY_MS


class ForgetReleases(msgspec.Struct, frozen=True, tag="projects.forget_releases"):
    """Remove the routes and releases of a deleted organization."""

    digests: list[str]


def register(handlers: Handlers, pipeline_: Pipeline) -> None:
    async def forget(run: Run, job: ForgetReleases) -> None:
        await pipeline_.sync_routes()
        await pipeline_.remove_unused(job.digests)

    async def sync(run: Run, _: SyncGateway) -> None:
        await pipeline_.sync_routes()

    handlers.add(
        BuildDeployment, pipeline_.run_build, on_failure=_fail_deployment, uncounted_ms=deployments.UNCOUNTED_MS
    )
    handlers.add(
        PublishDeployment, pipeline_.run_publish, on_failure=_fail_deployment, uncounted_ms=deployments.UNCOUNTED_MS
    )
    handlers.add(ForgetReleases, forget)
    handlers.add(SyncGateway, sync)
    handlers.listen(OrganizationDeleted, delete_projects)


@across_organizations("the event names the organization")
def delete_projects(tx: Tx, event: OrganizationDeleted) -> None:
    digests = service.delete_all(tx, event.org_id)
    if digests:
        jobs.add(tx, ForgetReleases(sorted(set(digests))))


@across_organizations("the job names the organization")
def _fail_deployment(tx: Tx, job: BuildDeployment | PublishDeployment) -> None:
    deployments.fail_if_open(tx, job.org_id, job.deployment_id, pipeline.OURS)


@across_organizations("the retention time is the same for every organization")
def sweep(tx: Tx) -> None:
    tx.run(rows.FORGET_LINES, before=tx.trusted_now - LOG_RETENTION_MS)
