"""Deploy after a push to the built-in git server; stream the log to the client."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from functools import partial

from moorage.core.db.store import Database
from moorage.core.db.tx import Tx
from moorage.core.hooks import Hook
from moorage.products.projects import pushed, service, tables
from moorage.products.projects.deployments import logs
from moorage.products.projects.deployments import service as deployments
from moorage.products.projects.deployments.followers import Followers
from moorage.products.projects.deployments.service import DeploymentRequest
from moorage.products.projects.deployments.tables import Deployment
from moorage.products.projects.tables import Project
from moorage.products.repositories.names import key_of
from moorage.products.repositories.service import Push, RecordPush

# Runs after a push to the built-in git server; returns lines for the git client.
PUSHED: Hook[[Tx, int, Push], list[str]] = Hook("repository.pushed")

FOLLOW_TIMEOUT_S = 20 * 60.0
MAX_LINES_SHOWN = 400  # per deployment; the deployment's log has all lines


class Pushes:
    def __init__(self, db: Database, followers: Followers) -> None:
        self._db = db
        self._followers = followers

    async def __call__(self, push: Push, record_push: RecordPush) -> AsyncIterator[str]:
        """Start the deployments of a push and yield the lines for the git client."""
        started, others = await self._db.write(partial(_start, org_id=push.org_id, push=push, record_push=record_push))
        for line in others:
            yield line
        for project, deployment in started:
            yield f"Deploying {project.name} ({(deployment.commit_sha or '')[:12]})"
            try:
                async with asyncio.timeout(FOLLOW_TIMEOUT_S):
                    async for line in self._follow(deployment):
                        yield line
            except TimeoutError:
                yield "Still deploying; follow it with the API or in the console"

    async def _follow(self, deployment: Deployment) -> AsyncIterator[str]:
        shown = 0
        async for event in logs.follow(self._db, self._followers, deployment.org_id, deployment.id):
            if event.name == "log":
                shown += 1
                if event.data.stream == "system" or shown <= MAX_LINES_SHOWN:
                    yield event.data.message
                elif shown == MAX_LINES_SHOWN + 1:
                    yield "… the rest of the output is in the deployment's log"
            elif event.name == "done":
                yield await self._db.read(partial(_final_line, org_id=deployment.org_id, deployment_id=deployment.id))


def _start(
    tx: Tx, org_id: int, push: Push, record_push: RecordPush
) -> tuple[list[tuple[Project, Deployment]], list[str]]:
    """Deploy the projects that track a pushed branch; once for each push."""
    started: list[tuple[Project, Deployment]] = []
    others: list[str] = []
    if not record_push(tx):
        return started, ["Stored. Its deployments were started already"]
    if not push.deploys:
        return started, ["Stored. No deployment was started, as the client asked"]
    moved = {update.branch: update.new for update in push.updates}
    tracking = tx.all(tables.OF_REPOSITORY, repository=key_of(push.repository))
    projects = [each for each in tracking if each.org_id == org_id]
    for lines in tx.env.hooks.call(PUSHED, tx, org_id, push):
        others += lines
    if not projects and not others:
        created = pushed.create(tx, org_id, push)
        others.append(created.line)
        projects = [created.project] if created.project is not None else []
    for project in projects:
        if project.branch not in moved:
            continue
        if not project.enabled:
            others.append(f"{project.name} is disabled, so it is not deployed")
        elif not project.auto_deploy:
            others.append(f"{project.name} does not deploy on push (autoDeploy is off)")
        else:
            request = DeploymentRequest(
                commit_sha=moved[project.branch], branch=project.branch, user_id=push.actor.user_id
            )
            started.append((project, deployments.start(tx, org_id, project, request)))
    return started, others


def _final_line(tx: Tx, org_id: int, deployment_id: int) -> str:
    deployment = deployments.find(tx, org_id, deployment_id)
    project = service.find_by_id(tx, org_id, deployment.project_id) if deployment is not None else None
    if deployment is None or project is None:
        return "The project was deleted"
    if deployment.status != "succeeded":
        return f"Deployment failed: {deployment.reason or 'see its log'}"
    return service.url_of(tx.env.settings, service.host_of(tx.env.settings, project.name))
