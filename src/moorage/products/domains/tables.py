"""Custom domains, and who proved each domain last."""

from __future__ import annotations

from dataclasses import dataclass

from sqlalchemy import (
    Column,
    ForeignKey,
    Index,
    Integer,
    UniqueConstraint,
    case,
    delete,
    select,
    update,
)
from sqlalchemy.sql.elements import ClauseElement

from moorage.core.db.query import Command, Query, arg, columns, insert_or_ignore, pair, scalar
from moorage.core.db.schema import Id, id_column, millis, table, text
from moorage.products.domains.states import DomainStatus
from moorage.products.projects.tables import preview, project, project_name

custom_domain = table(
    "custom_domain",
    id_column(),
    Column("org_id", Id, nullable=False),
    Column("project_id", Id, ForeignKey("project.id"), nullable=False),
    text("domain"),  # lower case, punycode
    text("token"),  # what its TXT record has to hold
    text("status"),  # DomainStatus
    text("certificate_status"),  # CertificateStatus
    text("last_error", nullable=True),
    Column("missed", Integer, nullable=False),  # checks in a row that did not find the record of a verified domain
    millis("next_check_at"),  # when a verified domain is looked at again
    millis("certificate_at", nullable=True),  # when the gateway was last asked for its certificate
    millis("verified_at", nullable=True),
    millis("created_at"),
    millis("updated_at"),
    UniqueConstraint("org_id", "domain"),
)
Index("ix_custom_domain_project_id", custom_domain.c.project_id)
Index("ix_custom_domain_domain", custom_domain.c.domain)
_is_verified = custom_domain.c.status == DomainStatus.VERIFIED.value
# Of two organizations that prove a domain in the same moment one gets it: the store itself sees to that.
Index(
    "uq_custom_domain_verified",
    custom_domain.c.domain,
    unique=True,
    sqlite_where=_is_verified,
    postgresql_where=_is_verified,
)
Index("ix_custom_domain_status_next_check_at", custom_domain.c.status, custom_domain.c.next_check_at)

# Stays when the domain is released: its CNAME may still lead to a project's name that somebody else has by now.
domain_holder = table(
    "domain_holder",
    id_column(),
    text("domain", unique=True),
    Column("org_id", Id, nullable=False),  # who proved it last
    millis("at"),
)


@dataclass(frozen=True, slots=True)
class Domain:
    id: int
    org_id: int
    project_id: int
    domain: str
    token: str
    status: str
    certificate_status: str
    last_error: str | None
    missed: int
    next_check_at: int
    certificate_at: int | None
    verified_at: int | None
    created_at: int
    updated_at: int
    project_name: str


_d, _p, _n, _v, _h = custom_domain.c, project.c, project_name.c, preview.c, domain_holder.c
_mine = _d.org_id == arg("org_id")
_this = _mine & (_d.id == arg("id"))
_named = _d.domain == arg("domain")
_all = select(*columns(custom_domain), _p.name).join(project, _p.id == _d.project_id)


def _locked(dialect: str) -> ClauseElement:
    """All who have a domain, held until the transaction ends: of two decisions the second builds on the first."""
    found = _all.where(_named).order_by(_d.id)
    return found.with_for_update(of=custom_domain) if dialect == "postgresql" else found


FIND = Query(_all.where(_this), Domain)
LOCK = Query(_locked, Domain)
FIND_NAMED: Query[int] = Query(select(_d.id).where(_mine & _named), scalar)
OF_PROJECT = Query(_all.where(_mine & (_d.project_id == arg("project_id"))).order_by(_d.id), Domain)
HOLDER = Query(_all.where(_named & _is_verified), Domain)
DUE = Query(
    _all.where(_is_verified & (_d.next_check_at <= arg("now"))).order_by(_d.next_check_at).limit(arg("most")), Domain
)
SERVED: Query[tuple[str, int]] = Query(select(_d.domain, _d.project_id).where(_is_verified), pair)
OWNER: Query[tuple[int, int]] = Query(select(_d.org_id, _d.project_id).where(_named & _is_verified), pair)
HOSTS_OF: Query[str] = Query(
    select(_d.domain).where(_mine & (_d.project_id == arg("project_id")) & _is_verified), scalar
)
NULL_AT_FIRST = ("id", "last_error", "certificate_at", "verified_at")
ADD: Query[int] = Query(
    insert_or_ignore(custom_domain),
    scalar,
    sets=tuple(column.name for column in custom_domain.c if column.name not in NULL_AT_FIRST),
)
NOTE_CHECK = Command(
    update(custom_domain)
    .where(_this)
    .values(
        last_error=arg("error"),
        missed=arg("missed"),
        next_check_at=arg("next_check_at"),
        certificate_status=arg("certificate"),
        updated_at=arg("now"),
    )
)
# A domain whose record is missing says so; what its certificate met comes after that.
NOTE_CERTIFICATE = Command(
    update(custom_domain)
    .where(_this & _is_verified)
    .values(
        certificate_status=arg("certificate"),
        certificate_at=arg("now"),
        last_error=case((_d.missed == 0, arg("error", _d.last_error.type)), else_=_d.last_error),
        updated_at=arg("now"),
    )
)
DELETE = Command(delete(custom_domain).where(_this))
TAKE_OF_PROJECT: Query[str] = Query(
    delete(custom_domain).where(_mine & (_d.project_id == arg("project_id"))).returning(_d.domain), scalar
)
TAKE_OF_ORG: Query[str] = Query(delete(custom_domain).where(_mine).returning(_d.domain), scalar)

LAST_HOLDER: Query[int] = Query(select(_h.org_id).where(_h.domain == arg("domain")), scalar)
ADD_HOLDER: Query[int] = Query(insert_or_ignore(domain_holder), scalar, sets=("domain", "org_id", "at"))
SET_HOLDER = Command(
    update(domain_holder).where(_h.domain == arg("domain")).values(org_id=arg("org_id"), at=arg("now"))
)
