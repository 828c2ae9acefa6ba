"""Routes of the group Projects. Generated from the OpenAPI document by `make docs`; edits are lost."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Literal

from msgspec import UNSET, UnsetType

from moorage.client import models
from moorage.client.asynchronous import AsyncTransport
from moorage.client.exchange import Call, Upload, path_part
from moorage.client.model import CursorPage, List
from moorage.client.streams import Event


class AsyncProjects:
    """Methods of the group Projects."""

    def __init__(self, transport: AsyncTransport) -> None:
        self._transport = transport

    async def list(
        self, *, cursor: str | None = None, limit: int | None = None, slug: Literal["static", "container"] | None = None
    ) -> CursorPage[models.ProjectListItem]:
        """List the organization's projects, newest first."""
        return await self._transport.call(
            Call("GET", "/v1/projects", query={"cursor": cursor, "limit": limit, "slug": slug}),
            CursorPage[models.ProjectListItem],
        )

    async def create(
        self, *, body: models.CreateProjectInput, wait: int | None = None, idempotency_key: str | None = None
    ) -> models.CreateProjectResult:
        """Create a project from a repository or an image and start its first deployment."""
        return await self._transport.call(
            Call("POST", "/v1/projects", query={"wait": wait}, body=body, key=idempotency_key, wait_s=wait or 0),
            models.CreateProjectResult,
        )

    async def check_name(self, *, name: str) -> models.NameAvailability:
        """Return whether a name is available; names are unique on the whole platform."""
        return await self._transport.call(
            Call("GET", "/v1/projects/check-name", query={"name": name}), models.NameAvailability
        )

    async def read(self, name: str) -> models.ProjectDetail:
        """Return a project with its settings, without its secrets."""
        return await self._transport.call(Call("GET", f"/v1/projects/{path_part(name)}"), models.ProjectDetail)

    async def update(
        self,
        name: str,
        *,
        public_image: str | UnsetType = UNSET,
        build_cmd: str | UnsetType = UNSET,
        start_cmd: str | UnsetType = UNSET,
        base_dir: str | UnsetType = UNSET,
        build_dir: str | UnsetType = UNSET,
        health_check_path: str | UnsetType = UNSET,
        docker_file_path: str | UnsetType = UNSET,
        docker_build_context_dir: str | UnsetType = UNSET,
        docker_build_args: dict[str, str] | UnsetType = UNSET,
        docker_build_target: str | UnsetType = UNSET,
        disk: int | UnsetType = UNSET,
        tier: models.TierInput | UnsetType = UNSET,
        auto_scaling: models.AutoScalingInput | UnsetType = UNSET,
        enable_analytics: bool | UnsetType = UNSET,
        auto_deploy: bool | UnsetType = UNSET,
        deploy_guard: bool | UnsetType = UNSET,
        env: List[models.EnvVar] | UnsetType = UNSET,
        secrets: List[models.SecretUpsert] | UnsetType = UNSET,
        wait: int | None = None,
        idempotency_key: str | None = None,
    ) -> models.ProjectDetail:
        """Change settings of a project.

        `env` replaces all variables and `secrets` all secrets; a secret without a value keeps its stored
        value. A container app is deployed again where its variables, secrets or compute change; other
        changes take effect with the next deployment.
        """
        return await self._transport.call(
            Call(
                "PATCH",
                f"/v1/projects/{path_part(name)}",
                query={"wait": wait},
                body=models.UpdateProjectInput(
                    public_image=public_image,
                    build_cmd=build_cmd,
                    start_cmd=start_cmd,
                    base_dir=base_dir,
                    build_dir=build_dir,
                    health_check_path=health_check_path,
                    docker_file_path=docker_file_path,
                    docker_build_context_dir=docker_build_context_dir,
                    docker_build_args=docker_build_args,
                    docker_build_target=docker_build_target,
                    disk=disk,
                    tier=tier,
                    auto_scaling=auto_scaling,
                    enable_analytics=enable_analytics,
                    auto_deploy=auto_deploy,
                    deploy_guard=deploy_guard,
                    env=env,
                    secrets=secrets,
                ),
                key=idempotency_key,
                wait_s=wait or 0,
            ),
            models.ProjectDetail,
        )

    async def delete(self, name: str, *, idempotency_key: str | None = None) -> models.DeletedProject:
        """Delete a project with its deployments, domains, rules and secrets."""
        return await self._transport.call(
            Call("DELETE", f"/v1/projects/{path_part(name)}", key=idempotency_key), models.DeletedProject
        )

    async def read_audit_log(
        self, name: str, *, cursor: str | None = None, limit: int | None = None
    ) -> CursorPage[models.ActivityOut]:
        """Return the audit log of a project, newest first, including its former names."""
        return await self._transport.call(
            Call("GET", f"/v1/projects/{path_part(name)}/audit-log", query={"cursor": cursor, "limit": limit}),
            CursorPage[models.ActivityOut],
        )

    async def rename(self, project_name: str, *, name: str, idempotency_key: str | None = None) -> models.ProjectDetail:
        """Rename a project. The former address redirects for a day, unless it is reused."""
        return await self._transport.call(
            Call(
                "PATCH",
                f"/v1/projects/{path_part(project_name)}/name",
                body=models.RenameInput(name=name),
                key=idempotency_key,
            ),
            models.ProjectDetail,
        )

    async def toggle(self, name: str, *, enable: bool, idempotency_key: str | None = None) -> models.ProjectDetail:
        """Disable or enable a project. The address of a disabled project answers 503."""
        return await self._transport.call(
            Call(
                "POST",
                f"/v1/projects/{path_part(name)}/toggle",
                body=models.ToggleInput(enable=enable),
                key=idempotency_key,
            ),
            models.ProjectDetail,
        )

    async def list_secrets(self, name: str) -> List[models.SecretName]:
        """List the names of a project's secrets."""
        return await self._transport.call(
            Call("GET", f"/v1/projects/{path_part(name)}/secrets"), List[models.SecretName]
        )

    async def reveal_secret(
        self, project_name: str, *, name: str, idempotency_key: str | None = None
    ) -> models.RevealedSecret:
        """Return the value of one secret and record the caller in the project's audit log.

        A secret of a database link contains the database's password; only admins may read it (else 403).
        """
        return await self._transport.call(
            Call(
                "POST",
                f"/v1/projects/{path_part(project_name)}/secrets/reveal",
                body=models.RevealInput(name=name),
                key=idempotency_key,
            ),
            models.RevealedSecret,
        )

    async def upload_site(
        self, *, name: str, file: Upload, wait: int | None = None, idempotency_key: str | None = None
    ) -> models.UploadResult:
        """Publish a ZIP archive, sent in the field `staticFiles`, as a static site.

        An archive for an existing uploaded project becomes its next deployment. `uploadId` is the uuid of
        that deployment and works with every route of deployments.
        """
        return await self._transport.call(
            Call(
                "POST",
                "/v1/projects/static-upload",
                query={"wait": wait},
                form={"name": name},
                upload=file,
                upload_field="staticFiles",
                key=idempotency_key,
                wait_s=wait or 0,
            ),
            models.UploadResult,
        )

    async def detect(
        self,
        *,
        repository_name: str,
        branch: str | UnsetType = UNSET,
        slug: Literal["auto", "static", "container"] | UnsetType = UNSET,
        base_dir: str | UnsetType = UNSET,
        start_cmd: str | UnsetType = UNSET,
        idempotency_key: str | None = None,
    ) -> models.DetectedPlan:
        """Detect the kind and the commands of a repository, without creating a project.

        The plan is that of `moorage detect`: the head of the branch is read, and nothing of it is executed.
        `problem` says why the repository cannot be deployed with these settings; then there is no plan.
        """
        return await self._transport.call(
            Call(
                "POST",
                "/v1/projects/detect",
                body=models.DetectInput(
                    repository_name=repository_name, branch=branch, slug=slug, base_dir=base_dir, start_cmd=start_cmd
                ),
                key=idempotency_key,
            ),
            models.DetectedPlan,
        )

    async def read_analytics(
        self, name: str, *, range: Literal["24h", "7d", "30d", "90d"] | None = None
    ) -> models.ProjectAnalytics:
        """Return a project's requests, visitors, bytes, top paths and referrers.

        `range` is `24h` (in hours), `7d`, `30d` or `90d` (in days, UTC); the current hour or day is the
        last. A visitor counts once a day: no cookie is set and no IP address is stored, so visitors are not
        recognized on another day. Self-declared bots count as requests, not as visitors. The top lists
        cover whole days and have 20 entries each, and `other` for the rest. Without `enableAnalytics`,
        `enabled` is false and there are no figures.
        """
        return await self._transport.call(
            Call("GET", f"/v1/projects/{path_part(name)}/analytics", query={"range": range}), models.ProjectAnalytics
        )

    async def list_repositories(self) -> List[models.RepositoryItem]:
        """List the organization's newest 200 repositories of the built-in git server."""
        return await self._transport.call(Call("GET", "/v1/repositories"), List[models.RepositoryItem])

    async def read_app_logs(
        self,
        name: str,
        *,
        since: str | None = None,
        until: str | None = None,
        search: str | None = None,
        limit: int | None = None,
    ) -> models.AppLogLines:
        """Return the newest log lines of a project's app, oldest first.

        `since` and `until` are times (`2026-01-31T12:00:00Z`), epoch milliseconds, or ages (`15m`, `2h`,
        `7d`); both are inclusive. `search` matches a text in the line, ignoring case. `limit` is 100 by
        default, at most 1000. `stream` is `stdout`, `stderr`, or `system` for messages of the platform
        about the app. Lines are kept across deployments, for 7 days and up to 100 MB.
        """
        return await self._transport.call(
            Call(
                "GET",
                f"/v1/projects/{path_part(name)}/logs",
                query={"since": since, "until": until, "search": search, "limit": limit},
            ),
            models.AppLogLines,
        )

    def follow_app_logs(self, name: str, *, tail: int | None = None) -> AsyncIterator[Event]:
        """Follow the output of a project's app as server-sent events, one `log` per line.

        The stream starts with the newest 100 lines, or as many as `tail` says. A client that reconnects
        with `Last-Event-ID`, as browsers do, gets the lines after that event instead.
        """
        return self._transport.follow(Call("GET", f"/v1/projects/{path_part(name)}/logs/stream", query={"tail": tail}))

    async def read_app_metrics(
        self, name: str, *, range: Literal["1h", "6h", "24h", "7d"] | None = None
    ) -> models.ProjectMetrics:
        """Return usage, requests and latency of a container project over time.

        `range` is `1h` (buckets of one minute), `6h` (two minutes), `24h` (five minutes) or `7d` (one hour,
        UTC); the last bucket is the current one, and empty buckets are included. `cpuPercent` is relative
        to the tier's limit for the replicas that ran, null where none ran; `memoryMiB` and `replicas` are
        maxima. `p50Ms` and `p95Ms` are null without requests, and exclude WebSockets. All figures of a
        static project are zero.
        """
        return await self._transport.call(
            Call("GET", f"/v1/projects/{path_part(name)}/metrics", query={"range": range}), models.ProjectMetrics
        )

    async def run_command(
        self, name: str, *, command: str, timeout_seconds: int | UnsetType = UNSET, idempotency_key: str | None = None
    ) -> models.CommandResult:
        """Run a command in a fresh sandbox of the live release, with its environment.

        With `Accept: text/event-stream` the answer is a stream: `output` events with `stream` and `text`
        while the command prints, and one `exit` with `exitCode` and `reason` at the end. The command is
        killed when the client disconnects.
        """
        return await self._transport.call(
            Call(
                "POST",
                f"/v1/projects/{path_part(name)}/exec",
                body=models.RunCommandInput(command=command, timeout_seconds=timeout_seconds),
                key=idempotency_key,
            ),
            models.CommandResult,
        )

    def iterate(
        self, *, limit: int | None = None, slug: Literal["static", "container"] | None = None
    ) -> AsyncIterator[models.ProjectListItem]:
        """Iterate over the items of all pages of `list`."""
        return self._transport.iterate_cursors(lambda cursor: self.list(limit=limit, slug=slug, cursor=cursor))

    def iterate_audit_log(self, name: str, *, limit: int | None = None) -> AsyncIterator[models.ActivityOut]:
        """Iterate over the items of all pages of `read_audit_log`."""
        return self._transport.iterate_cursors(lambda cursor: self.read_audit_log(name, limit=limit, cursor=cursor))
