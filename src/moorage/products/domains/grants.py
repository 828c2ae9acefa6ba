"""First certificate grants of names, which the weekly budget counts.

Names are stored without the platform's domain, which the operator may change.
"""

from __future__ import annotations

from enum import StrEnum

from sqlalchemy import Column, Index, UniqueConstraint, delete, literal, select, union_all

from moorage.core.db.query import Command, Query, arg, insert_or_ignore, scalar
from moorage.core.db.schema import Id, id_column, millis, table, text
from moorage.core.db.tx import Tx
from moorage.core.kit.clock import DAY_MS, to_wire
from moorage.products.projects.tables import preview, project, project_name

WEEK_MS = 7 * DAY_MS


class Kind(StrEnum):
    SUBDOMAIN = "subdomain"  # of a project or preview, below the platform's domain
    FORMER = "former"  # the former name of a renamed project; never stored
    DOMAIN = "domain"  # a custom domain
    FUNCTIONS = "functions"  # the organization's host for functions


certificate_grant = table(
    "certificate_grant",
    id_column(),
    Column("org_id", Id, nullable=False),
    text("kind"),  # Kind
    text("name"),  # custom domain: the whole name; project: the project's name; host for functions: empty
    millis("at"),
    UniqueConstraint("org_id", "kind", "name"),
)
Index("ix_certificate_grant_org_id_at", certificate_grant.c.org_id, certificate_grant.c.at)

_g, _p, _v, _n = certificate_grant.c, project.c, preview.c, project_name.c
_mine = _g.org_id == arg("org_id")
_FIND: Query[int] = Query(select(literal(1)).where(_mine & (_g.kind == arg("kind")) & (_g.name == arg("name"))), scalar)
_RECENT: Query[int] = Query(
    select(_g.at).where(_mine & (_g.at > arg("since"))).order_by(_g.at.desc()).limit(arg("most")), scalar
)
_ADD: Query[int] = Query(insert_or_ignore(certificate_grant), scalar, sets=("org_id", "kind", "name", "at"))
_DELETE_OF_ORG = Command(delete(certificate_grant).where(_mine))

OWNER_OF_SUBDOMAIN: Query[int] = Query(
    union_all(
        select(_p.org_id).where(_p.name == arg("name")),
        select(_v.org_id).where((_v.name == arg("name")) & (_v.status == "active")),
    ).limit(1),
    scalar,
)
OWNER_OF_FORMER: Query[int] = Query(
    select(_n.org_id).where((_n.name == arg("name")) & (_n.until >= arg("since"))).order_by(_n.until.desc()).limit(1),
    scalar,
)


def is_granted(tx: Tx, org_id: int, kind: Kind, name: str) -> bool:
    return tx.find(_FIND, org_id=org_id, kind=kind, name=name) is not None


def why_refused(tx: Tx, org_id: int) -> str | None:
    """Return the refusal message if the weekly budget is used up, else None."""
    most = tx.env.settings.certificates_per_week
    recent = tx.all(_RECENT, org_id=org_id, since=tx.now - WEEK_MS, most=most)
    if len(recent) < most:
        return None
    return (
        f"No certificate was issued: this organization has got {most} certificates for new names in the last 7 days, "
        f"the most that are allowed. The next one can be issued from {to_wire(recent[-1] + WEEK_MS)} on."
    )


def why_no_certificate(tx: Tx, org_id: int, domain: str) -> str | None:
    """Return the refusal message if the budget denies a domain its certificate."""
    return None if is_granted(tx, org_id, Kind.DOMAIN, domain) else why_refused(tx, org_id)


def add(tx: Tx, org_id: int, kind: Kind, name: str) -> None:
    """Record a grant. Safe to repeat."""
    tx.find(_ADD, org_id=org_id, kind=kind, name=name, at=tx.now)


def remove_of_organization(tx: Tx, org_id: int) -> None:
    tx.run(_DELETE_OF_ORG, org_id=org_id)
