"""Invitations to an organization, by mail address."""

from __future__ import annotations

import msgspec
from sqlalchemy import func, insert, select, update

from moorage.accounts.identity import users
from moorage.accounts.identity.caller import Caller
from moorage.accounts.identity.organizations import members
from moorage.accounts.identity.organizations import service as orgs
from moorage.accounts.identity.roles import Role
from moorage.accounts.identity.states import INVITATION, InvitationStatus
from moorage.accounts.identity.tables import invitation, organization
from moorage.accounts.plans import service as plans
from moorage.core import jobs
from moorage.core.audit import service as audit
from moorage.core.audit.service import AuditTarget
from moorage.core.db.query import Command, Query, arg, scalar
from moorage.core.db.scope import across_organizations
from moorage.core.db.tx import Tx, move
from moorage.core.kit.clock import DAY_MS
from moorage.core.kit.records import dataclass
from moorage.errors import Conflict, Forbidden, IllegalMove, NotFound, QuotaExceeded

VALIDITY_MS = 7 * DAY_MS
# The platform mails invitations to any address, with a name that the organization chose.
MAX_DAILY_OF_ORGANIZATION = 200
MAX_DAILY_OF_SENDER = 100  # for all organizations of the user
MAX_DAILY_MAILS_OF_ADDRESS = 10
S = InvitationStatus


@dataclass(frozen=True, slots=True)
class Invitation:
    id: int
    org_id: int
    org_name: str
    email: str
    role: str
    status: str
    created_at: int
    expires_at: int
    invited_by: int | None


class SendInvitation(msgspec.Struct, frozen=True, tag="identity.send_invitation"):
    """Notify an invited user, and send a mail if a mail server is configured."""

    org_id: int
    invitation_id: int


_i, _o = invitation.c, organization.c
_COLUMNS = (_i.id, _i.org_id, _o.name, _i.email, _i.role, _i.status, _i.created_at, _i.expires_at, _i.invited_by)
_joined = select(*_COLUMNS).join(organization, _o.id == _i.org_id)
_of_org = _i.org_id == arg("org_id")
_LIST = Query(_joined.where(_of_org & (_i.status == S.PENDING.value)).order_by(_i.id), Invitation)
_FIND = Query(_joined.where(_of_org & (_i.id == arg("id"))), Invitation)
_MINE = Query(_joined.where((_i.email == arg("email")) & (_i.status == S.PENDING.value)).order_by(_i.id), Invitation)
_MINE_BY_ID = Query(_joined.where((_i.email == arg("email")) & (_i.id == arg("id"))), Invitation)
_count = select(func.count()).select_from(invitation).where(_i.created_at > arg("since"))
_COUNT_OF_ORG: Query[int] = Query(_count.where(_of_org), scalar)
_COUNT_OF_SENDER: Query[int] = Query(_count.where(_i.invited_by == arg("user_id")), scalar)
_COUNT_OF_ADDRESS: Query[int] = Query(_count.where((_i.email == arg("email")) & (_i.id < arg("id"))), scalar)
_ADD: Query[int] = Query(
    insert(invitation).returning(_i.id),
    scalar,
    sets=("org_id", "email", "role", "status", "invited_by", "created_at", "updated_at", "expires_at"),
)
_PENDING = (_i.status == S.PENDING.value) & (_i.expires_at <= arg("now"))
_EXPIRE = Command(update(invitation).where(_PENDING).values(status=S.EXPIRED.value, updated_at=arg("now")))


def all_of(tx: Tx, org_id: int) -> list[Invitation]:
    """Return the pending invitations of an organization."""
    return [invitation for invitation in tx.all(_LIST, org_id=org_id) if invitation.expires_at > tx.now]


def find(tx: Tx, org_id: int, invitation_id: int) -> Invitation | None:
    return tx.find(_FIND, org_id=org_id, id=invitation_id)


@across_organizations("the list of the invited user")
def seen_by(tx: Tx, caller: Caller) -> list[Invitation]:
    """Return a caller's pending invitations; for an API token its organization's."""
    waiting = [invitation for invitation in tx.all(_MINE, email=caller.email) if invitation.expires_at > tx.now]
    return [invitation for invitation in waiting if caller.token_id is None or invitation.org_id == caller.org_id]


def create(tx: Tx, org_id: int, caller: Caller, email: str, role: Role) -> Invitation:
    email = users.normal_email(email)
    if not caller.role.reaches(role):
        raise Forbidden("You cannot invite a user to a role above your own")
    invited = users.find_by_email(tx, email)
    if invited is not None and members.find(tx, org_id, invited.id) is not None:
        raise Conflict(f"cannot invite {email}: already a member")
    if any(waiting.email == email for waiting in all_of(tx, org_id)):
        raise Conflict(f"cannot invite {email}: already invited")
    plans.check_room(tx, org_id, orgs.get(tx, org_id).standing, "members")
    if tx.one(_COUNT_OF_ORG, org_id=org_id, since=tx.now - DAY_MS) >= MAX_DAILY_OF_ORGANIZATION:
        raise QuotaExceeded(f"An organization may send {MAX_DAILY_OF_ORGANIZATION} invitations in 24 hours")
    if _count_sent_by(tx, caller.user_id) >= MAX_DAILY_OF_SENDER:
        raise QuotaExceeded(f"A user may send {MAX_DAILY_OF_SENDER} invitations in 24 hours")
    invitation_id = tx.one(
        _ADD,
        org_id=org_id,
        email=email,
        role=role,
        status=S.PENDING,
        invited_by=caller.user_id,
        created_at=tx.now,
        updated_at=tx.now,
        expires_at=tx.now + VALIDITY_MS,
    )
    audit.record(tx, org_id, caller.as_actor, "invitation.created", AuditTarget("invitation", email), role=role)
    jobs.add(tx, SendInvitation(org_id, invitation_id), key=f"organization:{org_id}")
    return _get(tx, org_id, invitation_id)


@across_organizations("the limit counts the invitations that a user sends for all organizations")
def _count_sent_by(tx: Tx, user_id: int) -> int:
    """Return the number of invitations that a user sent within 24 hours."""
    return tx.one(_COUNT_OF_SENDER, user_id=user_id, since=tx.now - DAY_MS)


@across_organizations("the limit protects an address from the invitations of all organizations")
def may_mail(tx: Tx, invitation: Invitation) -> bool:
    """Return whether an invitation is among the first ones for its address within 24 hours."""
    since = invitation.created_at - DAY_MS
    return tx.one(_COUNT_OF_ADDRESS, email=invitation.email, id=invitation.id, since=since) < MAX_DAILY_MAILS_OF_ADDRESS


def revoke(tx: Tx, org_id: int, caller: Caller, invitation_id: int) -> None:
    """Revoke an invitation of the list; raises NotFound for one that is not open."""
    invitation = _get(tx, org_id, invitation_id)
    if invitation.expires_at <= tx.now:
        raise _missing()
    try:
        move(tx, INVITATION, invitation, to=S.REVOKED)
    except IllegalMove:
        raise _missing() from None
    audit.record(tx, org_id, caller.as_actor, "invitation.revoked", AuditTarget("invitation", invitation.email))


@across_organizations("the invited user is not a member yet")
def accept(tx: Tx, caller: Caller, invitation_id: int) -> Invitation:
    invitation = _get_mine(tx, caller, invitation_id)
    members.lock(tx, invitation.org_id)  # The inviter may be removed or demoted concurrently.
    if members.find(tx, invitation.org_id, caller.user_id) is not None:
        raise Conflict("You are already a member of this organization")
    _check_inviter(tx, invitation.org_id, invitation)
    plans.check_room(tx, invitation.org_id, orgs.get(tx, invitation.org_id).standing, "members")
    move(tx, INVITATION, invitation, to=S.ACCEPTED)
    members.add(tx, invitation.org_id, caller.user_id, Role(invitation.role))
    audit.record(
        tx, invitation.org_id, caller.as_actor, "invitation.accepted", AuditTarget("invitation", invitation.email)
    )
    return _get(tx, invitation.org_id, invitation_id)


@across_organizations("the invited user is not a member yet")
def decline(tx: Tx, caller: Caller, invitation_id: int) -> Invitation:
    invitation = _get_mine(tx, caller, invitation_id)
    move(tx, INVITATION, invitation, to=S.DECLINED)
    audit.record(
        tx, invitation.org_id, caller.as_actor, "invitation.declined", AuditTarget("invitation", invitation.email)
    )
    return _get(tx, invitation.org_id, invitation_id)


@across_organizations("expires the invitations of all organizations")
def expire(tx: Tx) -> None:
    tx.run(_EXPIRE, now=tx.trusted_now)


def _get(tx: Tx, org_id: int, invitation_id: int) -> Invitation:
    invitation = find(tx, org_id, invitation_id)
    if invitation is None:
        raise _missing()
    return invitation


def _missing() -> NotFound:
    return NotFound("There is no such invitation")


def _check_inviter(tx: Tx, org_id: int, invitation: Invitation) -> None:
    """Reject an invitation if its sender may not send it any more."""
    sender = members.find(tx, org_id, invitation.invited_by) if invitation.invited_by is not None else None
    if sender is not None and members.may_invite(Role(sender.role), Role(invitation.role)):
        user = users.find(tx, sender.user_id)
        if user is not None and user.suspended_at is None:
            return
    raise Conflict(
        f"The invitation is void: its sender may no longer invite users as {invitation.role}; ask for a new one"
    )


@across_organizations("the invited user is not a member yet")
def _get_mine(tx: Tx, caller: Caller, invitation_id: int) -> Invitation:
    invitation = tx.find(_MINE_BY_ID, email=caller.email, id=invitation_id)
    if invitation is None or orgs.find(tx, invitation.org_id) is None:
        raise _missing()
    if invitation.expires_at <= tx.now:
        raise Conflict("The invitation has expired")
    return invitation
