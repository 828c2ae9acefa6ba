"""Routes of the group Organizations. Generated from the OpenAPI document by `make docs`; edits are lost."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

from msgspec import UNSET, UnsetType

from moorage.client.blocking import BlockingTransport
from moorage.client.exchange import Call, path_part
from moorage.client.model import CursorPage, List
from moorage.client.models.organizations import (
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
    WebhookSecret,
)
from moorage.client.streams import Event


class Organizations:
    """Methods of the group Organizations."""

    def __init__(self, transport: BlockingTransport) -> None:
        self._transport = transport

    def list(self) -> List[OrganizationOut]:
        """List the organizations the caller belongs to; an API token sees its own."""
        result: List[OrganizationOut] = self._transport.call(Call("GET", "/v1/orgs"), List[OrganizationOut])
        return result

    def create(self, *, name: str, idempotency_key: str | None = None) -> OrganizationOut:
        """Create an organization that the caller owns. An API token needs the owner role."""
        result: OrganizationOut = self._transport.call(
            Call("POST", "/v1/orgs", body=OrganizationInput(name=name), key=idempotency_key), OrganizationOut
        )
        return result

    def read(self, org_id: int | str) -> OrganizationOut:
        """Return an organization the caller belongs to."""
        result: OrganizationOut = self._transport.call(Call("GET", f"/v1/orgs/{path_part(org_id)}"), OrganizationOut)
        return result

    def rename(
        self,
        org_id: int | str,
        *,
        name: str | UnsetType = UNSET,
        create_on_push: bool | UnsetType = UNSET,
        idempotency_key: str | None = None,
    ) -> OrganizationOut:
        """Rename an organization, or change its settings. Its slug stays."""
        result: OrganizationOut = self._transport.call(
            Call(
                "PATCH",
                f"/v1/orgs/{path_part(org_id)}",
                body=UpdateOrganizationInput(name=name, create_on_push=create_on_push),
                key=idempotency_key,
            ),
            OrganizationOut,
        )
        return result

    def delete(self, org_id: int | str, *, idempotency_key: str | None = None) -> None:
        """Delete an organization with its tokens and all its resources."""
        self._transport.call(Call("DELETE", f"/v1/orgs/{path_part(org_id)}", key=idempotency_key), None)

    def list_members(self, org_id: int | str) -> List[MemberOut]:
        """List the members of an organization."""
        result: List[MemberOut] = self._transport.call(
            Call("GET", f"/v1/orgs/{path_part(org_id)}/members"), List[MemberOut]
        )
        return result

    def change_member(
        self,
        org_id: int | str,
        user_id: int | str,
        *,
        role: Literal["viewer", "member", "admin", "owner"],
        idempotency_key: str | None = None,
    ) -> MemberOut:
        """Change a member's role. Only an owner makes or unmakes owners."""
        result: MemberOut = self._transport.call(
            Call(
                "PATCH",
                f"/v1/orgs/{path_part(org_id)}/members/{path_part(user_id)}",
                body=MemberInput(role=role),
                key=idempotency_key,
            ),
            MemberOut,
        )
        return result

    def remove_member(self, org_id: int | str, user_id: int | str, *, idempotency_key: str | None = None) -> None:
        """Remove a member (admin), or leave (any member, with a session token)."""
        self._transport.call(
            Call("DELETE", f"/v1/orgs/{path_part(org_id)}/members/{path_part(user_id)}", key=idempotency_key), None
        )

    def list_invitations(self, org_id: int | str) -> List[InvitationOut]:
        """List the pending invitations of an organization."""
        result: List[InvitationOut] = self._transport.call(
            Call("GET", f"/v1/orgs/{path_part(org_id)}/invitations"), List[InvitationOut]
        )
        return result

    def create_invitation(
        self,
        org_id: int | str,
        *,
        email: str,
        role: Literal["viewer", "member", "admin", "owner"] | UnsetType = UNSET,
        idempotency_key: str | None = None,
    ) -> InvitationOut:
        """Invite a user by mail address. The invitation is valid for seven days."""
        result: InvitationOut = self._transport.call(
            Call(
                "POST",
                f"/v1/orgs/{path_part(org_id)}/invitations",
                body=InvitationInput(email=email, role=role),
                key=idempotency_key,
            ),
            InvitationOut,
        )
        return result

    def revoke_invitation(
        self, org_id: int | str, invitation_id: int | str, *, idempotency_key: str | None = None
    ) -> None:
        """Revoke an invitation."""
        self._transport.call(
            Call("DELETE", f"/v1/orgs/{path_part(org_id)}/invitations/{path_part(invitation_id)}", key=idempotency_key),
            None,
        )

    def reveal_webhook_secret(self, org_id: int | str, *, idempotency_key: str | None = None) -> WebhookSecret:
        """Return the secret that signs alert webhooks. The activity records the caller."""
        result: WebhookSecret = self._transport.call(
            Call("POST", f"/v1/orgs/{path_part(org_id)}/webhook-secret/reveal", key=idempotency_key), WebhookSecret
        )
        return result

    def list_my_invitations(self) -> List[InvitationOut]:
        """List the caller's pending invitations; for an API token only its organization's."""
        result: List[InvitationOut] = self._transport.call(Call("GET", "/v1/invitations"), List[InvitationOut])
        return result

    def accept_invitation(self, invitation_id: int | str, *, idempotency_key: str | None = None) -> InvitationOut:
        """Accept an invitation: the caller becomes a member. Needs a session token."""
        result: InvitationOut = self._transport.call(
            Call("POST", f"/v1/invitations/{path_part(invitation_id)}/accept", key=idempotency_key), InvitationOut
        )
        return result

    def decline_invitation(self, invitation_id: int | str, *, idempotency_key: str | None = None) -> InvitationOut:
        """Decline an invitation. Needs a session token."""
        result: InvitationOut = self._transport.call(
            Call("POST", f"/v1/invitations/{path_part(invitation_id)}/decline", key=idempotency_key), InvitationOut
        )
        return result

    def read_billing(self) -> BillingStatus:
        """Return the plan and card status, and the link to the payment portal."""
        result: BillingStatus = self._transport.call(Call("GET", "/v1/billing"), BillingStatus)
        return result

    def read_limits(self) -> Limits:
        """Return how much of each resource the plan allows; null is unlimited."""
        result: Limits = self._transport.call(Call("GET", "/v1/limits"), Limits)
        return result

    def read_usage(self) -> Usage:
        """Return the used resources, and the metered usage of this calendar month (UTC)."""
        result: Usage = self._transport.call(Call("GET", "/v1/usage"), Usage)
        return result

    def list_tiers(self) -> List[TierOut]:
        """List the tiers of projects, databases and cronjobs."""
        result: List[TierOut] = self._transport.call(Call("GET", "/v1/tiers"), List[TierOut])
        return result

    def list_activity(self, *, cursor: str | None = None, limit: int | None = None) -> CursorPage[ActivityOut]:
        """Return the activity of the organization, newest first."""
        result: CursorPage[ActivityOut] = self._transport.call(
            Call("GET", "/v1/activity", query={"cursor": cursor, "limit": limit}), CursorPage[ActivityOut]
        )
        return result

    def follow_activity(self) -> Iterator[Event]:
        """Follow the activity of the organization as server-sent events named `activity`.

        A client that reconnects sends `Last-Event-ID`, as browsers do, and gets all later events.
        """
        return self._transport.follow(Call("GET", "/v1/activity/stream"))

    def iterate_activity(self, *, limit: int | None = None) -> Iterator[ActivityOut]:
        """Iterate over the items of all pages of `list_activity`."""

        def fetch(cursor: str | None) -> CursorPage[ActivityOut]:
            return self.list_activity(limit=limit, cursor=cursor)

        return self._transport.iterate_cursors(fetch)
