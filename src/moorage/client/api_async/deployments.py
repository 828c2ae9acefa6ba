"""Routes of the group Deployments. Generated from the OpenAPI document by `make docs`; edits are lost."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Literal

from msgspec import UNSET, UnsetType

from moorage.client import models
from moorage.client.asynchronous import AsyncTransport
from moorage.client.exchange import Call, path_part
from moorage.client.model import CursorPage, List
from moorage.client.streams import Event


class AsyncDeployments:
    """Methods of the group Deployments."""

    def __init__(self, transport: AsyncTransport) -> None:
        self._transport = transport

    async def deploy_project(
        self,
        name: str,
        *,
        operation: Literal["deploy", "restart", "rebuild"] | UnsetType = UNSET,
        commit_sha: str | UnsetType = UNSET,
        wait: int | None = None,
        idempotency_key: str | None = None,
    ) -> models.DeploymentStarted:
        """Deploy a commit, or the head of the tracked branch.

        `operation` is `deploy`, `rebuild` (without caches) or `restart` (publish the live release again).
        """
        return await self._transport.call(
            Call(
                "POST",
                f"/v1/projects/{path_part(name)}/deploy",
                query={"wait": wait},
                body=models.DeployInput(operation=operation, commit_sha=commit_sha),
                key=idempotency_key,
                wait_s=wait or 0,
            ),
            models.DeploymentStarted,
        )

    async def redeploy_project(
        self, name: str, *, wait: int | None = None, idempotency_key: str | None = None
    ) -> models.DeploymentStarted:
        """Build the commit of the live release again."""
        return await self._transport.call(
            Call(
                "POST",
                f"/v1/projects/{path_part(name)}/redeploy",
                query={"wait": wait},
                key=idempotency_key,
                wait_s=wait or 0,
            ),
            models.DeploymentStarted,
        )

    async def roll_project_back(
        self, name: str, *, deployment_uuid: str, wait: int | None = None, idempotency_key: str | None = None
    ) -> models.DeploymentRef:
        """Publish an earlier release again as a new deployment, without a build."""
        return await self._transport.call(
            Call(
                "POST",
                f"/v1/projects/{path_part(name)}/rollback",
                query={"wait": wait},
                body=models.RollbackInput(deployment_uuid=deployment_uuid),
                key=idempotency_key,
                wait_s=wait or 0,
            ),
            models.DeploymentRef,
        )

    async def list(
        self, name: str, *, cursor: str | None = None, limit: int | None = None
    ) -> CursorPage[models.DeploymentOut]:
        """List a project's deployments, newest first. `enable` is true for the live one."""
        return await self._transport.call(
            Call("GET", f"/v1/projects/{path_part(name)}/deployments", query={"cursor": cursor, "limit": limit}),
            CursorPage[models.DeploymentOut],
        )

    async def read_status(self, uuid: str) -> models.DeploymentStatusInfo:
        """Return the status of a deployment; `queuePosition` counts from 1."""
        return await self._transport.call(
            Call("GET", f"/v1/deployments/{path_part(uuid)}/status"), models.DeploymentStatusInfo
        )

    def follow(self, uuid: str) -> AsyncIterator[Event]:
        """Follow a deployment as server-sent events: `log`, `status`, and finally `done`.

        The stream starts with the first line. A client that reconnects with `Last-Event-ID`, as browsers
        do, gets the lines after that event.
        """
        return self._transport.follow(Call("GET", f"/v1/deployments/{path_part(uuid)}/logs/stream"))

    async def list_previews(self, name: str) -> List[models.PreviewOut]:
        """List the previews of a project's pull requests."""
        return await self._transport.call(
            Call("GET", f"/v1/projects/{path_part(name)}/previews"), List[models.PreviewOut]
        )

    async def approve_preview(
        self,
        name: str,
        number: int | str,
        *,
        commit_sha: str | UnsetType = UNSET,
        wait: int | None = None,
        idempotency_key: str | None = None,
    ) -> models.PreviewOut:
        """Approve a build of a fork's commit, without the project's secrets.

        `commitSha` is the reviewed commit: its full id, or the 12 characters of `commitId`. If the pull
        request has another commit by now, the response is 409 and nothing is built.
        """
        return await self._transport.call(
            Call(
                "POST",
                f"/v1/projects/{path_part(name)}/previews/{path_part(number)}/approve",
                query={"wait": wait},
                body=models.ApprovePreviewInput(commit_sha=commit_sha),
                key=idempotency_key,
                wait_s=wait or 0,
            ),
            models.PreviewOut,
        )

    def iterate(self, name: str, *, limit: int | None = None) -> AsyncIterator[models.DeploymentOut]:
        """Iterate over the items of all pages of `list`."""
        return self._transport.iterate_cursors(lambda cursor: self.list(name, limit=limit, cursor=cursor))
