"""Routes of organizations, their members, invitations, plan and activity."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace

from moorage.accounts.identity.caller import Caller
from moorage.accounts.identity.organizations import billing_reference, invitations, members
from moorage.accounts.identity.organizations import service as orgs
from moorage.accounts.identity.roles import Role
from moorage.accounts.identity.schemas import (
    ActivityOut,
    BillingStatus,
    InvitationInput,
    InvitationOut,
    Limits,
    MemberInput,
    MemberOut,
    OrganizationInput,
    OrganizationOut,
    TierOut,
    UpdateOrganizationInput,
    Usage,
    Used,
    WebhookSecret,
)
from moorage.accounts.plans import service as plans
from moorage.accounts.plans.service import ALLOWANCES, Plan, Standing
from moorage.accounts.plans.tiers import CATALOG
from moorage.core.audit import service as audit
from moorage.core.db.store import Database
from moorage.core.db.tx import Tx
from moorage.core.http import sse
from moorage.core.http.answer import Stream
from moorage.core.http.paging import CursorPage, CursorQuery, cut, read_cursor
from moorage.core.http.request import Request
from moorage.core.http.route import Router, Scope
from moorage.core.kit.events import Event
from moorage.core.kit.ids import parse_id

ACTIVITY_POLL_INTERVAL_S = 1.0

router = Router("Organizations")


@router.get("/orgs", scope=Scope.IDENTITY)
def list_orgs(tx: Tx, caller: Caller) -> list[OrganizationOut]:
    """List the organizations the caller belongs to; an API token sees its own."""
    return [OrganizationOut.of(membership, tx.env.settings) for membership in members.seen_by(tx, caller)]


@router.post("/orgs", scope=Scope.IDENTITY)
def create_org(tx: Tx, caller: Caller, body: OrganizationInput) -> OrganizationOut:
    """Create an organization that the caller owns. An API token needs the owner role."""
    caller.check_is_owner_or_session()
    created = orgs.create(tx, body.name, caller.as_actor)
    return OrganizationOut.of(members.get_membership(tx, created.id, caller.user_id), tx.env.settings)


@router.get("/orgs/{org_id}", scope=Scope.PATH_ORG, point=True)
def read_org(tx: Tx, caller: Caller) -> OrganizationOut:
    """Return an organization the caller belongs to."""
    return _seen_by(tx, caller)


@router.patch(
    "/orgs/{org_id}",
    scope=Scope.PATH_ORG,
    min_role=Role.ADMIN,
    changed_by=(("role", "PATCH /v1/orgs/{org_id}/members/{user_id}"),),
)
def rename_org(tx: Tx, caller: Caller, body: UpdateOrganizationInput) -> OrganizationOut:
    """Rename an organization, or change its settings. Its slug stays."""
    if "name" in body.model_fields_set:
        orgs.rename(tx, caller.org_id, caller.as_actor, body.name)
    if "create_on_push" in body.model_fields_set:
        orgs.set_create_on_push(tx, caller.org_id, caller.as_actor, body.create_on_push)
    return _seen_by(tx, caller)


@router.delete("/orgs/{org_id}", scope=Scope.PATH_ORG, min_role=Role.OWNER)
def delete_org(tx: Tx, caller: Caller) -> None:
    """Delete an organization with its tokens and all its resources."""
    orgs.delete(tx, caller.org_id, caller.as_actor)


@router.get("/orgs/{org_id}/members", scope=Scope.PATH_ORG)
def list_members(tx: Tx, caller: Caller) -> list[MemberOut]:
    """List the members of an organization."""
    return [MemberOut.of(member) for member in members.all_of(tx, caller.org_id)]


@router.patch("/orgs/{org_id}/members/{user_id}", scope=Scope.PATH_ORG, min_role=Role.ADMIN)
def change_member(tx: Tx, caller: Caller, user_id: int, body: MemberInput) -> MemberOut:
    """Change a member's role. Only an owner makes or unmakes owners."""
    return MemberOut.of(members.change_role(tx, caller.org_id, caller, user_id, Role(body.role)))


@router.delete("/orgs/{org_id}/members/{user_id}", scope=Scope.PATH_ORG)
def remove_member(tx: Tx, caller: Caller, user_id: int) -> None:
    """Remove a member (admin), or leave (any member, with a session token)."""
    members.remove(tx, caller.org_id, caller, user_id)


@router.get("/orgs/{org_id}/invitations", scope=Scope.PATH_ORG, min_role=Role.ADMIN)
def list_invitations(tx: Tx, caller: Caller) -> list[InvitationOut]:
    """List the pending invitations of an organization."""
    return [InvitationOut.of(each) for each in invitations.all_of(tx, caller.org_id)]


@router.post("/orgs/{org_id}/invitations", scope=Scope.PATH_ORG, min_role=Role.ADMIN)
def create_invitation(tx: Tx, caller: Caller, body: InvitationInput) -> InvitationOut:
    """Invite a user by mail address. The invitation is valid for seven days."""
    return InvitationOut.of(invitations.create(tx, caller.org_id, caller, body.email, Role(body.role)))


@router.delete("/orgs/{org_id}/invitations/{invitation_id}", scope=Scope.PATH_ORG, min_role=Role.ADMIN)
def revoke_invitation(tx: Tx, caller: Caller, invitation_id: int) -> None:
    """Revoke an invitation."""
    invitations.revoke(tx, caller.org_id, caller, invitation_id)


@router.post("/orgs/{org_id}/webhook-secret/reveal", scope=Scope.PATH_ORG, min_role=Role.ADMIN, secret=True)
def reveal_webhook_secret(tx: Tx, caller: Caller) -> WebhookSecret:
    """Return the secret that signs alert webhooks. The activity records the caller."""
    return WebhookSecret(orgs.reveal_webhook_secret(tx, caller.org_id, caller.as_actor))


@router.get("/invitations", scope=Scope.IDENTITY)
def list_my_invitations(tx: Tx, caller: Caller) -> list[InvitationOut]:
    """List the caller's pending invitations; for an API token only its organization's."""
    return [InvitationOut.of(each) for each in invitations.seen_by(tx, caller)]


@router.post("/invitations/{invitation_id}/accept", scope=Scope.IDENTITY)
def accept_invitation(tx: Tx, caller: Caller, invitation_id: int) -> InvitationOut:
    """Accept an invitation: the caller becomes a member. Needs a session token."""
    caller.check_is_session()
    return InvitationOut.of(invitations.accept(tx, caller, invitation_id))


@router.post("/invitations/{invitation_id}/decline", scope=Scope.IDENTITY)
def decline_invitation(tx: Tx, caller: Caller, invitation_id: int) -> InvitationOut:
    """Decline an invitation. Needs a session token."""
    caller.check_is_session()
    return InvitationOut.of(invitations.decline(tx, caller, invitation_id))


@router.get("/billing", walled=False, point=True)
def read_billing(tx: Tx, caller: Caller) -> BillingStatus:
    """Return the plan and card status, and the link to the payment portal.

    `checkoutReference` is the `client_reference_id` of the organization's checkouts at Stripe. It is null below admin,
    and without a signing secret of Stripe.
    """
    settings, standing = tx.env.settings, _standing(caller)
    has_checkouts = bool(settings.stripe_webhook_secret.get_secret_value())
    return BillingStatus(
        str(caller.org_id),
        settings.billing,
        standing.plan,
        plans.counts_as_paid(settings, standing),
        plans.counts_as_verified(settings, standing),
        settings.stripe_portal_url or None,
        billing_reference.make(tx.env, caller.org_id) if has_checkouts and caller.role.reaches(Role.ADMIN) else None,
    )


@router.get("/limits", walled=False, point=True)
def read_limits(tx: Tx, caller: Caller) -> Limits:
    """Return how much of each resource the plan allows; null is unlimited."""
    settings, standing = tx.env.settings, _standing(caller)
    limits = {name: plans.allowance(settings, standing, name) for name in ALLOWANCES[Plan.PRO]}
    return Limits(standing.plan, settings.rate_limit, limits)


@router.get("/usage", walled=False)
def read_usage(tx: Tx, caller: Caller) -> Usage:
    """Return the used resources, and the metered usage of this calendar month (UTC)."""
    standing = _standing(caller)
    used = {
        name: Used(count(tx, caller.org_id), plans.allowance(tx.env.settings, standing, name))
        for name, count in tx.env.hooks.of(plans.COUNT).items()
    }
    metered = {name: measure(tx, caller.org_id) for name, measure in tx.env.hooks.of(plans.METER).items()}
    return Usage(standing.plan, used, metered)


@router.get("/tiers", scope=Scope.IDENTITY, point=True)
def list_tiers() -> list[TierOut]:
    """List the tiers of projects, databases and cronjobs."""
    return [TierOut(tier.key, tier.name, tier.cpu, tier.memory, tier.disk, tier.paid) for tier in CATALOG]


@router.get("/activity")
def list_activity(tx: Tx, caller: Caller, query: CursorQuery) -> CursorPage[ActivityOut]:
    """Return the activity of the organization, newest first."""
    scope, key = f"activity:{caller.org_id}", tx.env.cursor_key
    position = read_cursor(key, scope, query.cursor)
    rows = audit.latest(tx, caller.org_id, before=position[0] if position else None, most=query.limit + 1)
    page, more = cut(key, scope, rows, query.limit, lambda row: row.seq)
    return CursorPage([ActivityOut.of(row) for row in page], more)


def stream_router(db: Database) -> Router:
    """Return the route of the activity stream, which reads the database continuously."""
    live = Router("Organizations")

    @live.get("/activity/stream", events=True)
    async def follow_activity(caller: Caller, request: Request) -> Stream:
        """Follow the activity of the organization as server-sent events named `activity`.

        A client that reconnects sends `Last-Event-ID`, as browsers do, and gets all later events.
        """
        return sse.stream(_follow(db, caller.org_id, parse_id(request.header(b"last-event-id") or "-")))

    return live


async def _follow(db: Database, org_id: int, last: int | None) -> AsyncIterator[Event]:
    newest = await db.read(lambda tx: audit.latest(tx, org_id, before=None, most=1))
    seq = last if last is not None else newest[0].seq if newest else 0
    while True:
        for row in await db.peek(lambda tx: audit.after(tx, org_id, seq)):  # noqa: B023 - awaited before the next turn
            seq = row.seq
            yield Event("activity", ActivityOut.of(row), id=str(row.seq))
        await asyncio.sleep(ACTIVITY_POLL_INTERVAL_S)


def _seen_by(tx: Tx, caller: Caller) -> OrganizationOut:
    membership = members.get_membership(tx, caller.org_id, caller.user_id)
    return OrganizationOut.of(replace(membership, role=caller.role), tx.env.settings)


def _standing(caller: Caller) -> Standing:
    assert caller.standing is not None
    return caller.standing
