"""Tables of custom domains, and of the last holder of each domain."""

from __future__ import annotations

from sqlalchemy import (
    Column,
    ForeignKey,
    Index,
    Integer,
    UniqueConstraint,
    case,
    delete,
    func,
    select,
    update,
)
from sqlalchemy.sql.elements import ClauseElement

from moorage.core.db.query import Command, Query, arg, columns, insert_or_ignore, pair, scalar
from moorage.core.db.schema import Id, id_column, millis, partial_index, table, text
from moorage.core.kit.records import dataclass
from moorage.products.domains.states import DomainStatus
from moorage.products.projects.tables import project

custom_domain = table(
    "custom_domain",
    id_column(),
    Column("org_id", Id, nullable=False),
    Column("project_id", Id, ForeignKey("project.id"), nullable=False),
    text("domain"),  # lower case, punycode
    text("token"),  # required value of its TXT record
    text("status"),  # DomainStatus
    text("certificate_status"),  # CertificateStatus
    text("last_error", nullable=True),
    Column("missed", Integer, nullable=False),  # consecutive checks of a verified domain that did not find its record
    millis("next_check_at"),  # time of the next check of a verified domain
    millis("certificate_at", nullable=True),  # time of the latest certificate request to the gateway
    millis("verified_at", nullable=True),
    millis("created_at"),
    millis("updated_at"),
    UniqueConstraint("org_id", "domain"),
)
Index("ix_custom_domain_project_id", custom_domain.c.project_id)
Index("ix_custom_domain_domain", custom_domain.c.domain)
_is_verified = custom_domain.c.status == DomainStatus.VERIFIED.value
# The database enforces one owner when two organizations verify a domain at the same time.
partial_index(
    "uq_custom_domain_verified",
    custom_domain.c.domain,
    unique=True,
    where=_is_verified,
)
Index("ix_custom_domain_status_next_check_at", custom_domain.c.status, custom_domain.c.next_check_at)

# Kept after the domain is released: its CNAME may still point to a project name that another organization has now.
domain_holder = table(
    "domain_holder",
    id_column(),
    text("domain", unique=True),
    Column("org_id", Id, nullable=False),  # the organization that verified the domain last
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


_d, _p, _h = custom_domain.c, project.c, domain_holder.c
_mine = _d.org_id == arg("org_id")
_this = _mine & (_d.id == arg("id"))
_named = _d.domain == arg("domain")
_all = select(*columns(custom_domain), _p.name).join(project, _p.id == _d.project_id)


def _locked(dialect: str) -> ClauseElement:
    """Select and lock all claims on a domain, to serialise ownership decisions."""
    claims = _all.where(_named).order_by(_d.id)
    return claims.with_for_update(of=custom_domain) if dialect == "postgresql" else claims


FIND = Query(_all.where(_this), Domain)
LOCK = Query(_locked, Domain)
OF_PROJECT = Query(_all.where(_mine & (_d.project_id == arg("project_id"))).order_by(_d.id), Domain)
_count = select(func.count()).select_from(custom_domain).where(_mine)
COUNT_OF_ORG: Query[int] = Query(_count, scalar)
COUNT_OF_PROJECT: Query[int] = Query(_count.where(_d.project_id == arg("project_id")), scalar)
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
# The error of a missing DNS record has precedence over a certificate error.
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
