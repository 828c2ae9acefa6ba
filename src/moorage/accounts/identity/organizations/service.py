"""Creates, renames and deletes organizations; sets their plan, card and secret."""

from __future__ import annotations

import secrets

import msgspec
from sqlalchemy import insert, select, update

from moorage.accounts.identity.organizations import freed_names, members
from moorage.accounts.identity.organizations.freed_names import NameKind
from moorage.accounts.identity.roles import Role
from moorage.accounts.identity.states import InvitationStatus
from moorage.accounts.identity.tables import api_token, invitation, membership, organization
from moorage.accounts.plans.service import Plan, Standing
from moorage.core import jobs
from moorage.core.audit import service as audit
from moorage.core.audit.service import Actor, AuditTarget
from moorage.core.db.query import Command, Query, arg, scalar
from moorage.core.db.scope import across_organizations
from moorage.core.db.tx import Tx
from moorage.core.hooks import Hook
from moorage.core.kit.ids import new_token, slugify
from moorage.core.kit.records import dataclass
from moorage.core.vault import service as vault
from moorage.errors import Conflict, NotFound

MAX_OWNED_BY_USER = 50  # Most limits count per organization.
MAX_OWNED_IN_DEVELOPMENT = 1_000  # A test suite creates an organization for each test, with one user.


@dataclass(frozen=True, slots=True)
class Organization:
    id: int
    name: str
    slug: str
    plan: str
    card_verified: bool
    stripe_customer: str | None
    card_event_at: int
    plan_event_at: int
    suspended_at: int | None
    create_on_push: bool
    created_at: int

    @property
    def standing(self) -> Standing:
        return Standing(self.plan, self.card_verified)


class WelcomeOrganization(msgspec.Struct, frozen=True, tag="identity.welcome_organization"):
    """Send the owner of a new organization a notification with first steps."""

    org_id: int
    user_id: int


class OrganizationDeleted(msgspec.Struct, frozen=True, tag="identity.organization_deleted"):
    """Event: products delete the resources of the organization."""

    org_id: int


# Returns whether another organization uses a slug, such as the owner of a repository.
IS_SLUG_USED: Hook[[Tx, str], bool] = Hook("organization.is_slug_used")

_o = organization.c
_COLUMNS = (
    _o.id,
    _o.name,
    _o.slug,
    _o.plan,
    _o.card_verified,
    _o.stripe_customer,
    _o.card_event_at,
    _o.plan_event_at,
    _o.suspended_at,
    _o.create_on_push,
    _o.created_at,
)
_alive = _o.deleted_at.is_(None)
_BY_ID = Query(select(*_COLUMNS).where((_o.id == arg("org_id")) & _alive), Organization)
_BY_SLUG = Query(select(*_COLUMNS).where((_o.slug == arg("slug")) & _alive), Organization)
_BY_CUSTOMER = Query(select(*_COLUMNS).where((_o.stripe_customer == arg("customer")) & _alive), Organization)
_ADD: Query[int] = Query(
    insert(organization).returning(_o.id),
    scalar,
    sets=(
        "name",
        "slug",
        "plan",
        "card_verified",
        "card_event_at",
        "plan_event_at",
        "create_on_push",
        "created_at",
        "updated_at",
    ),
)
_RENAME = Command(update(organization).where(_o.id == arg("org_id")).values(name=arg("new"), updated_at=arg("now")))
_SET_CREATE_ON_PUSH = Command(
    update(organization).where(_o.id == arg("org_id")).values(create_on_push=arg("new"), updated_at=arg("now"))
)
_DELETE = Command(
    update(organization)
    .where((_o.id == arg("org_id")) & _alive)
    .values(deleted_at=arg("now"), updated_at=arg("now"), slug=arg("freed_slug"), stripe_customer=None)
)
_SET_CARD = Command(
    update(organization)
    .where((_o.id == arg("org_id")) & (_o.card_event_at <= arg("event_at")))
    .values(card_verified=arg("verified"), card_event_at=arg("event_at"), updated_at=arg("now"))
)
_SET_PLAN = Command(
    update(organization)
    .where((_o.id == arg("org_id")) & (_o.plan_event_at <= arg("event_at")))
    .values(plan=arg("new_plan"), plan_event_at=arg("event_at"), updated_at=arg("now"))
)
_SUSPEND = Command(
    update(organization).where(_o.id == arg("org_id")).values(suspended_at=arg("at"), updated_at=arg("now"))
)
_SET_CUSTOMER = Command(
    update(organization).where(_o.id == arg("org_id")).values(stripe_customer=arg("customer"), updated_at=arg("now"))
)
_DROP_MEMBERS = Command(membership.delete().where(membership.c.org_id == arg("org_id")))
_DROP_TOKENS = Command(api_token.delete().where(api_token.c.org_id == arg("org_id")))
_DROP_INVITATIONS = Command(
    update(invitation)
    .where((invitation.c.org_id == arg("org_id")) & (invitation.c.status == InvitationStatus.PENDING.value))
    .values(status=InvitationStatus.REVOKED.value, updated_at=arg("now"))
)


def find(tx: Tx, org_id: int) -> Organization | None:
    return tx.find(_BY_ID, org_id=org_id)


def get(tx: Tx, org_id: int) -> Organization:
    organization = find(tx, org_id)
    if organization is None:
        raise NotFound("There is no such organization")
    return organization


@across_organizations("a webhook names the customer, not the organization")
def find_by_customer(tx: Tx, customer: str) -> Organization | None:
    return tx.find(_BY_CUSTOMER, customer=customer)


@across_organizations("a slug names its organization")
def find_by_slug(tx: Tx, slug: str) -> Organization | None:
    return tx.find(_BY_SLUG, slug=slug)


@across_organizations("the organization does not exist yet")
def create(tx: Tx, name: str, owner: Actor, *, plan: Plan = Plan.FREE, card_verified: bool = False) -> Organization:
    """Create an organization with its owner, secrets and welcome notification."""
    assert owner.user_id is not None
    most = MAX_OWNED_BY_USER if tx.env.settings.is_production else MAX_OWNED_IN_DEVELOPMENT
    if members.count_owned(tx, owner.user_id) >= most:
        raise Conflict(f"A user owns at most {most:,} organizations")
    org_id = tx.one(
        _ADD,
        name=name,
        slug=_free_slug(tx, name),
        plan=plan,
        card_verified=card_verified,
        card_event_at=0,
        plan_event_at=0,
        create_on_push=True,
        created_at=tx.now,
        updated_at=tx.now,
    )
    members.add(tx, org_id, owner.user_id, Role.OWNER)
    vault.put(tx, org_id, "organization", "webhook_secret", new_webhook_secret())
    vault.put(tx, org_id, "organization", "function_token", new_token("fnk_"))
    audit.record(tx, org_id, owner, "organization.created", AuditTarget("organization", name))
    jobs.add(tx, WelcomeOrganization(org_id, owner.user_id), key=f"organization:{org_id}")
    return get(tx, org_id)


def rename(tx: Tx, org_id: int, actor: Actor, name: str) -> Organization:
    before = get(tx, org_id)
    tx.run(_RENAME, org_id=org_id, new=name, now=tx.now)
    audit.record(tx, org_id, actor, "organization.renamed", AuditTarget("organization", name), before=before.name)
    return get(tx, org_id)


def set_create_on_push(tx: Tx, org_id: int, actor: Actor, create_on_push: bool) -> Organization:
    """Set whether a push to a repository that nothing uses creates a project."""
    before = get(tx, org_id)
    if before.create_on_push != create_on_push:
        tx.run(_SET_CREATE_ON_PUSH, org_id=org_id, new=create_on_push, now=tx.now)
        target = AuditTarget("organization", before.name)
        audit.record(tx, org_id, actor, "organization.updated", target, create_on_push=create_on_push)
    return get(tx, org_id)


def delete(tx: Tx, org_id: int, actor: Actor) -> None:
    """Delete an organization with its members and tokens.

    Products delete its resources after OrganizationDeleted.
    """
    organization = get(tx, org_id)
    audit.record(tx, org_id, actor, "organization.deleted", AuditTarget("organization", organization.name))
    # No slug of an organization contains a colon.
    tx.run(_DELETE, org_id=org_id, now=tx.now, freed_slug=f"deleted:{org_id}")
    tx.run(_DROP_MEMBERS, org_id=org_id)
    tx.run(_DROP_TOKENS, org_id=org_id)
    tx.run(_DROP_INVITATIONS, org_id=org_id, now=tx.now)
    vault.remove_all(tx, org_id, "organization")
    freed_names.reserve(tx, org_id, NameKind.SLUG, organization.slug)
    jobs.add(tx, OrganizationDeleted(org_id), key=f"organization:{org_id}")


def set_card(tx: Tx, org_id: int, actor: Actor, *, verified: bool, event_at: int | None = None) -> bool:
    """Set the card status. Return False if a newer event has set it already."""
    if tx.run(_SET_CARD, org_id=org_id, verified=verified, event_at=event_at or tx.now, now=tx.now) == 0:
        return False
    action = "billing.card_verified" if verified else "billing.card_removed"
    audit.record(tx, org_id, actor, action, AuditTarget("organization", get(tx, org_id).name))
    return True


def set_plan(tx: Tx, org_id: int, actor: Actor, plan: Plan, *, event_at: int | None = None) -> bool:
    """Change the plan. Return False if a newer event has set it already."""
    if tx.run(_SET_PLAN, org_id=org_id, new_plan=plan, event_at=event_at or tx.now, now=tx.now) == 0:
        return False
    audit.record(
        tx, org_id, actor, "billing.plan_changed", AuditTarget("organization", get(tx, org_id).name), plan=plan
    )
    return True


def suspend(tx: Tx, org_id: int, actor: Actor, *, suspended: bool) -> None:
    """Refuse all requests to an organization, or lift that. Safe to repeat."""
    organization = get(tx, org_id)
    if (organization.suspended_at is not None) == suspended:
        return
    tx.run(_SUSPEND, org_id=org_id, at=tx.now if suspended else None, now=tx.now)
    action = "organization.suspended" if suspended else "organization.unsuspended"
    audit.record(tx, org_id, actor, action, AuditTarget("organization", organization.name))


def set_customer(tx: Tx, org_id: int, customer: str) -> None:
    tx.run(_SET_CUSTOMER, org_id=org_id, customer=customer, now=tx.now)


def reveal_webhook_secret(tx: Tx, org_id: int, actor: Actor) -> str:
    """Return the secret that signs alert webhooks; records the actor."""
    value = vault.find(tx, org_id, "organization", "webhook_secret")
    if value is None:
        raise NotFound("There is no such organization")
    audit.record(
        tx, org_id, actor, "organization.webhook_secret_revealed", AuditTarget("organization", get(tx, org_id).name)
    )
    return value


def new_webhook_secret() -> str:
    return "whs_" + secrets.token_hex(32)


@across_organizations("a slug is unique over all organizations")
def _free_slug(tx: Tx, name: str) -> str:
    slug = slugify(name, "org")
    while not _is_free(tx, slug):
        slug = f"{slugify(name, 'org')[:40]}-{secrets.token_hex(3)}"
    return slug


@across_organizations("a slug is unique over all organizations")
def _is_free(tx: Tx, slug: str) -> bool:
    """Return whether a slug is available to a new organization."""
    if tx.find(_BY_SLUG, slug=slug) is not None or freed_names.is_reserved(tx, 0, NameKind.SLUG, slug):
        return False
    uses: list[bool] = tx.env.hooks.call(IS_SLUG_USED, tx, slug)
    return not any(uses)
