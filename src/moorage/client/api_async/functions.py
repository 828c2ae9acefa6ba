"""Routes of the group Functions. Generated from the OpenAPI document by `make docs`; edits are lost."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Literal

from msgspec import UNSET, UnsetType

from moorage.client import models
from moorage.client.asynchronous import AsyncTransport
from moorage.client.exchange import Call, Upload, path_part
from moorage.client.model import List, Page
from moorage.client.streams import Event


class AsyncFunctions:
    """Methods of the group Functions."""

    def __init__(self, transport: AsyncTransport) -> None:
        self._transport = transport

    async def list(self, *, page: int | None = None, page_size: int | None = None) -> Page[models.FunctionListItem]:
        """List the organization's functions, newest first."""
        return await self._transport.call(
            Call("GET", "/v1/functions", query={"page": page, "pageSize": page_size}), Page[models.FunctionListItem]
        )

    async def create(
        self,
        *,
        name: str,
        runtime: str | UnsetType = UNSET,
        timeout: int | UnsetType = UNSET,
        memory: int | UnsetType = UNSET,
        description: str | UnsetType = UNSET,
        env: List[models.FunctionEnvVar] | UnsetType = UNSET,
        secrets: List[models.FunctionEnvVar] | UnsetType = UNSET,
        network: Literal["internet", "none"] | UnsetType = UNSET,
        raw_http: bool | UnsetType = UNSET,
        handle_options: bool | UnsetType = UNSET,
        file: Upload,
        wait: int | None = None,
        idempotency_key: str | None = None,
    ) -> models.FunctionDetail:
        """Create a function from a ZIP archive of its code.

        The archive is sent in the field `code` (or `file`). The main file is at its root or in its only top
        folder. Dependencies listed in package.json or requirements.txt are installed, unless the archive
        contains them.
        """
        return await self._transport.call(
            Call(
                "POST",
                "/v1/functions",
                query={"wait": wait},
                form={
                    "name": name,
                    "runtime": runtime,
                    "timeout": timeout,
                    "memory": memory,
                    "description": description,
                    "env": env,
                    "secrets": secrets,
                    "network": network,
                    "rawHttp": raw_http,
                    "handleOptions": handle_options,
                },
                upload=file,
                upload_field="code",
                key=idempotency_key,
                wait_s=wait or 0,
            ),
            models.FunctionDetail,
        )

    async def read_token(self) -> models.FunctionToken:
        """Return the organization's function token, masked."""
        return await self._transport.call(Call("GET", "/v1/functions/token"), models.FunctionToken)

    async def read(self, name: str) -> models.FunctionDetail:
        """Return a function with its settings."""
        return await self._transport.call(Call("GET", f"/v1/functions/{path_part(name)}"), models.FunctionDetail)

    async def update(
        self,
        name: str,
        *,
        timeout: int | UnsetType = UNSET,
        memory: int | UnsetType = UNSET,
        description: str | UnsetType | None = UNSET,
        env: List[models.FunctionEnvVar] | UnsetType = UNSET,
        secrets: List[models.FunctionSecretUpsert] | UnsetType = UNSET,
        network: Literal["internet", "none"] | UnsetType = UNSET,
        raw_http: bool | UnsetType = UNSET,
        handle_options: bool | UnsetType = UNSET,
        wait: int | None = None,
        idempotency_key: str | None = None,
    ) -> models.FunctionDetail:
        """Update the settings of a function, for calls that start after the response.

        `env` replaces all variables and `secrets` all secrets; a secret without a value keeps its stored
        value.
        """
        return await self._transport.call(
            Call(
                "PATCH",
                f"/v1/functions/{path_part(name)}",
                query={"wait": wait},
                body=models.UpdateFunctionInput(
                    timeout=timeout,
                    memory=memory,
                    description=description,
                    env=env,
                    secrets=secrets,
                    network=network,
                    raw_http=raw_http,
                    handle_options=handle_options,
                ),
                key=idempotency_key,
                wait_s=wait or 0,
            ),
            models.FunctionDetail,
        )

    async def delete(self, name: str, *, idempotency_key: str | None = None) -> None:
        """Delete a function with its code, versions, schedules and records."""
        await self._transport.call(Call("DELETE", f"/v1/functions/{path_part(name)}", key=idempotency_key), None)

    async def list_versions(self, name: str) -> List[models.FunctionVersion]:
        """List the versions of a function, newest first.

        All versions are kept until the function is deleted.
        """
        return await self._transport.call(
            Call("GET", f"/v1/functions/{path_part(name)}/versions"), List[models.FunctionVersion]
        )

    async def read_files(self, name: str, version: int | str) -> models.FunctionFiles:
        """Return the files of a version, without its dependencies.

        `text` is null for a file that is not UTF-8 text or is larger than 256 KB. There are at most 200
        files (`truncated` says that there are more) and 2 MB of text.
        """
        return await self._transport.call(
            Call("GET", f"/v1/functions/{path_part(name)}/versions/{path_part(version)}/files"), models.FunctionFiles
        )

    async def deploy(
        self, name: str, *, file: Upload, wait: int | None = None, idempotency_key: str | None = None
    ) -> models.FunctionDetail:
        """Deploy a ZIP archive as the function's next version.

        Running calls finish on the version they started on; every later call runs on the new version.
        """
        return await self._transport.call(
            Call(
                "POST",
                f"/v1/functions/{path_part(name)}/deploy",
                query={"wait": wait},
                form={},
                upload=file,
                upload_field="code",
                key=idempotency_key,
                wait_s=wait or 0,
            ),
            models.FunctionDetail,
        )

    async def roll_back(
        self, name: str, *, version: int, wait: int | None = None, idempotency_key: str | None = None
    ) -> models.FunctionDetail:
        """Make an existing version of a function its current one."""
        return await self._transport.call(
            Call(
                "POST",
                f"/v1/functions/{path_part(name)}/rollback",
                query={"wait": wait},
                body=models.FunctionRollbackInput(version=version),
                key=idempotency_key,
                wait_s=wait or 0,
            ),
            models.FunctionDetail,
        )

    async def list_secrets(self, name: str) -> List[models.SecretName]:
        """List the names of a function's secrets."""
        return await self._transport.call(
            Call("GET", f"/v1/functions/{path_part(name)}/secrets"), List[models.SecretName]
        )

    async def reveal_secret(
        self, function_name: str, *, name: str, idempotency_key: str | None = None
    ) -> models.RevealedSecret:
        """Show one secret. The caller is recorded in the activity feed."""
        return await self._transport.call(
            Call(
                "POST",
                f"/v1/functions/{path_part(function_name)}/secrets/reveal",
                body=models.RevealInput(name=name),
                key=idempotency_key,
            ),
            models.RevealedSecret,
        )

    async def invoke(
        self, name: str, *, body: models.InvokeFunctionInput, idempotency_key: str | None = None
    ) -> models.InvokeFunctionResult:
        """Run a function with any JSON value and return its result.

        The body is the payload, or an object with the single key `params`. If the function fails, the
        response is a success with the `status` `error`.
        """
        return await self._transport.call(
            Call("POST", f"/v1/functions/{path_part(name)}/invoke", body=body, key=idempotency_key),
            models.InvokeFunctionResult,
        )

    async def list_invocations(
        self, name: str, *, page: int | None = None, page_size: int | None = None
    ) -> Page[models.FunctionInvocation]:
        """List a function's invocations, newest first, with their logs.

        The newest 10,000 of the last 30 days are kept. `logsCut` means that the page has more than 20 MB of
        logs and some are left out: request a smaller page. `logsDropped` means that some or all output of
        the call was not kept; a line in `stderr` says why.
        """
        return await self._transport.call(
            Call("GET", f"/v1/functions/{path_part(name)}/invocations", query={"page": page, "pageSize": page_size}),
            Page[models.FunctionInvocation],
        )

    async def read_metrics(
        self, name: str, *, from_ms: int | None = None, to_ms: int | None = None
    ) -> models.FunctionMetrics:
        """Return invocations, errors and average latency (ms) over time.

        The response has at most 288 buckets. Without `fromMs` the range is the last 24 hours. Counters are
        kept for 90 days.
        """
        return await self._transport.call(
            Call("GET", f"/v1/functions/{path_part(name)}/metrics", query={"fromMs": from_ms, "toMs": to_ms}),
            models.FunctionMetrics,
        )

    def follow_logs(self, name: str, *, tail: int | None = None) -> AsyncIterator[Event]:
        """Follow a function live, as server-sent events.

        Each log line is a `log` event, each ended invocation an `invocation` event. `tail` is the number of
        past invocations that come first. A client that reconnects with `Last-Event-ID`, as browsers do,
        misses no event.
        """
        return self._transport.follow(Call("GET", f"/v1/functions/{path_part(name)}/logs/stream", query={"tail": tail}))

    def iterate(self, *, page_size: int | None = None) -> AsyncIterator[models.FunctionListItem]:
        """Iterate over the items of all pages of `list`."""
        return self._transport.iterate_pages(lambda page: self.list(page_size=page_size, page=page))

    def iterate_invocations(
        self, name: str, *, page_size: int | None = None
    ) -> AsyncIterator[models.FunctionInvocation]:
        """Iterate over the items of all pages of `list_invocations`."""
        return self._transport.iterate_pages(lambda page: self.list_invocations(name, page_size=page_size, page=page))
