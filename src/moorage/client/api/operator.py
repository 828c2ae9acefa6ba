"""Routes of the group Operator. Generated from the OpenAPI document by `make docs`; edits are lost."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

from msgspec import UNSET, UnsetType

from moorage.client.blocking import BlockingTransport
from moorage.client.exchange import Call, path_part
from moorage.client.model import CursorPage, List, Page
from moorage.client.models.operator import (
    OperatorDisk,
    OperatorJob,
    OperatorMachine,
    OperatorOrganization,
    OperatorOrganizationDetail,
    OperatorProcess,
    OperatorQueues,
    OperatorUser,
    RemovedMachine,
    UpdateMachineInput,
    UpdateTenantInput,
    UpdateUserInput,
)
from moorage.client.models.organizations import ActivityOut


class Operator:
    """Methods of the group Operator."""

    def __init__(self, transport: BlockingTransport) -> None:
        self._transport = transport

    def list_machines(self) -> List[OperatorMachine]:
        """List the machines of the platform: CPUs, load averages, memory, disk, versions, and what they run.

        `status` is `active`, `draining` or `gone`. Figures of other machines are those of their last
        heartbeat.
        """
        result: List[OperatorMachine] = self._transport.call(
            Call("GET", "/v1/operator/machines"), List[OperatorMachine]
        )
        return result

    def update_machine(self, name: str, *, draining: bool, idempotency_key: str | None = None) -> OperatorMachine:
        """Drain a machine, or undo that.

        Each stateless app starts elsewhere before its replicas here are stopped, without a failed request.
        Databases and apps with volumes stay, because their data is on the machine.
        """
        result: OperatorMachine = self._transport.call(
            Call(
                "PATCH",
                f"/v1/operator/machines/{path_part(name)}",
                body=UpdateMachineInput(draining=draining),
                key=idempotency_key,
            ),
            OperatorMachine,
        )
        return result

    def remove_machine(
        self, name: str, *, lost: bool | None = None, idempotency_key: str | None = None
    ) -> RemovedMachine:
        """Forget a machine that is gone. Refused while it runs.

        Also refused while it has databases, volumes or repositories, unless `lost` says that they are lost
        for good.
        """
        result: RemovedMachine = self._transport.call(
            Call("DELETE", f"/v1/operator/machines/{path_part(name)}", query={"lost": lost}, key=idempotency_key),
            RemovedMachine,
        )
        return result

    def list_processes(self) -> List[OperatorProcess]:
        """List the platform's processes on this machine.

        `cpuMs` is the CPU time since `startedAt`, without child processes; `restarts` counts since the
        supervisor started.
        """
        result: List[OperatorProcess] = self._transport.call(
            Call("GET", "/v1/operator/processes"), List[OperatorProcess]
        )
        return result

    def read_disk(self) -> OperatorDisk:
        """Return the size of the data folder by area, at most five minutes old, and the free space.

        Backups of databases are part of `artifacts`. Nothing is stored while less than `reserveBytes` are
        free.
        """
        result: OperatorDisk = self._transport.call(Call("GET", "/v1/operator/disk"), OperatorDisk)
        return result

    def list_activity(self, *, cursor: str | None = None, limit: int | None = None) -> CursorPage[ActivityOut]:
        """Return the activity of operators, newest first."""
        result: CursorPage[ActivityOut] = self._transport.call(
            Call("GET", "/v1/operator/activity", query={"cursor": cursor, "limit": limit}), CursorPage[ActivityOut]
        )
        return result

    def list_queues(self) -> OperatorQueues:
        """Return the number of queued, running and failed jobs by kind and lane.

        `oldestAgeMs` is the age of the oldest one; `overdueMs` says how long the first queued job is due.
        """
        result: OperatorQueues = self._transport.call(Call("GET", "/v1/operator/queues"), OperatorQueues)
        return result

    def list_failing_jobs(
        self,
        *,
        page: int | None = None,
        page_size: int | None = None,
        state: Literal["failed", "retrying"] | None = None,
    ) -> Page[OperatorJob]:
        """List jobs that failed (`state=failed`), or wait for another attempt after an error
        (`state=retrying`).

        `canRetry` and `canDiscard` say what is safe: a failed job that has marked its resource as failed is
        not run again, and a queued one whose resource would stay between two states is not discarded.
        """
        result: Page[OperatorJob] = self._transport.call(
            Call("GET", "/v1/operator/jobs", query={"page": page, "pageSize": page_size, "state": state}),
            Page[OperatorJob],
        )
        return result

    def retry_job(self, job_id: int | str, *, idempotency_key: str | None = None) -> OperatorJob:
        """Run a failed or waiting job now."""
        result: OperatorJob = self._transport.call(
            Call("POST", f"/v1/operator/jobs/{path_part(job_id)}/retry", key=idempotency_key), OperatorJob
        )
        return result

    def discard_job(self, job_id: int | str, *, idempotency_key: str | None = None) -> None:
        """Remove a failed job from the list, or end a waiting one as failed."""
        self._transport.call(Call("DELETE", f"/v1/operator/jobs/{path_part(job_id)}", key=idempotency_key), None)

    def list_tenants(
        self, *, page: int | None = None, page_size: int | None = None, search: str | None = None
    ) -> Page[OperatorOrganization]:
        """List the organizations of the platform, newest first.

        `search` matches name, slug, id and the owner's mail address.
        """
        result: Page[OperatorOrganization] = self._transport.call(
            Call("GET", "/v1/operator/organizations", query={"page": page, "pageSize": page_size, "search": search}),
            Page[OperatorOrganization],
        )
        return result

    def read_tenant(self, organization_id: int | str) -> OperatorOrganizationDetail:
        """Return an organization with its resources and its metered usage of this month."""
        result: OperatorOrganizationDetail = self._transport.call(
            Call("GET", f"/v1/operator/organizations/{path_part(organization_id)}"), OperatorOrganizationDetail
        )
        return result

    def update_tenant(
        self,
        organization_id: int | str,
        *,
        suspended: bool | UnsetType = UNSET,
        plan: Literal["free", "pro"] | UnsetType = UNSET,
        card_verified: bool | UnsetType = UNSET,
        idempotency_key: str | None = None,
    ) -> OperatorOrganizationDetail:
        """Suspend an organization, lift that, or set its plan or card status.

        Requests to a suspended organization get 403. Its apps, sites and functions keep running.
        """
        result: OperatorOrganizationDetail = self._transport.call(
            Call(
                "PATCH",
                f"/v1/operator/organizations/{path_part(organization_id)}",
                body=UpdateTenantInput(suspended=suspended, plan=plan, card_verified=card_verified),
                key=idempotency_key,
            ),
            OperatorOrganizationDetail,
        )
        return result

    def list_users(
        self,
        *,
        page: int | None = None,
        page_size: int | None = None,
        search: str | None = None,
        status: Literal["", "pending", "approved", "rejected"] | None = None,
    ) -> Page[OperatorUser]:
        """List the users of the platform, newest first; `status=pending` are those that await approval."""
        result: Page[OperatorUser] = self._transport.call(
            Call(
                "GET",
                "/v1/operator/users",
                query={"page": page, "pageSize": page_size, "search": search, "status": status},
            ),
            Page[OperatorUser],
        )
        return result

    def update_user(
        self,
        user_id: int | str,
        *,
        suspended: bool | UnsetType = UNSET,
        approved: Literal[True] | UnsetType = UNSET,
        idempotency_key: str | None = None,
    ) -> OperatorUser:
        """Approve a user, suspend one, or lift that. Operators cannot be suspended."""
        result: OperatorUser = self._transport.call(
            Call(
                "PATCH",
                f"/v1/operator/users/{path_part(user_id)}",
                body=UpdateUserInput(suspended=suspended, approved=approved),
                key=idempotency_key,
            ),
            OperatorUser,
        )
        return result

    def iterate_activity(self, *, limit: int | None = None) -> Iterator[ActivityOut]:
        """Iterate over the items of all pages of `list_activity`."""

        def fetch(cursor: str | None) -> CursorPage[ActivityOut]:
            return self.list_activity(limit=limit, cursor=cursor)

        return self._transport.iterate_cursors(fetch)

    def iterate_failing_jobs(
        self, *, page_size: int | None = None, state: Literal["failed", "retrying"] | None = None
    ) -> Iterator[OperatorJob]:
        """Iterate over the items of all pages of `list_failing_jobs`."""

        def fetch(page: int) -> Page[OperatorJob]:
            return self.list_failing_jobs(page_size=page_size, state=state, page=page)

        return self._transport.iterate_pages(fetch)

    def iterate_tenants(
        self, *, page_size: int | None = None, search: str | None = None
    ) -> Iterator[OperatorOrganization]:
        """Iterate over the items of all pages of `list_tenants`."""

        def fetch(page: int) -> Page[OperatorOrganization]:
            return self.list_tenants(page_size=page_size, search=search, page=page)

        return self._transport.iterate_pages(fetch)

    def iterate_users(
        self,
        *,
        page_size: int | None = None,
        search: str | None = None,
        status: Literal["", "pending", "approved", "rejected"] | None = None,
    ) -> Iterator[OperatorUser]:
        """Iterate over the items of all pages of `list_users`."""

        def fetch(page: int) -> Page[OperatorUser]:
            return self.list_users(page_size=page_size, search=search, status=status, page=page)

        return self._transport.iterate_pages(fetch)
