"""Models of the group organizations. Generated from the OpenAPI document by `make docs`; edits are lost."""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from moorage.client.model import Model


class OrganizationOut(Model, kw_only=True):
    organization_id: str
    name: str
    slug: str
    role: str
    plan: str
    card_verified: bool
    created_at: str
    create_on_push: bool


class MemberOut(Model, kw_only=True):
    user_id: int
    email: str
    name: str
    role: str
    joined_at: str


class InvitationOut(Model, kw_only=True):
    id: int
    email: str
    role: str
    organization_id: str
    organization_name: str
    status: str
    created_at: str
    expires_at: str


class WebhookSecret(Model, kw_only=True):
    secret: str


class BillingStatus(Model, kw_only=True):
    organization_id: str
    provider: str
    plan: str
    paid: bool
    card_verified: bool
    portal_url: str | None
    checkout_reference: str | None


class Limits(Model, kw_only=True):
    plan: str
    requests_per_minute: int
    limits: dict[str, int | None]


class Usage(Model, kw_only=True):
    plan: str
    usage: dict[str, Used]
    metered: dict[str, float]


class Used(Model, kw_only=True):
    used: int
    limit: int | None


class TierOut(Model, kw_only=True):
    key: str
    name: str
    cpu: float
    memory: float
    disk: int
    paid: bool


class ActivityOut(Model, kw_only=True):
    id: int
    action: str
    actor: ActivityActor
    target: ActivityTarget
    details: dict[str, Any]
    created_at: str


class ActivityActor(Model, kw_only=True):
    user_id: int | None
    name: str
    address: str | None
    token: ActivityToken | None


class ActivityToken(Model, kw_only=True):
    id: int
    name: str


class ActivityTarget(Model, kw_only=True):
    kind: str
    name: str


class OrganizationInput(Model, kw_only=True):
    name: str


class UpdateOrganizationInput(Model, kw_only=True):
    name: str | msgspec.UnsetType = msgspec.UNSET
    # Whether a push to a repository that nothing uses creates a project for it.
    create_on_push: bool | msgspec.UnsetType = msgspec.UNSET


class MemberInput(Model, kw_only=True):
    role: Literal["viewer", "member", "admin", "owner"]


class InvitationInput(Model, kw_only=True):
    email: str
    role: Literal["viewer", "member", "admin", "owner"] | msgspec.UnsetType = msgspec.UNSET
