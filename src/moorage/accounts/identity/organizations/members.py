"""Members of organizations and their roles."""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

from sqlalchemy import delete, func, insert, select, update

from moorage.accounts.identity.caller import Caller
from moorage.accounts.identity.roles import Role
from moorage.accounts.identity.states import InvitationStatus
from moorage.accounts.identity.tables import account, api_token, invitation, membership, organization
from moorage.accounts.plans.service import Standing
from moorage.core.audit import service as audit
from moorage.core.audit.service import AuditTarget
from moorage.core.db.query import Command, Query, arg, scalar
from moorage.core.db.scope import across_organizations
from moorage.core.db.tx import Tx
from moorage.core.kit.records import dataclass
from moorage.errors import Conflict, Forbidden, NotFound


@dataclass(frozen=True, slots=True)
class Member:
    user_id: int
    email: str
    first_name: str
    last_name: str
    role: str
    joined_at: int

    @property
    def name(self) -> str:
        return f"{self.first_name} {self.last_name}".strip()


@dataclass(frozen=True, slots=True)
class Membership:
    """An organization, seen from one of its members."""

    org_id: int
    name: str
    slug: str
    role: str
    plan: str
    card_verified: bool
    create_on_push: bool
    created_at: int

    @property
    def standing(self) -> Standing:
        return Standing(self.plan, self.card_verified)


class _Sent(NamedTuple):
    """A pending invitation of a sender."""

    id: int
    email: str
    role: str


_m, _u, _o, _i, _t = membership.c, account.c, organization.c, invitation.c, api_token.c
_MEMBER = (_m.user_id, _u.email, _u.first_name, _u.last_name, _m.role, _m.joined_at)
_of_org = _m.org_id == arg("org_id")
_LIST = Query(select(*_MEMBER).join(account, _u.id == _m.user_id).where(_of_org).order_by(_m.joined_at, _m.id), Member)
_FIND = Query(
    select(*_MEMBER).join(account, _u.id == _m.user_id).where(_of_org & (_m.user_id == arg("user_id"))), Member
)
_OWNERS = Query(select(func.count()).where(_of_org & (_m.role == Role.OWNER.value)), scalar)
_COUNT = Query(select(func.count()).where(_of_org), scalar)
_COUNT_OWNED: Query[int] = Query(
    select(func.count()).where((_m.user_id == arg("user_id")) & (_m.role == Role.OWNER.value)), scalar
)
_ADD: Query[int] = Query(insert(membership).returning(_m.id), scalar, sets=("org_id", "user_id", "role", "joined_at"))
_SET_ROLE = Command(update(membership).where(_of_org & (_m.user_id == arg("user_id"))).values(role=arg("new_role")))
_REMOVE = Command(delete(membership).where(_of_org & (_m.user_id == arg("user_id"))))
_of_user = (
    select(_o.id, _o.name, _o.slug, _m.role, _o.plan, _o.card_verified, _o.create_on_push, _o.created_at)
    .join(organization, _o.id == _m.org_id)
    .where((_m.user_id == arg("user_id")) & _o.deleted_at.is_(None))
)
_MEMBERSHIPS = Query(_of_user.order_by(_o.created_at, _o.id), Membership)
_MEMBERSHIP = Query(_of_user.where(_of_org), Membership)
_sent = (_i.org_id == arg("org_id")) & (_i.status == InvitationStatus.PENDING.value)
_SENT = Query(select(_i.id, _i.email, _i.role).where(_sent & (_i.invited_by == arg("user_id"))).order_by(_i.id), _Sent)
_REVOKE_INVITATION = Command(
    update(invitation)
    .where(_sent & (_i.id == arg("id")))
    .values(status=InvitationStatus.REVOKED.value, updated_at=arg("now"))
)
_REVOKE_TOKENS = Command(
    update(api_token)
    .where((_t.org_id == arg("org_id")) & (_t.user_id == arg("user_id")) & _t.revoked_at.is_(None))
    .values(revoked_at=arg("now"))
)
# Locks the row: without it the last two owners could leave concurrently.
_LOCK = Command(update(organization).where(_o.id == arg("org_id")).values(updated_at=arg("now")))


def all_of(tx: Tx, org_id: int) -> list[Member]:
    return tx.all(_LIST, org_id=org_id)


def find(tx: Tx, org_id: int, user_id: int) -> Member | None:
    return tx.find(_FIND, org_id=org_id, user_id=user_id)


def get(tx: Tx, org_id: int, user_id: int) -> Member:
    member = find(tx, org_id, user_id)
    if member is None:
        raise NotFound("There is no such member")
    return member


def count(tx: Tx, org_id: int) -> int:
    return int(tx.one(_COUNT, org_id=org_id))


def add(tx: Tx, org_id: int, user_id: int, role: Role) -> None:
    tx.one(_ADD, org_id=org_id, user_id=user_id, role=role, joined_at=tx.now)


@across_organizations("a user's own list of organizations")
def memberships(tx: Tx, user_id: int) -> list[Membership]:
    """Return the organizations of a user, oldest first."""
    return tx.all(_MEMBERSHIPS, user_id=user_id)


@across_organizations("the limit counts the organizations of a user")
def count_owned(tx: Tx, user_id: int) -> int:
    """Return the number of organizations that a user owns."""
    return tx.one(_COUNT_OWNED, user_id=user_id)


def lock(tx: Tx, org_id: int) -> None:
    """Prevent concurrent changes of the owners until the commit."""
    tx.run(_LOCK, org_id=org_id, now=tx.now)


def get_membership(tx: Tx, org_id: int, user_id: int) -> Membership:
    membership = tx.find(_MEMBERSHIP, org_id=org_id, user_id=user_id)
    if membership is None:
        raise NotFound("There is no such organization")
    return membership


@across_organizations("a caller's own list of organizations")
def seen_by(tx: Tx, caller: Caller) -> list[Membership]:
    """Return the organizations of a caller; for an API token its own, in its role."""
    if caller.token_id is None:
        return memberships(tx, caller.user_id)
    return [replace(get_membership(tx, caller.org_id, caller.user_id), role=caller.role)]


def change_role(tx: Tx, org_id: int, caller: Caller, user_id: int, role: Role) -> Member:
    lock(tx, org_id)
    member = get(tx, org_id, user_id)
    _check_may_manage(caller, member, role)
    if member.role == Role.OWNER and role is not Role.OWNER:
        _check_not_last_owner(tx, org_id)
    tx.run(_SET_ROLE, org_id=org_id, user_id=user_id, new_role=role)
    target = AuditTarget("member", member.email)
    audit.record(tx, org_id, caller.as_actor, "member.role_changed", target, before=member.role, after=role)
    _revoke_invitations(tx, org_id, caller, user_id, role)
    return get(tx, org_id, user_id)


def remove(tx: Tx, org_id: int, caller: Caller, user_id: int) -> None:
    """Remove a member, or leave.

    Any member may leave, with a session; admins may remove members below owner. The API tokens and pending invitations
    of the member in this organization are revoked.
    """
    lock(tx, org_id)
    member = get(tx, org_id, user_id)
    leaves = user_id == caller.user_id
    if leaves:
        caller.check_is_session()
    else:
        if not caller.role.reaches(Role.ADMIN):
            raise Forbidden("Removing a member needs the admin role")
        _check_may_manage(caller, member, Role(member.role))
    if member.role == Role.OWNER:
        _check_not_last_owner(tx, org_id)
    tx.run(_REMOVE, org_id=org_id, user_id=user_id)
    # Otherwise the tokens would be valid again after a new invitation.
    tx.run(_REVOKE_TOKENS, org_id=org_id, user_id=user_id, now=tx.now)
    action = "member.left" if leaves else "member.removed"
    audit.record(tx, org_id, caller.as_actor, action, AuditTarget("member", member.email))
    _revoke_invitations(tx, org_id, caller, user_id, None)


def may_invite(sender: Role, invited: Role) -> bool:
    return sender.reaches(Role.ADMIN) and sender.reaches(invited)


def _revoke_invitations(tx: Tx, org_id: int, caller: Caller, user_id: int, role: Role | None) -> None:
    """Revoke the pending invitations of a user that the new role does not allow."""
    for sent in tx.all(_SENT, org_id=org_id, user_id=user_id):
        if role is not None and may_invite(role, Role(sent.role)):
            continue
        if tx.run(_REVOKE_INVITATION, org_id=org_id, id=sent.id, now=tx.now):
            target = AuditTarget("invitation", sent.email)
            audit.record(tx, org_id, caller.as_actor, "invitation.revoked", target, reason="sender lost the role")


def is_last_owner(tx: Tx, org_id: int, user_id: int) -> bool:
    member = find(tx, org_id, user_id)
    return member is not None and member.role == Role.OWNER and int(tx.one(_OWNERS, org_id=org_id)) == 1


def _check_may_manage(caller: Caller, member: Member, new_role: Role) -> None:
    if caller.role is not Role.OWNER and Role.OWNER in (member.role, new_role):
        raise Forbidden("Only an owner makes or unmakes owners")


def _check_not_last_owner(tx: Tx, org_id: int) -> None:
    if int(tx.one(_OWNERS, org_id=org_id)) <= 1:
        raise Conflict("The last owner cannot leave, be demoted or be removed; make another owner first")
