"""Models of the group operator. Generated from the OpenAPI document by `make docs`; edits are lost."""

from __future__ import annotations

from typing import Literal

import msgspec

from moorage.client.model import List, Model


class OperatorMachine(Model, kw_only=True):
    name: str
    cpu_count: int
    load: List[float]
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
    stateful: List[str]


class MachineMemory(Model, kw_only=True):
    total_bytes: int
    available_bytes: int


class MachineDisk(Model, kw_only=True):
    total_bytes: int
    free_bytes: int


class RemovedMachine(Model, kw_only=True):
    name: str
    removed: bool


class OperatorProcess(Model, kw_only=True):
    name: str
    pid: int
    running: bool
    memory_bytes: int
    cpu_ms: int
    started_at: str | None
    restarts: int


class OperatorDisk(Model, kw_only=True):
    total_bytes: int
    free_bytes: int
    reserve_bytes: int
    areas: dict[str, int]
    measured_at: str


class OperatorQueues(Model, kw_only=True):
    queued: int
    running: int
    failed: int
    items: List[OperatorQueue]


class OperatorQueue(Model, kw_only=True):
    kind: str
    lane: str
    status: str
    count: int
    oldest_age_ms: int
    overdue_ms: int


class OperatorJob(Model, kw_only=True):
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


class OperatorOrganization(Model, kw_only=True):
    organization_id: str
    name: str
    slug: str
    owner_email: str | None
    plan: str
    card_verified: bool
    suspended_at: str | None
    created_at: str
    resources: dict[str, int]


class OperatorOrganizationDetail(Model, kw_only=True):
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


class OperatorUser(Model, kw_only=True):
    id: int
    email: str
    name: str
    approval_status: str
    suspended_at: str | None
    is_operator: bool
    created_at: str


class UpdateMachineInput(Model, kw_only=True):
    # Move its stateless apps to other machines, and place nothing new on it.
    draining: bool


class UpdateTenantInput(Model, kw_only=True):
    # Refuse all requests to the organization.
    suspended: bool | msgspec.UnsetType = msgspec.UNSET
    plan: Literal["free", "pro"] | msgspec.UnsetType = msgspec.UNSET
    card_verified: bool | msgspec.UnsetType = msgspec.UNSET


class UpdateUserInput(Model, kw_only=True):
    # Refuse all requests of the user.
    suspended: bool | msgspec.UnsetType = msgspec.UNSET
    # Approve a user that awaits approval.
    approved: Literal[True] | msgspec.UnsetType = msgspec.UNSET
