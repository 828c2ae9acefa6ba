"""The states of an account and of an invitation."""

from __future__ import annotations

from enum import StrEnum

from moorage.core.kit.machine import Machine


class Approval(StrEnum):
    PENDING = "pending"  # signed up where sign-ups wait; may see its own account only
    APPROVED = "approved"  # a user like any other
    REJECTED = "rejected"  # an operator said no


APPROVAL = Machine(
    "account",
    {
        Approval.PENDING: {Approval.APPROVED, Approval.REJECTED},
        Approval.APPROVED: set(),
        Approval.REJECTED: {Approval.APPROVED},
    },
)


class InvitationStatus(StrEnum):
    PENDING = "pending"  # waits for the invited person
    ACCEPTED = "accepted"  # became a membership
    DECLINED = "declined"  # the invited person said no
    REVOKED = "revoked"  # the organization took it back
    EXPIRED = "expired"  # nobody answered in time


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
