"""Routes of the group Organizations. Generated from the OpenAPI document by `make docs`; edits are lost."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Literal

from msgspec import UNSET, UnsetType

from moorage.client import models
from moorage.client.asynchronous import AsyncTransport
from moorage.client.exchange import Call, path_part
from moorage.client.model import CursorPage, List
from moorage.client.streams import Event


class AsyncOrganizations:
    """Methods of the group Organizations."""

    def __init__(self, transport: AsyncTransport) -> None:
        self._transport = transport

    async def list(self) -> List[models.OrganizationOut]:
        """List the organizations the caller belongs to; an API token sees its own."""
        return await self._transport.call(Call("GET", "/v1/orgs"), List[models.OrganizationOut])

    async def create(self, *, name: str, idempotency_key: str | None = None) -> models.OrganizationOut:
        """Create an organization that the caller owns. An API token needs the owner role."""
        return await self._transport.call(
            Call("POST", "/v1/orgs", body=models.OrganizationInput(name=name), key=idempotency_key),
            models.OrganizationOut,
        )

    async def read(self, org_id: int | str) -> models.OrganizationOut:
        """Return an organization the caller belongs to."""
        return await self._transport.call(Call("GET", f"/v1/orgs/{path_part(org_id)}"), models.OrganizationOut)

    async def rename(
        self,
        org_id: int | str,
        *,
        name: str | UnsetType = UNSET,
        create_on_push: bool | UnsetType = UNSET,
        idempotency_key: str | None = None,
    ) -> models.OrganizationOut:
        """Rename an organization, or change its settings. Its slug stays."""
        return await self._transport.call(
            Call(
                "PATCH",
                f"/v1/orgs/{path_part(org_id)}",
                body=models.UpdateOrganizationInput(name=name, create_on_push=create_on_push),
                key=idempotency_key,
            ),
            models.OrganizationOut,
        )

    async def delete(self, org_id: int | str, *, idempotency_key: str | None = None) -> None:
        """Delete an organization with its tokens and all its resources."""
        await self._transport.call(Call("DELETE", f"/v1/orgs/{path_part(org_id)}", key=idempotency_key), None)

    async def list_members(self, org_id: int | str) -> List[models.MemberOut]:
        """List the members of an organization."""
        return await self._transport.call(Call("GET", f"/v1/orgs/{path_part(org_id)}/members"), List[models.MemberOut])

    async def change_member(
        self,
        org_id: int | str,
        user_id: int | str,
        *,
        role: Literal["viewer", "member", "admin", "owner"],
        idempotency_key: str | None = None,
    ) -> models.MemberOut:
        """Change a member's role. Only an owner makes or unmakes owners."""
        return await self._transport.call(
            Call(
                "PATCH",
                f"/v1/orgs/{path_part(org_id)}/members/{path_part(user_id)}",
                body=models.MemberInput(role=role),
                key=idempotency_key,
            ),
            models.MemberOut,
        )

    async def remove_member(self, org_id: int | str, user_id: int | str, *, idempotency_key: str | None = None) -> None:
        """Remove a member (admin), or leave (any member, with a session token)."""
        await self._transport.call(
            Call("DELETE", f"/v1/orgs/{path_part(org_id)}/members/{path_part(user_id)}", key=idempotency_key), None
        )

    async def list_invitations(self, org_id: int | str) -> List[models.InvitationOut]:
        """List the pending invitations of an organization."""
        return await self._transport.call(
            Call("GET", f"/v1/orgs/{path_part(org_id)}/invitations"), List[models.InvitationOut]
        )

    async def create_invitation(
        self,
        org_id: int | str,
        *,
        email: str,
        role: Literal["viewer", "member", "admin", "owner"] | UnsetType = UNSET,
        idempotency_key: str | None = None,
    ) -> models.InvitationOut:
        """Invite a user by mail address. The invitation is valid for seven days."""
        return await self._transport.call(
            Call(
                "POST",
                f"/v1/orgs/{path_part(org_id)}/invitations",
                body=models.InvitationInput(email=email, role=role),
                key=idempotency_key,
            ),
            models.InvitationOut,
        )

    async def revoke_invitation(
        self, org_id: int | str, invitation_id: int | str, *, idempotency_key: str | None = None
    ) -> None:
        """Revoke an invitation."""
        await self._transport.call(
            Call("DELETE", f"/v1/orgs/{path_part(org_id)}/invitations/{path_part(invitation_id)}", key=idempotency_key),
            None,
        )

    async def reveal_webhook_secret(
        self, org_id: int | str, *, idempotency_key: str | None = None
    ) -> models.WebhookSecret:
        """Return the secret that signs alert webhooks. The activity records the caller."""
        return await self._transport.call(
            Call("POST", f"/v1/orgs/{path_part(org_id)}/webhook-secret/reveal", key=idempotency_key),
            models.WebhookSecret,
        )

    async def list_my_invitations(self) -> List[models.InvitationOut]:
        """List the caller's pending invitations; for an API token only its organization's."""
        return await self._transport.call(Call("GET", "/v1/invitations"), List[models.InvitationOut])

    async def accept_invitation(
        self, invitation_id: int | str, *, idempotency_key: str | None = None
    ) -> models.InvitationOut:
        """Accept an invitation: the caller becomes a member. Needs a session token."""
        return await self._transport.call(
            Call("POST", f"/v1/invitations/{path_part(invitation_id)}/accept", key=idempotency_key),
            models.InvitationOut,
        )

    async def decline_invitation(
        self, invitation_id: int | str, *, idempotency_key: str | None = None
    ) -> models.InvitationOut:
        """Decline an invitation. Needs a session token."""
        return await self._transport.call(
            Call("POST", f"/v1/invitations/{path_part(invitation_id)}/decline", key=idempotency_key),
            models.InvitationOut,
        )

    async def read_billing(self) -> models.BillingStatus:
        """Return the plan and card status, and the link to the payment portal.

        `checkoutReference` is the `client_reference_id` of the organization's checkouts at Stripe. It is
        null below admin, and without a signing secret of Stripe.
        """
        return await self._transport.call(Call("GET", "/v1/billing"), models.BillingStatus)

    async def read_limits(self) -> models.Limits:
        """Return how much of each resource the plan allows; null is unlimited."""
        return await self._transport.call(Call("GET", "/v1/limits"), models.Limits)

    async def read_usage(self) -> models.Usage:
        """Return the used resources, and the metered usage of this calendar month (UTC)."""
        return await self._transport.call(Call("GET", "/v1/usage"), models.Usage)

    async def list_tiers(self) -> List[models.TierOut]:
        """List the tiers of projects, databases and cronjobs."""
        return await self._transport.call(Call("GET", "/v1/tiers"), List[models.TierOut])

    async def list_activity(
        self, *, cursor: str | None = None, limit: int | None = None
    ) -> CursorPage[models.ActivityOut]:
        """Return the activity of the organization, newest first."""
        return await self._transport.call(
            Call("GET", "/v1/activity", query={"cursor": cursor, "limit": limit}), CursorPage[models.ActivityOut]
        )

    def follow_activity(self) -> AsyncIterator[Event]:
        """Follow the activity of the organization as server-sent events named `activity`.

        A client that reconnects sends `Last-Event-ID`, as browsers do, and gets all later events.
        """
        return self._transport.follow(Call("GET", "/v1/activity/stream"))

    def iterate_activity(self, *, limit: int | None = None) -> AsyncIterator[models.ActivityOut]:
        """Iterate over the items of all pages of `list_activity`."""
        return self._transport.iterate_cursors(lambda cursor: self.list_activity(limit=limit, cursor=cursor))
