"""Tables of the gateways that share a store, and of the generation of their routes."""

from __future__ import annotations

from sqlalchemy import BigInteger, Column, delete, select
from sqlalchemy.sql.elements import ClauseElement

from moorage.core.db.query import Command, Query, arg, insert_for, scalar
from moorage.core.db.schema import id_column, millis, table, text
from moorage.core.machines.tables import server_clock

# One row, increased by each change that gateways have to follow before it has further effects.
route_generation = table("route_generation", id_column(), Column("value", BigInteger, nullable=False))
THE_ROW = 1

gateway = table(
    "gateway",
    id_column(),
    text("key", unique=True),  # such as `machine:7`
    Column("generation", BigInteger, nullable=False),  # of the routes that the gateway serves, or a newer one
    millis("heartbeat_at"),  # by the clock of the database server
)

_r, _g = route_generation.c, gateway.c


def _advance(dialect: str) -> ClauseElement:
    added = insert_for(dialect)(route_generation).values(id=THE_ROW, value=1)
    statement: ClauseElement = added.on_conflict_do_update(index_elements=["id"], set_={"value": _r.value + 1})
    return statement


def _serve(dialect: str) -> ClauseElement:
    values = {"generation": arg("generation"), "heartbeat_at": server_clock(dialect)}
    added = insert_for(dialect)(gateway).values(key=arg("key"), **values)
    statement: ClauseElement = added.on_conflict_do_update(index_elements=["key"], set_=values)
    return statement


def _lagging(dialect: str) -> ClauseElement:
    is_live = server_clock(dialect) - _g.heartbeat_at < arg("lease_ms")
    return select(_g.key).where((_g.generation < arg("generation")) & is_live).order_by(_g.id)


def _forget_stale(dialect: str) -> ClauseElement:
    return delete(gateway).where(server_clock(dialect) - _g.heartbeat_at >= arg("stale_ms"))


ADVANCE = Command(_advance)
CURRENT: Query[int] = Query(select(_r.value), scalar)
SERVE = Command(_serve)
LAGGING: Query[str] = Query(_lagging, scalar)
FORGET_STALE = Command(_forget_stale)
FORGET = Command(delete(gateway).where(_g.key == arg("key")))
