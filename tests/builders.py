"""Builders fill the defaults, so that a test shows only what matters to it."""

from __future__ import annotations

import itertools

from moorage.accounts.identity import tokens, users
from moorage.accounts.identity.caller import Caller
from moorage.accounts.identity.organizations import members
from moorage.accounts.identity.organizations import service as orgs
from moorage.accounts.identity.organizations.service import Organization
from moorage.accounts.identity.roles import Role
from moorage.accounts.identity.sessions.session_tokens import Sessions
from moorage.accounts.identity.states import Approval
from moorage.accounts.identity.users import User
from moorage.accounts.plans.service import Plan
from moorage.core.audit.service import Actor
from moorage.core.db.store import Database

_numbers = itertools.count(1)


async def make_user(db: Database, email: str | None = None, *, status: Approval = Approval.APPROVED) -> User:
    address = email or f"user{next(_numbers)}@example.com"
    return await db.write(lambda tx: users.add(tx, address, first_name="Ada", last_name="Moor", status=status))


async def make_org(
    db: Database,
    owner: User | None = None,
    *,
    name: str = "Harbor",
    plan: Plan = Plan.PRO,
    card_verified: bool = True,
) -> Organization:
    user = owner or await make_user(db)
    actor = Actor(user.id, user.name)
    return await db.write(lambda tx: orgs.create(tx, name, actor, plan=plan, card_verified=card_verified))


async def make_member(db: Database, org: Organization, role: Role = Role.MEMBER, user: User | None = None) -> User:
    user = user or await make_user(db)
    await db.write(lambda tx: members.add(tx, org.id, user.id, role))
    return user


async def make_token(
    db: Database, user: User, org_id: int, *, role: Role | None = None, expires_in_days: int | None = None
) -> str:
    """Return the raw value of a token that the user made; the role defaults to the membership's."""

    def unit(tx):  # type: ignore[no-untyped-def]
        member = members.get(tx, org_id, user.id)
        caller = Caller(user.id, user.email, user.name, None, org_id, Role(member.role), None)
        return tokens.create(tx, org_id, caller, "test", role=role, expires_in_days=expires_in_days)[1]

    return str(await db.write(unit))


def session_for(db: Database, user: User) -> str:
    return Sessions(db.env).make(user.id)
