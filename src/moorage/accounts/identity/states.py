"""States of accounts and invitations."""

from __future__ import annotations

from enum import StrEnum

from moorage.core.kit.machine import Machine


class Approval(StrEnum):
    PENDING = "pending"  # signed up and waits for approval; may read only its own account
    APPROVED = "approved"  # has full access
    REJECTED = "rejected"  # an operator rejected the sign-up


APPROVAL = Machine(
    "account",
    {
        Approval.PENDING: {Approval.APPROVED, Approval.REJECTED},
        Approval.APPROVED: set(),
        Approval.REJECTED: {Approval.APPROVED},
    },
)


class InvitationStatus(StrEnum):
    PENDING = "pending"  # waits for the invited user
    ACCEPTED = "accepted"  # the invited user became a member
    DECLINED = "declined"  # the invited user declined
    REVOKED = "revoked"  # the organization revoked it
    EXPIRED = "expired"  # was not answered in time


I = InvitationStatus  # noqa: E741
INVITATION = Machine(
    "invitation",
    {
        I.PENDING: {I.ACCEPTED, I.DECLINED, I.REVOKED, I.EXPIRED},
        I.ACCEPTED: set(),
        I.DECLINED: set(),
        I.REVOKED: set(),
        I.EXPIRED: set(),
    },
)
