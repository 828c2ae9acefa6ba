"""What a push to the built-in git server starts, and what whoever pushed gets to see of it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from functools import partial

from moorage.core.db.store import Database
from moorage.core.db.tx import Tx
from moorage.core.hooks import Hook
from moorage.products.projects import service, tables
from moorage.products.projects.deployments import logs
from moorage.products.projects.deployments import service as deployments
from moorage.products.projects.deployments.followers import Followers
from moorage.products.projects.deployments.service import Asked
from moorage.products.projects.deployments.tables import Deployment
from moorage.products.projects.tables import Project
from moorage.products.repositories.service import Push, Settle

# Runs after a push to the built-in git server; returns lines for the terminal of the user who pushed.
PUSHED: Hook[[Tx, int, Push], list[str]] = Hook("repository.pushed")

LONGEST_S = 20 * 60.0
MUTED = 400  # lines of one push; the whole log can be read in the deployment


class Pushes:
    def __init__(self, db: Database, followers: Followers) -> None:
        self._db = db
        self._followers = followers

    async def __call__(self, push: Push, settle: Settle) -> AsyncIterator[str]:
        """Deploy what the push is for, and yield the lines that whoever pushed sees."""
        started, others = await self._db.write(partial(_start, org_id=push.org_id, push=push, settle=settle))
        for line in others:
            yield line
        for project, deployment in started:
            yield f"Deploying {project.name} ({(deployment.commit_sha or '')[:12]})"
            try:
                async with asyncio.timeout(LONGEST_S):
                    async for line in self._follow(deployment):
                        yield line
            except TimeoutError:
                yield "Still deploying; follow it with the API or in the console"

    async def _follow(self, deployment: Deployment) -> AsyncIterator[str]:
        shown = 0
        async for event in logs.follow(self._db, self._followers, deployment.org_id, deployment.id):
            if event.name == "log":
                shown += 1
                if event.data.stream == "system" or shown <= MUTED:
                    yield event.data.message
                elif shown == MUTED + 1:
                    yield "… the rest of the output is in the deployment's log"
            elif event.name == "done":
                yield await self._db.read(partial(_end, org_id=deployment.org_id, deployment_id=deployment.id))


def _start(tx: Tx, org_id: int, push: Push, settle: Settle) -> tuple[list[tuple[Project, Deployment]], list[str]]:
    """Start a deployment for every project that tracks a branch of the push and wants that; once for each push."""
    started: list[tuple[Project, Deployment]] = []
    others: list[str] = []
    if not settle(tx):
        return started, ["Stored. What follows it was started already"]
    moved = {update.branch: update.new for update in push.updates}
    found = [each for each in tx.all(tables.OF_REPOSITORY, repository=push.repository.lower()) if each.org_id == org_id]
    for lines in tx.env.hooks.call(PUSHED, tx, org_id, push):
        others += lines
    if not found and not others:
        others.append(f"Stored. No project is made from {push.repository} yet: POST /v1/projects makes one")
    for project in found:
        if project.branch not in moved:
            continue
        if not project.enabled:
            others.append(f"{project.name} is disabled, so it is not deployed")
        elif not project.auto_deploy:
            others.append(f"{project.name} does not deploy on push (autoDeploy is off)")
        else:
            asked = Asked(commit_sha=moved[project.branch], branch=project.branch, user_id=push.actor.user_id)
            started.append((project, deployments.start(tx, org_id, project, asked)))
    return started, others


def _end(tx: Tx, org_id: int, deployment_id: int) -> str:
    found = deployments.find(tx, org_id, deployment_id)
    project = service.find_by_id(tx, org_id, found.project_id) if found is not None else None
    if found is None or project is None:
        return "The project was deleted"
    if found.status != "succeeded":
        return f"Deployment failed: {found.reason or 'see its log'}"
    return service.url_of(tx.env.settings, service.host_of(tx.env.settings, project.name))
