"""Logins: with an OpenID identity, as the demo user, or by the setup link."""

from __future__ import annotations

import hmac
import secrets

from moorage.accounts.identity import tokens, users
from moorage.accounts.identity.caller import Caller
from moorage.accounts.identity.oidc import Identity
from moorage.accounts.identity.operators.role import DEMO_EMAIL as DEMO_EMAIL
from moorage.accounts.identity.organizations import members
from moorage.accounts.identity.organizations import service as orgs
from moorage.accounts.identity.roles import Role
from moorage.accounts.identity.states import Approval
from moorage.accounts.identity.users import User
from moorage.accounts.plans.service import Plan
from moorage.core.audit.service import Actor
from moorage.core.db.scope import across_organizations
from moorage.core.db.tx import Tx
from moorage.core.kit.ids import token_hash
from moorage.errors import Forbidden, NotFound, bad_field
from moorage.settings import Signup

KEPT_NAME = "moorage up"  # name of the API token of a development platform
SETUP = "setup_token_hash"
_SETUP_USED = "The setup link is not valid, or was used; restart the platform for a new one"
_WHY = "a login has no organization yet"


@across_organizations(_WHY)
def social(tx: Tx, identity: Identity, *, terms_accepted: bool) -> User:
    """Return the user of an identity.

    A first login creates the user and an organization. A user that the operator created also has to accept the terms.
    """
    user = users.find_by_login(tx, identity.issuer, identity.subject)
    if user is None:
        user = users.find_by_email(tx, identity.email)
        if user is None:
            user = _sign_up(tx, identity, terms_accepted=terms_accepted)
        users.add_login(tx, user, identity.issuer, identity.subject)
    if user.suspended_at is not None:
        raise Forbidden("This user is suspended")
    if user.terms_accepted_at is None:
        _check_terms(terms_accepted)
        users.accept_terms(tx, user)
    return user


@across_organizations(_WHY)
def _sign_up(tx: Tx, identity: Identity, *, terms_accepted: bool) -> User:
    signup = tx.env.settings.signup
    if signup is Signup.CLOSED:
        raise Forbidden("Sign-ups are closed; ask the operator for an account")
    if not users.is_email(users.normal_email(identity.email)):
        raise bad_field("auth_secret", "carries a mail address that is not valid")
    _check_terms(terms_accepted)
    status = Approval.PENDING if signup is Signup.APPROVAL else Approval.APPROVED
    user = users.insert_new(
        tx,
        identity.email,
        first_name=identity.first_name,
        last_name=identity.last_name,
        avatar_url=identity.picture,
        status=status,
    )
    personal_organization(tx, user)
    return user


def _check_terms(accepted: bool) -> None:
    if not accepted:
        raise bad_field("terms_accepted", "must be true at the first login")


@across_organizations(_WHY)
def personal_organization(tx: Tx, user: User, *, plan: Plan = Plan.FREE, card_verified: bool = False) -> int:
    name = f"{user.name or user.username}'s organization"
    actor = Actor(user.id, user.name or user.email)
    return orgs.create(tx, name, actor, plan=plan, card_verified=card_verified).id


@across_organizations(_WHY)
def demo(tx: Tx) -> tuple[User, int]:
    """Return the demo user and its organization: paid and verified; created on demand."""
    if tx.env.settings.is_production:
        raise NotFound("There is nothing at this address")
    user = users.find_by_email(tx, DEMO_EMAIL)
    if user is None:
        user = users.insert_new(tx, DEMO_EMAIL, first_name="Demo", last_name="User", status=Approval.APPROVED)
        return user, personal_organization(tx, user, plan=Plan.PRO, card_verified=True)
    # The demo user may be a member of other organizations by invitation.
    owned = [mine.org_id for mine in members.memberships(tx, user.id) if mine.role == Role.OWNER]
    return user, owned[0] if owned else personal_organization(tx, user, plan=Plan.PRO, card_verified=True)


@across_organizations(_WHY)
def demo_token(tx: Tx, kept: str) -> str:
    """Return an API token of the demo organization: the kept one while it is valid.

    The token has no expiry.
    """
    user, org_id = demo(tx)
    if kept and tokens.is_valid(tx, org_id, user.id, kept):
        return kept
    _, raw = tokens.create(tx, org_id, _demo_owner(user, org_id), KEPT_NAME)
    return raw


@across_organizations(_WHY)
def revoke_demo_tokens(tx: Tx) -> None:
    """Revoke the tokens that `demo_token` made; they must not work in production."""
    user = users.find_by_email(tx, DEMO_EMAIL)
    if user is None:
        return
    for mine in members.memberships(tx, user.id):
        for token in tokens.named(tx, mine.org_id, user.id, KEPT_NAME):
            tokens.revoke(tx, mine.org_id, _demo_owner(user, mine.org_id), token.id)


def _demo_owner(user: User, org_id: int) -> Caller:
    return Caller(user.id, user.email, user.name, None, org_id, Role.OWNER, None)


@across_organizations("the first owner exists before any organization")
def offer_setup(tx: Tx) -> str | None:
    """Return a new one-time setup token while the platform has no user, else None."""
    if users.find_oldest(tx) is not None:
        users.set_fact(tx, SETUP, None)
        return None
    token = secrets.token_urlsafe(32)
    users.set_fact(tx, SETUP, token_hash(token))
    return token


@across_organizations("the first owner exists before any organization")
def set_up(tx: Tx, token: str, email: str, name: str) -> User:
    """Create the first owner. The token is valid once."""
    expected = users.find_fact(tx, SETUP)
    if users.find_oldest(tx) is not None:
        raise Forbidden(_SETUP_USED)
    if expected is None or not hmac.compare_digest(expected, token_hash(token)):
        raise Forbidden(_SETUP_USED)
    if not users.remove_fact(tx, SETUP):
        raise Forbidden(_SETUP_USED)
    first, _, last = name.partition(" ")
    user = users.add(tx, email, first_name=first, last_name=last, status=Approval.APPROVED)
    personal_organization(tx, user, plan=Plan.PRO, card_verified=True)
    return user
