"""Statements that record a batch of checks with a fixed number of queries."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec
from sqlalchemy import JSON, BigInteger, ColumnElement, Select, cast, func, insert, select, update
from sqlalchemy.sql.elements import ClauseElement

from moorage.core.db.query import Command, Query, arg, columns, insert_for, pair, sets_of
from moorage.products.monitors.states import MonitorStatus
from moorage.products.monitors.tables import Monitor, heartbeat, monitor, rollup, state

_m, _s, _h, _r = monitor.c, state.c, heartbeat.c, rollup.c


def as_list(values: Iterable[Any]) -> str:
    """Encode ids or pairs of numbers as a JSON parameter of these statements."""
    return msgspec.json.encode(list(values)).decode()


def ids_of(dialect: str) -> Select[Any]:
    """Select the numbers of the parameter `ids`, a JSON array."""
    if dialect == "sqlite":
        return select(func.json_each(arg("ids")).table_valued("value").c.value)
    texts = func.json_array_elements_text(cast(arg("ids"), JSON)).table_valued("value")
    return select(cast(texts.c.value, BigInteger))


def _hold(dialect: str) -> ClauseElement:
    """Lock, by id, the running monitors of `ids` that a prober holds."""
    held = (_m.prober == arg("prober")) & (_m.status == MonitorStatus.RUNNING.value)
    return select(*columns(monitor)).where(_m.id.in_(ids_of(dialect)) & held).order_by(_m.id).with_for_update()


def _known(dialect: str) -> ClauseElement:
    """Select the recorded `beats`, a JSON array of pairs of monitor id and slot."""

    def number(index: int) -> ColumnElement[int]:
        if dialect == "sqlite":
            return func.json_extract(each.c.value, f"$[{index}]", type_=BigInteger)
        return cast(each.c.value.op("->>")(index), BigInteger)

    if dialect == "sqlite":
        each = func.json_each(arg("beats")).table_valued("value")
    else:
        each = func.json_array_elements(cast(arg("beats"), JSON)).table_valued("value")
    is_it = (_h.monitor_id == number(0)) & (_h.slot == number(1))
    return select(_h.monitor_id, _h.slot).select_from(each.join(heartbeat, is_it))


def _add_to_rollup(dialect: str) -> ClauseElement:
    make = insert_for(dialect)
    added = make(rollup)
    sums = {name: _r[name] + added.excluded[name] for name in ("up", "down", "response_sum")}
    statement: ClauseElement = added.on_conflict_do_update(index_elements=["monitor_id", "span_s", "start"], set_=sums)
    return statement


HOLD = Query(_hold, Monitor)
KNOWN: Query[tuple[int, int]] = Query(_known, pair)
ADD_HEARTBEAT = Command(insert(heartbeat), sets=sets_of(heartbeat))
ADD_TO_ROLLUP = Command(_add_to_rollup, sets=sets_of(rollup))

_CERTIFICATE = ("ssl_subject", "ssl_issuer", "ssl_valid_to", "ssl_fingerprint")
SET_STATE = Command(
    update(state)
    .where((_s.org_id == arg("org_id")) & (_s.monitor_id == arg("monitor_id")))
    .values(
        last_status=arg("status"),
        last_response_ms=arg("response_ms"),
        last_code=arg("code"),
        last_at=arg("at"),
        last_slot=arg("slot"),
        lag_ms=arg("late_ms"),
        missed=_s.missed + arg("skipped"),
        # A check without a certificate keeps the stored one.
        **{name: func.coalesce(arg(f"new_{name}", _s[name].type), _s[name]) for name in _CERTIFICATE},
    )
)
