"""Routes of the group Operator. Generated from the OpenAPI document by `make docs`; edits are lost."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

from msgspec import UNSET, UnsetType

from moorage.client import models
from moorage.client.blocking import BlockingTransport
from moorage.client.exchange import Call, path_part
from moorage.client.model import CursorPage, List, Page


class Operator:
    """Methods of the group Operator."""

    def __init__(self, transport: BlockingTransport) -> None:
        self._transport = transport

    def list_machines(self) -> List[models.OperatorMachine]:
        """List the machines of the platform: CPUs, load averages, memory, disk, versions, and what they run.

        `status` is `active`, `draining` or `gone`. Figures of other machines are those of their last
        heartbeat.
        """
        return self._transport.call(Call("GET", "/v1/operator/machines"), List[models.OperatorMachine])

    def update_machine(
        self, name: str, *, draining: bool, idempotency_key: str | None = None
    ) -> models.OperatorMachine:
        """Drain a machine, or undo that.

        Each stateless app starts elsewhere before its replicas here are stopped, without a failed request.
        Databases and apps with volumes stay, because their data is on the machine.
        """
        return self._transport.call(
            Call(
                "PATCH",
                f"/v1/operator/machines/{path_part(name)}",
                body=models.UpdateMachineInput(draining=draining),
                key=idempotency_key,
            ),
            models.OperatorMachine,
        )

    def remove_machine(
        self, name: str, *, lost: bool | None = None, idempotency_key: str | None = None
    ) -> models.RemovedMachine:
        """Forget a machine that is gone. Refused while it runs.

        Also refused while it has databases, volumes or repositories, unless `lost` says that they are lost
        for good.
        """
        return self._transport.call(
            Call("DELETE", f"/v1/operator/machines/{path_part(name)}", query={"lost": lost}, key=idempotency_key),
            models.RemovedMachine,
        )

    def list_processes(self) -> List[models.OperatorProcess]:
        """List the platform's processes on this machine.

        `cpuMs` is the CPU time since `startedAt`, without child processes; `restarts` counts since the
        supervisor started.
        """
        return self._transport.call(Call("GET", "/v1/operator/processes"), List[models.OperatorProcess])

    def read_disk(self) -> models.OperatorDisk:
        """Return the size of the data folder by area, at most five minutes old, and the free space.

        Backups of databases are part of `artifacts`. Nothing is stored while less than `reserveBytes` are
        free.
        """
        return self._transport.call(Call("GET", "/v1/operator/disk"), models.OperatorDisk)

    def list_activity(self, *, cursor: str | None = None, limit: int | None = None) -> CursorPage[models.ActivityOut]:
        """Return the activity of operators, newest first."""
        return self._transport.call(
            Call("GET", "/v1/operator/activity", query={"cursor": cursor, "limit": limit}),
            CursorPage[models.ActivityOut],
        )

    def list_queues(self) -> models.OperatorQueues:
        """Return the number of queued, running and failed jobs by kind and lane.

        `oldestAgeMs` is the age of the oldest one; `overdueMs` says how long the first queued job is due.
        """
        return self._transport.call(Call("GET", "/v1/operator/queues"), models.OperatorQueues)

    def list_failing_jobs(
        self,
        *,
        page: int | None = None,
        page_size: int | None = None,
        state: Literal["failed", "retrying"] | None = None,
    ) -> Page[models.OperatorJob]:
        """List jobs that failed (`state=failed`), or wait for another attempt after an error
        (`state=retrying`).

        `canRetry` and `canDiscard` say what is safe: a failed job that has marked its resource as failed is
        not run again, and a queued one whose resource would stay between two states is not discarded.
        """
        return self._transport.call(
            Call("GET", "/v1/operator/jobs", query={"page": page, "pageSize": page_size, "state": state}),
            Page[models.OperatorJob],
        )

    def retry_job(self, job_id: int | str, *, idempotency_key: str | None = None) -> models.OperatorJob:
        """Run a failed or waiting job now."""
        return self._transport.call(
            Call("POST", f"/v1/operator/jobs/{path_part(job_id)}/retry", key=idempotency_key), models.OperatorJob
        )

    def discard_job(self, job_id: int | str, *, idempotency_key: str | None = None) -> None:
        """Remove a failed job from the list, or end a waiting one as failed."""
        self._transport.call(Call("DELETE", f"/v1/operator/jobs/{path_part(job_id)}", key=idempotency_key), None)

    def list_tenants(
        self, *, page: int | None = None, page_size: int | None = None, search: str | None = None
    ) -> Page[models.OperatorOrganization]:
        """List the organizations of the platform, newest first.

        `search` matches name, slug, id and the owner's mail address.
        """
        return self._transport.call(
            Call("GET", "/v1/operator/organizations", query={"page": page, "pageSize": page_size, "search": search}),
            Page[models.OperatorOrganization],
        )

    def read_tenant(self, organization_id: int | str) -> models.OperatorOrganizationDetail:
        """Return an organization with its resources and its metered usage of this month."""
        return self._transport.call(
            Call("GET", f"/v1/operator/organizations/{path_part(organization_id)}"), models.OperatorOrganizationDetail
        )

    def update_tenant(
        self,
        organization_id: int | str,
        *,
        suspended: bool | UnsetType = UNSET,
        plan: Literal["free", "pro"] | UnsetType = UNSET,
        card_verified: bool | UnsetType = UNSET,
        idempotency_key: str | None = None,
    ) -> models.OperatorOrganizationDetail:
        """Suspend an organization, lift that, or set its plan or card status.

        Requests to a suspended organization get 403. Its apps, sites and functions keep running.
        """
        return self._transport.call(
            Call(
                "PATCH",
                f"/v1/operator/organizations/{path_part(organization_id)}",
                body=models.UpdateTenantInput(suspended=suspended, plan=plan, card_verified=card_verified),
                key=idempotency_key,
            ),
            models.OperatorOrganizationDetail,
        )

    def list_users(
        self,
        *,
        page: int | None = None,
        page_size: int | None = None,
        search: str | None = None,
        status: Literal["", "pending", "approved", "rejected"] | None = None,
    ) -> Page[models.OperatorUser]:
        """List the users of the platform, newest first; `status=pending` are those that await approval."""
        return self._transport.call(
            Call(
                "GET",
                "/v1/operator/users",
                query={"page": page, "pageSize": page_size, "search": search, "status": status},
            ),
            Page[models.OperatorUser],
        )

    def update_user(
        self,
        user_id: int | str,
        *,
        suspended: bool | UnsetType = UNSET,
        approved: Literal[True] | UnsetType = UNSET,
        idempotency_key: str | None = None,
    ) -> models.OperatorUser:
        """Approve a user, suspend one, or lift that. Operators cannot be suspended."""
        return self._transport.call(
            Call(
                "PATCH",
                f"/v1/operator/users/{path_part(user_id)}",
                body=models.UpdateUserInput(suspended=suspended, approved=approved),
                key=idempotency_key,
            ),
            models.OperatorUser,
        )

    def iterate_activity(self, *, limit: int | None = None) -> Iterator[models.ActivityOut]:
        """Iterate over the items of all pages of `list_activity`."""
        return self._transport.iterate_cursors(lambda cursor: self.list_activity(limit=limit, cursor=cursor))

    def iterate_failing_jobs(
        self, *, page_size: int | None = None, state: Literal["failed", "retrying"] | None = None
    ) -> Iterator[models.OperatorJob]:
        """Iterate over the items of all pages of `list_failing_jobs`."""
        return self._transport.iterate_pages(
            lambda page: self.list_failing_jobs(page_size=page_size, state=state, page=page)
        )

    def iterate_tenants(
        self, *, page_size: int | None = None, search: str | None = None
    ) -> Iterator[models.OperatorOrganization]:
        """Iterate over the items of all pages of `list_tenants`."""
        return self._transport.iterate_pages(
            lambda page: self.list_tenants(page_size=page_size, search=search, page=page)
        )

    def iterate_users(
        self,
        *,
        page_size: int | None = None,
        search: str | None = None,
        status: Literal["", "pending", "approved", "rejected"] | None = None,
    ) -> Iterator[models.OperatorUser]:
        """Iterate over the items of all pages of `list_users`."""
        return self._transport.iterate_pages(
            lambda page: self.list_users(page_size=page_size, search=search, status=status, page=page)
        )
