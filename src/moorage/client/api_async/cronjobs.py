"""Routes of the group Cronjobs. Generated from the OpenAPI document by `make docs`; edits are lost."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Literal

from msgspec import UNSET, UnsetType

from moorage.client import models
from moorage.client.asynchronous import AsyncTransport
from moorage.client.exchange import Call, path_part
from moorage.client.model import List, Page
from moorage.client.streams import Event


class AsyncCronjobs:
    """Methods of the group Cronjobs."""

    def __init__(self, transport: AsyncTransport) -> None:
        self._transport = transport

    async def list(self, *, page: int | None = None, page_size: int | None = None) -> Page[models.CronjobListItem]:
        """List the organization's cronjobs, newest first."""
        return await self._transport.call(
            Call("GET", "/v1/cronjobs", query={"page": page, "pageSize": page_size}), Page[models.CronjobListItem]
        )

    async def create(
        self,
        *,
        name: str,
        image_source: Literal["codehost", "github", "public_image"] | UnsetType = UNSET,
        cron_schedule: str,
        region: str | UnsetType = UNSET,
        instance_type: Literal["micro", "mini", "large", "xlarge"] | UnsetType = UNSET,
        repository_name: str | UnsetType = UNSET,
        branch: str | UnsetType = UNSET,
        is_public: bool | UnsetType = UNSET,
        language: Literal["nodejs", "python", "go", "docker"] | UnsetType = UNSET,
        base_dir: str | UnsetType = UNSET,
        build_cmd: str | UnsetType = UNSET,
        start_cmd: str | UnsetType = UNSET,
        command: str | UnsetType = UNSET,
        dockerfile_path: str | UnsetType = UNSET,
        docker_build_context_dir: str | UnsetType = UNSET,
        docker_build_args: dict[str, str] | UnsetType = UNSET,
        docker_build_target: str | UnsetType = UNSET,
        auto_deploy: bool | UnsetType = UNSET,
        public_image: str | UnsetType = UNSET,
        env: List[models.EnvVar] | UnsetType = UNSET,
        secrets: List[models.EnvVar] | UnsetType = UNSET,
        wait: int | None = None,
        idempotency_key: str | None = None,
    ) -> models.CronjobMutationResult:
        """Create a cronjob from a repository or a public image.

        A repository is built first; `deploymentUuid` names that build. `cronSchedule` is a cron expression
        of five fields or a name such as `@hourly`, in UTC.
        """
        return await self._transport.call(
            Call(
                "POST",
                "/v1/cronjobs",
                query={"wait": wait},
                body=models.CreateCronjobInput(
                    name=name,
                    image_source=image_source,
                    cron_schedule=cron_schedule,
                    region=region,
                    instance_type=instance_type,
                    repository_name=repository_name,
                    branch=branch,
                    is_public=is_public,
                    language=language,
                    base_dir=base_dir,
                    build_cmd=build_cmd,
                    start_cmd=start_cmd,
                    command=command,
                    dockerfile_path=dockerfile_path,
                    docker_build_context_dir=docker_build_context_dir,
                    docker_build_args=docker_build_args,
                    docker_build_target=docker_build_target,
                    auto_deploy=auto_deploy,
                    public_image=public_image,
                    env=env,
                    secrets=secrets,
                ),
                key=idempotency_key,
                wait_s=wait or 0,
            ),
            models.CronjobMutationResult,
        )

    async def read(self, name: str) -> models.CronjobDetail:
        """Return a cronjob with its settings; secrets are never part of it."""
        return await self._transport.call(Call("GET", f"/v1/cronjobs/{path_part(name)}"), models.CronjobDetail)

    async def update(
        self,
        name: str,
        *,
        cron_schedule: str | UnsetType = UNSET,
        instance_type: Literal["micro", "mini", "large", "xlarge"] | UnsetType = UNSET,
        branch: str | UnsetType = UNSET,
        language: Literal["nodejs", "python", "go", "docker"] | UnsetType = UNSET,
        base_dir: str | UnsetType = UNSET,
        build_cmd: str | UnsetType = UNSET,
        start_cmd: str | UnsetType = UNSET,
        dockerfile_path: str | UnsetType = UNSET,
        docker_build_context_dir: str | UnsetType = UNSET,
        docker_build_args: dict[str, str] | UnsetType = UNSET,
        docker_build_target: str | UnsetType = UNSET,
        auto_deploy: bool | UnsetType = UNSET,
        public_image: str | UnsetType = UNSET,
        command: str | UnsetType = UNSET,
        env: List[models.EnvVar] | UnsetType = UNSET,
        secrets: List[models.SecretUpsert] | UnsetType = UNSET,
        wait: int | None = None,
        idempotency_key: str | None = None,
    ) -> models.CronjobMutationResult:
        """Change a cronjob; a change of its source or build settings starts a build.

        Runs use the previous build until the new one succeeds. `env` replaces all variables and `secrets`
        all secrets; a secret without a value keeps its value.
        """
        return await self._transport.call(
            Call(
                "PATCH",
                f"/v1/cronjobs/{path_part(name)}",
                query={"wait": wait},
                body=models.UpdateCronjobInput(
                    cron_schedule=cron_schedule,
                    instance_type=instance_type,
                    branch=branch,
                    language=language,
                    base_dir=base_dir,
                    build_cmd=build_cmd,
                    start_cmd=start_cmd,
                    dockerfile_path=dockerfile_path,
                    docker_build_context_dir=docker_build_context_dir,
                    docker_build_args=docker_build_args,
                    docker_build_target=docker_build_target,
                    auto_deploy=auto_deploy,
                    public_image=public_image,
                    command=command,
                    env=env,
                    secrets=secrets,
                ),
                key=idempotency_key,
                wait_s=wait or 0,
            ),
            models.CronjobMutationResult,
        )

    async def delete(self, name: str, *, wait: int | None = None, idempotency_key: str | None = None) -> None:
        """Delete a cronjob with its runs and their logs. A running run is stopped."""
        await self._transport.call(
            Call(
                "DELETE", f"/v1/cronjobs/{path_part(name)}", query={"wait": wait}, key=idempotency_key, wait_s=wait or 0
            ),
            None,
        )

    async def list_executions(
        self, name: str, *, page: int | None = None, page_size: int | None = None
    ) -> Page[models.CronjobExecution]:
        """List the runs of a cronjob, newest first."""
        return await self._transport.call(
            Call("GET", f"/v1/cronjobs/{path_part(name)}/executions", query={"page": page, "pageSize": page_size}),
            Page[models.CronjobExecution],
        )

    async def read_build_logs(self, name: str, uuid: str) -> models.BuildLogs:
        """Return the log and the status of a cronjob's build, by its `deploymentUuid`."""
        return await self._transport.call(
            Call("GET", f"/v1/cronjobs/{path_part(name)}/builds/{path_part(uuid)}/logs"), models.BuildLogs
        )

    async def pause(self, name: str, *, idempotency_key: str | None = None) -> models.CronjobMutationResult:
        """Stop scheduled runs. A running run continues, and `trigger` still works."""
        return await self._transport.call(
            Call("POST", f"/v1/cronjobs/{path_part(name)}/pause", key=idempotency_key), models.CronjobMutationResult
        )

    async def resume(self, name: str, *, idempotency_key: str | None = None) -> models.CronjobMutationResult:
        """Start scheduled runs again, from now on."""
        return await self._transport.call(
            Call("POST", f"/v1/cronjobs/{path_part(name)}/resume", key=idempotency_key), models.CronjobMutationResult
        )

    async def trigger(
        self, name: str, *, wait: int | None = None, idempotency_key: str | None = None
    ) -> models.TriggerCronjobResult:
        """Run a cronjob now. The next scheduled run does not change."""
        return await self._transport.call(
            Call(
                "POST",
                f"/v1/cronjobs/{path_part(name)}/trigger",
                query={"wait": wait},
                key=idempotency_key,
                wait_s=wait or 0,
            ),
            models.TriggerCronjobResult,
        )

    async def read_execution_logs(self, uuid: str) -> models.ExecutionLogs:
        """Return the log of a run, as one text and as lines.

        `stream` is `stdout`, `stderr`, or `system` for messages of the platform. The newest 10 MB are kept.
        """
        return await self._transport.call(
            Call("GET", f"/v1/cronjobs/executions/{path_part(uuid)}/logs"), models.ExecutionLogs
        )

    def follow_execution(self, uuid: str) -> AsyncIterator[Event]:
        """Follow a run as server-sent events.

        The events are `log` for each line, `status` for each change, and `done` at the end. The stream
        starts with the first line. A client that reconnects sends `Last-Event-ID`, as browsers do, and gets
        only the lines after it.
        """
        return self._transport.follow(Call("GET", f"/v1/cronjobs/executions/{path_part(uuid)}/logs/stream"))

    def iterate(self, *, page_size: int | None = None) -> AsyncIterator[models.CronjobListItem]:
        """Iterate over the items of all pages of `list`."""
        return self._transport.iterate_pages(lambda page: self.list(page_size=page_size, page=page))

    def iterate_executions(self, name: str, *, page_size: int | None = None) -> AsyncIterator[models.CronjobExecution]:
        """Iterate over the items of all pages of `list_executions`."""
        return self._transport.iterate_pages(lambda page: self.list_executions(name, page_size=page_size, page=page))
