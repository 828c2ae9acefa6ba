"""Finds, creates and changes users; stores the platform's own facts."""

from __future__ import annotations

import re
from typing import Any, NamedTuple

from sqlalchemy import delete, insert, select, update

from moorage.accounts.identity.states import APPROVAL, Approval
from moorage.accounts.identity.tables import account, account_login, platform_fact
from moorage.core.db.query import Command, Query, arg, columns, insert_or_ignore, scalar
from moorage.core.db.scope import across_organizations
from moorage.core.db.tx import Tx, move
from moorage.errors import Conflict, NotFound

EMAIL = re.compile(r"[^@\s<>,;:\"()\[\]\\]{1,64}@[A-Za-z0-9](?:[A-Za-z0-9.-]{0,251}[A-Za-z0-9])?")
_WHY = "a user does not belong to an organization; memberships do"


class User(NamedTuple):
    id: int
    email: str
    username: str
    first_name: str
    last_name: str
    avatar_url: str | None
    mfa_enabled: bool
    status: str
    suspended_at: int | None
    terms_accepted_at: int | None
    operator_at: int | None
    created_at: int
    updated_at: int

    @property
    def name(self) -> str:
        return f"{self.first_name} {self.last_name}".strip()

    @property
    def profile_completed(self) -> bool:
        return bool(self.first_name and self.last_name)


_u = account.c
_BY_ID = Query(select(*columns(account)).where(_u.id == arg("id")), User)
_BY_EMAIL = Query(select(*columns(account)).where(_u.email == arg("email")), User)
_OLDEST = Query(select(*columns(account)).order_by(_u.id).limit(1), User)
_BY_LOGIN = Query(
    select(*columns(account))
    .join(account_login, account_login.c.user_id == _u.id)
    .where((account_login.c.issuer == arg("issuer")) & (account_login.c.subject == arg("subject"))),
    User,
)
_ADD: Query[int] = Query(
    insert(account).returning(_u.id),
    scalar,
    sets=(
        "email",
        "username",
        "first_name",
        "last_name",
        "avatar_url",
        "mfa_enabled",
        "status",
        "terms_accepted_at",
        "created_at",
        "updated_at",
    ),
)
_ADD_LOGIN: Query[int] = Query(
    insert_or_ignore(account_login), scalar, sets=("user_id", "issuer", "subject", "created_at")
)
_UPDATE = Command(
    update(account)
    .where(_u.id == arg("id"))
    .values(
        username=arg("username"),
        first_name=arg("first_name"),
        last_name=arg("last_name"),
        avatar_url=arg("avatar_url"),
        updated_at=arg("now"),
    )
)
_SUSPEND = Command(update(account).where(_u.id == arg("id")).values(suspended_at=arg("at"), updated_at=arg("now")))
_SET_OPERATOR = Command(update(account).where(_u.id == arg("id")).values(operator_at=arg("at"), updated_at=arg("now")))
_OPERATORS = Query(select(*columns(account)).where(_u.operator_at.is_not(None)).order_by(_u.email), User)
_ACCEPT_TERMS = Command(
    update(account).where(_u.id == arg("id")).values(terms_accepted_at=arg("now"), updated_at=arg("now"))
)
_DELETE = Command(delete(account).where(_u.id == arg("id")))
_FACT = Query(select(platform_fact.c.value).where(platform_fact.c.name == arg("name")), scalar)
_REMOVE_FACT = Command(delete(platform_fact).where(platform_fact.c.name == arg("name")))
_ADD_FACT: Query[int] = Query(
    insert(platform_fact).returning(platform_fact.c.id), scalar, sets=("name", "value", "updated_at")
)


@across_organizations(_WHY)
def find(tx: Tx, user_id: int) -> User | None:
    return tx.find(_BY_ID, id=user_id)


@across_organizations(_WHY)
def get(tx: Tx, user_id: int) -> User:
    user = find(tx, user_id)
    if user is None:
        raise NotFound("There is no such user")
    return user


@across_organizations(_WHY)
def find_by_email(tx: Tx, email: str) -> User | None:
    return tx.find(_BY_EMAIL, email=normal_email(email))


@across_organizations(_WHY)
def find_by_login(tx: Tx, issuer: str, subject: str) -> User | None:
    return tx.find(_BY_LOGIN, issuer=issuer, subject=subject)


@across_organizations(_WHY)
def find_oldest(tx: Tx) -> User | None:
    return tx.find(_OLDEST)


@across_organizations(_WHY)
def add(tx: Tx, email: str, **facts: Any) -> User:
    """Create a user; raises Conflict if the address is taken."""
    if find_by_email(tx, email) is not None:
        raise Conflict(f"cannot create user {normal_email(email)}: the address is taken")
    return insert_new(tx, email, **facts)


@across_organizations(_WHY)
def insert_new(
    tx: Tx,
    email: str,
    *,
    first_name: str = "",
    last_name: str = "",
    avatar_url: str | None = None,
    status: Approval,
    terms_accepted: bool = True,
) -> User:
    """Create a user after a lookup of the address.

    If a concurrent transaction creates the same user, the unit of work is repeated and finds it.
    """
    email = normal_email(email)
    user_id = tx.one(
        _ADD,
        email=email,
        username=email.partition("@")[0],
        first_name=first_name,
        last_name=last_name,
        avatar_url=avatar_url,
        mfa_enabled=False,
        status=status,
        terms_accepted_at=tx.now if terms_accepted else None,
        created_at=tx.now,
        updated_at=tx.now,
    )
    return get(tx, user_id)


@across_organizations(_WHY)
def add_login(tx: Tx, user: User, issuer: str, subject: str) -> None:
    """Link an identity of an issuer to a user. Safe to repeat."""
    tx.find(_ADD_LOGIN, user_id=user.id, issuer=issuer, subject=subject, created_at=tx.now)


@across_organizations(_WHY)
def accept_terms(tx: Tx, user: User) -> None:
    tx.run(_ACCEPT_TERMS, id=user.id, now=tx.now)


@across_organizations(_WHY)
def change(tx: Tx, user: User, changes: dict[str, object]) -> User:
    values = {name: getattr(user, name) for name in ("username", "first_name", "last_name", "avatar_url")}
    tx.run(_UPDATE, id=user.id, now=tx.now, **{**values, **changes})
    return get(tx, user.id)


@across_organizations(_WHY)
def approve(tx: Tx, user: User) -> None:
    if user.status != Approval.APPROVED:
        move(tx, APPROVAL, user, to=Approval.APPROVED)


@across_organizations(_WHY)
def suspend(tx: Tx, user: User, *, suspended: bool) -> None:
    tx.run(_SUSPEND, id=user.id, at=tx.now if suspended else None, now=tx.now)


@across_organizations(_WHY)
def set_operator(tx: Tx, user: User, *, is_operator: bool) -> None:
    tx.run(_SET_OPERATOR, id=user.id, at=tx.now if is_operator else None, now=tx.now)


@across_organizations(_WHY)
def all_operators(tx: Tx) -> list[User]:
    return tx.all(_OPERATORS)


@across_organizations(_WHY)
def remove(tx: Tx, user: User) -> None:
    tx.run(_DELETE, id=user.id)


@across_organizations("a fact about the platform, not about an organization")
def find_fact(tx: Tx, name: str) -> str | None:
    return tx.find(_FACT, name=name)


@across_organizations("a fact about the platform, not about an organization")
def remove_fact(tx: Tx, name: str) -> bool:
    """Remove a fact. Of two concurrent callers, only one gets True."""
    return tx.run(_REMOVE_FACT, name=name) > 0


@across_organizations("a fact about the platform, not about an organization")
def set_fact(tx: Tx, name: str, value: str | None) -> None:
    remove_fact(tx, name)
    if value is not None:
        tx.one(_ADD_FACT, name=name, value=value, updated_at=tx.now)


def normal_email(email: str) -> str:
    return email.strip().lower()


def is_email(email: str) -> bool:
    return len(email) <= 254 and ".." not in email and EMAIL.fullmatch(email) is not None
