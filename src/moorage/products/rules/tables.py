"""Tables of header and redirect rules. A project's rules are replaced as a whole."""

from __future__ import annotations

from sqlalchemy import Column, ForeignKey, Integer, UniqueConstraint, delete, insert, select

from moorage.core.db.query import Command, Query, arg
from moorage.core.db.schema import Id, id_column, table, text
from moorage.core.kit.records import dataclass
from moorage.products.rules.patterns import HeaderRule, RedirectRule

header_rule = table(
    "header_rule",
    id_column(),
    Column("org_id", Id, nullable=False),
    Column("project_id", Id, ForeignKey("project.id"), nullable=False),
    Column("place", Integer, nullable=False),  # from 0, without gaps
    text("source"),
    text("name"),
    text("value"),
    UniqueConstraint("project_id", "place"),
)

redirect_rule = table(
    "redirect_rule",
    id_column(),
    Column("org_id", Id, nullable=False),
    Column("project_id", Id, ForeignKey("project.id"), nullable=False),
    Column("place", Integer, nullable=False),  # from 0, without gaps
    text("source"),
    text("destination"),
    Column("status", Integer, nullable=False),
    UniqueConstraint("project_id", "place"),
)


@dataclass(frozen=True, slots=True)
class StoredHeader:
    id: int
    rule: HeaderRule

    @classmethod
    def of(cls, rule_id: int, source: str, name: str, value: str) -> StoredHeader:
        return cls(rule_id, HeaderRule(source, name, value))


@dataclass(frozen=True, slots=True)
class StoredRedirect:
    id: int
    rule: RedirectRule

    @classmethod
    def of(cls, rule_id: int, source: str, destination: str, status: int) -> StoredRedirect:
        return cls(rule_id, RedirectRule(source, destination, status))


_h, _r = header_rule.c, redirect_rule.c
_headers = (_h.org_id == arg("org_id")) & (_h.project_id == arg("project_id"))
_redirects = (_r.org_id == arg("org_id")) & (_r.project_id == arg("project_id"))

HEADERS_OF = Query(
    select(_h.id, _h.source, _h.name, _h.value).where(_headers).order_by(_h.place),
    StoredHeader.of,
)
REDIRECTS_OF = Query(
    select(_r.id, _r.source, _r.destination, _r.status).where(_redirects).order_by(_r.place),
    StoredRedirect.of,
)
ADD_HEADER = Command(insert(header_rule), sets=("org_id", "project_id", "place", "source", "name", "value"))
ADD_REDIRECT = Command(insert(redirect_rule), sets=("org_id", "project_id", "place", "source", "destination", "status"))
DELETE_HEADERS = Command(delete(header_rule).where(_headers))
DELETE_REDIRECTS = Command(delete(redirect_rule).where(_redirects))

EVERY_HEADER: Query[tuple[int, HeaderRule]] = Query(
    select(_h.project_id, _h.source, _h.name, _h.value).order_by(_h.project_id, _h.place),
    lambda project_id, *rule: (project_id, HeaderRule(*rule)),
)
EVERY_REDIRECT: Query[tuple[int, RedirectRule]] = Query(
    select(_r.project_id, _r.source, _r.destination, _r.status).order_by(_r.project_id, _r.place),
    lambda project_id, *rule: (project_id, RedirectRule(*rule)),
)
