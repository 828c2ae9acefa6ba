"""Request and response models of the operator's routes."""

from __future__ import annotations

import json
from typing import Annotated, Literal

from pydantic import Field

from moorage.accounts.identity.users import User
from moorage.accounts.operator.disk_areas import DiskReport
from moorage.accounts.operator.machine import Process
from moorage.accounts.operator.machines import SeenMachine
from moorage.accounts.operator.tenants import Tenant
from moorage.core.http.models import Input, Output, QueryInput, optional
from moorage.core.http.paging import PageQuery
from moorage.core.jobs.queues import FailingJob, QueueDepth
from moorage.core.kit.clock import to_wire, to_wire_or_none

Search = Annotated[str, Field(max_length=200)]


class MachineMemory(Output, frozen=True):
    total_bytes: int
    available_bytes: int


class MachineDisk(Output, frozen=True):
    total_bytes: int
    free_bytes: int


class OperatorMachine(Output, frozen=True):
    name: str
    cpu_count: int
    load: list[float]
    memory: MachineMemory
    disk: MachineDisk
    uptime_s: int
    versions: dict[str, str]
    status: str
    is_this: bool
    address: str | None
    labels: dict[str, str]
    heartbeat_age_ms: int
    resources: dict[str, int]
    movable: int
    stateful: list[str]

    @classmethod
    def of(cls, seen: SeenMachine) -> OperatorMachine:
        machine, row = seen.facts, seen.row
        return cls(
            name=machine.name,
            cpu_count=machine.cpu_count,
            load=[round(each, 2) for each in machine.load],
            memory=MachineMemory(machine.memory_bytes, machine.memory_available_bytes),
            disk=MachineDisk(machine.disk_bytes, machine.disk_free_bytes),
            uptime_s=machine.uptime_s,
            versions=dict(machine.versions),
            status=seen.status,
            is_this=seen.is_this,
            address=row.address if row is not None else None,
            labels=json.loads(row.labels) if row is not None else {},
            heartbeat_age_ms=seen.age_ms,
            resources=dict(seen.resources),
            movable=seen.movable,
            stateful=list(seen.stateful),
        )


class UpdateMachineInput(Input):
    draining: bool = Field(description="Move its stateless apps to other machines, and place nothing new on it.")


class RemoveMachineQuery(QueryInput):
    lost: bool = Field(False, description="Its disks are lost for good: give up databases, volumes and repositories.")


class RemovedMachine(Output, frozen=True):
    name: str
    removed: bool


class OperatorProcess(Output, frozen=True):
    name: str
    pid: int
    running: bool
    memory_bytes: int
    cpu_ms: int
    started_at: str | None
    restarts: int

    @classmethod
    def of(cls, process: Process, now: int) -> OperatorProcess:
        return cls(
            name=process.name,
            pid=process.pid,
            running=process.is_running,
            memory_bytes=process.memory_bytes,
            cpu_ms=process.cpu_ms,
            started_at=to_wire(now - process.age_ms) if process.is_running else None,
            restarts=process.restarts,
        )


class OperatorQueue(Output, frozen=True):
    kind: str
    lane: str
    status: str
    count: int
    oldest_age_ms: int
    overdue_ms: int

    @classmethod
    def of(cls, depth: QueueDepth, now: int) -> OperatorQueue:
        is_waiting = depth.status == "queued"
        return cls(
            kind=depth.kind,
            lane=depth.lane,
            status=depth.status,
            count=depth.count,
            oldest_age_ms=max(now - depth.created_at, 0),
            overdue_ms=max(now - depth.run_at, 0) if is_waiting else 0,
        )


class OperatorQueues(Output, frozen=True):
    queued: int
    running: int
    failed: int
    items: list[OperatorQueue]

    @classmethod
    def of(cls, depths: list[QueueDepth], now: int) -> OperatorQueues:
        def total(status: str) -> int:
            return sum(each.count for each in depths if each.status == status)

        return cls(
            queued=total("queued"),
            running=total("running"),
            failed=total("failed"),
            items=[OperatorQueue.of(each, now) for each in depths],
        )


class FailingJobsQuery(PageQuery):
    state: Literal["failed", "retrying"] = "failed"


class OperatorJob(Output, frozen=True):
    id: int
    kind: str
    lane: str
    key: str | None
    status: str
    organization_id: str | None
    error: str | None
    attempts: int
    max_attempts: int
    next_attempt_at: str | None
    trace_id: str | None
    created_at: str
    updated_at: str
    can_retry: bool
    can_discard: bool

    @classmethod
    def of(cls, job: FailingJob, *, has_undo: bool) -> OperatorJob:
        org_id = json.loads(job.payload).get("org_id")
        is_queued, is_failed = job.status == "queued", job.status == "failed"
        return cls(
            id=job.id,
            kind=job.kind,
            lane=job.lane,
            key=job.key,
            status=job.status,
            organization_id=str(org_id) if org_id else None,
            error=job.last_error,
            attempts=job.attempts,
            max_attempts=job.max_attempts,
            next_attempt_at=to_wire(job.run_at) if is_queued else None,
            trace_id=job.trace_id,
            created_at=to_wire(job.created_at),
            updated_at=to_wire(job.updated_at),
            can_retry=is_queued or (is_failed and not has_undo),
            can_discard=is_failed or (is_queued and has_undo),
        )


class OperatorDisk(Output, frozen=True):
    total_bytes: int
    free_bytes: int
    reserve_bytes: int
    areas: dict[str, int]
    measured_at: str

    @classmethod
    def of(cls, report: DiskReport) -> OperatorDisk:
        return cls(
            total_bytes=report.total_bytes,
            free_bytes=report.free_bytes,
            reserve_bytes=report.reserve_bytes,
            areas=dict(report.areas),
            measured_at=to_wire(report.measured_at),
        )


class TenantsQuery(PageQuery):
    search: Search = ""


class OperatorOrganization(Output, frozen=True):
    organization_id: str
    name: str
    slug: str
    owner_email: str | None
    plan: str
    card_verified: bool
    suspended_at: str | None
    created_at: str
    resources: dict[str, int]

    @classmethod
    def of(cls, tenant: Tenant, resources: dict[str, int]) -> OperatorOrganization:
        return cls(
            organization_id=str(tenant.id),
            name=tenant.name,
            slug=tenant.slug,
            owner_email=tenant.owner,
            plan=tenant.plan,
            card_verified=tenant.card_verified,
            suspended_at=to_wire_or_none(tenant.suspended_at),
            created_at=to_wire(tenant.created_at),
            resources=resources,
        )


class OperatorOrganizationDetail(Output, frozen=True):
    organization_id: str
    name: str
    slug: str
    owner_email: str | None
    plan: str
    card_verified: bool
    suspended_at: str | None
    created_at: str
    resources: dict[str, int]
    metered: dict[str, float]

    @classmethod
    def of(cls, tenant: Tenant, resources: dict[str, int], metered: dict[str, float]) -> OperatorOrganizationDetail:
        short = OperatorOrganization.of(tenant, resources)
        return cls(**{name: getattr(short, name) for name in short.__struct_fields__}, metered=metered)


class UpdateTenantInput(Input):
    suspended: bool = optional(description="Refuse all requests to the organization.")
    plan: Literal["free", "pro"] = optional()
    card_verified: bool = optional()


class UsersQuery(PageQuery):
    search: Search = ""
    status: Literal["", "pending", "approved", "rejected"] = ""


class OperatorUser(Output, frozen=True):
    id: int
    email: str
    name: str
    approval_status: str
    suspended_at: str | None
    is_operator: bool
    created_at: str

    @classmethod
    def of(cls, user: User, *, is_operator: bool) -> OperatorUser:
        return cls(
            id=user.id,
            email=user.email,
            name=user.name,
            approval_status=user.status,
            suspended_at=to_wire_or_none(user.suspended_at),
            is_operator=is_operator,
            created_at=to_wire(user.created_at),
        )


class UpdateUserInput(Input):
    suspended: bool = optional(description="Refuse all requests of the user.")
    approved: Literal[True] = optional(description="Approve a user that awaits approval.")
