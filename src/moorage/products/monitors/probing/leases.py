"""Who checks which monitors: processes share them, and what a dead one had goes to the others within seconds.

Each process has a row that it renews. The row of one that does not has run out: the next to look deletes it, and takes
what it held. Results are written under the name of who holds the monitor, so whatever a process still finds after it
was taken for dead counts for nothing.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Select, delete, func, select, update

from moorage.core.db.query import Command, Query, arg, columns, insert_or_ignore, pair, scalar
from moorage.core.db.scope import across_organizations
from moorage.core.db.tx import Tx
from moorage.core.kit.crypto import CannotDecrypt
from moorage.core.vault import service as vault
from moorage.products.monitors.probing.checks import Target
from moorage.products.monitors.probing.codes import Codes
from moorage.products.monitors.states import MonitorStatus
from moorage.products.monitors.tables import BODY, HEADERS, Monitor, monitor, prober, state

LEASE_MS = 10_000
SOME = 500  # Monitors that are taken or read in one unit: others wait to write meanwhile.
_WHY = "processes share the monitors of every organization"

_m, _p, _s = monitor.c, prober.c, state.c
_is_running = _m.status == MonitorStatus.RUNNING.value


def _loaded(*values: Any) -> tuple[Monitor, int | None]:
    return Monitor(*values[:-1]), values[-1]


def _with_state() -> Select[Any]:
    return select(*columns(monitor), _s.last_slot).select_from(
        monitor.outerjoin(state, (_s.org_id == _m.org_id) & (_s.monitor_id == _m.id))
    )


ADD: Query[int] = Query(insert_or_ignore(prober), scalar, sets=("token", "lease_until", "created_at"))
# All of them are locked, in order: processes that look at the same moment do so one after the other.
PROBERS: Query[tuple[str, int]] = Query(select(_p.token, _p.lease_until).order_by(_p.id).with_for_update(), pair)
RENEW = Command(update(prober).where(_p.token == arg("token")).values(lease_until=arg("until")))
FORGET = Command(delete(prober).where(_p.token == arg("token")))
FORGET_ALL = Command(delete(prober))

RUNNING: Query[int] = Query(select(func.count()).select_from(monitor).where(_is_running), scalar)
HELD: Query[tuple[int, int]] = Query(select(_m.id, _m.revision).where(_is_running & (_m.prober == arg("token"))), pair)
FREE: Query[tuple[Monitor, int | None]] = Query(
    _with_state()
    .where(_is_running & (_m.prober.is_(None) | _m.prober.not_in(select(_p.token))))
    .order_by(_m.id)
    .limit(arg("most"))
    .with_for_update(of=monitor, skip_locked=True),
    _loaded,
)
ONE: Query[tuple[Monitor, int | None]] = Query(_with_state().where(_m.id == arg("id")), _loaded)
TAKE = Command(update(monitor).where(_m.id == arg("id")).values(prober=arg("token")))
GIVE_BACK = Command(update(monitor).where((_m.id == arg("id")) & (_m.prober == arg("token"))).values(prober=None))
GIVE_ALL_BACK = Command(update(monitor).where(_m.prober == arg("token")).values(prober=None))


@dataclass(frozen=True, slots=True)
class Held:
    """A monitor that a process has, as far as it needs to know it."""

    target: Target
    revision: int
    from_at: int  # since when it is checked
    last_slot: int | None  # of the latest check that was written down


@dataclass(frozen=True, slots=True)
class Holding:
    """What a process has."""

    held: frozenset[int]  # the ids of all
    news: tuple[Held, ...]  # those it did not know, or not as they are now
    unreadable: dict[int, int]  # those of them whose secrets cannot be read, with their revisions
    surplus: int  # how many are more than its share
    has_more: bool  # whether there is more to take or to read at once


@across_organizations(_WHY)
def register(tx: Tx, token: str, *, is_alone: bool) -> None:
    """Join those who check. Who is alone knows of all others that they are dead. Safe to repeat."""
    if is_alone:
        tx.run(FORGET_ALL)
    tx.find(ADD, token=token, lease_until=tx.now + LEASE_MS, created_at=tx.now)


@across_organizations(_WHY)
def hold(tx: Tx, token: str, known: Mapping[int, int], *, is_eager: bool = False) -> Holding | None:
    """Renew a lease, take what is free up to a fair share, and return what the process has; None where it lost its row.

    `known` has the revision of each monitor that it knows. Who is eager takes some more than its share: something new
    is there, and others look later.
    """
    live = _live(tx, token)
    if not live:
        return None
    tx.run(RENEW, token=token, until=tx.now + LEASE_MS)
    held = dict(tx.all(HELD, token=token))
    share = -(-tx.one(RUNNING) // live)
    slack = max(2, share * 5 // 100)
    room = share + (slack if is_eager else 0) - len(held)
    taken = tx.all(FREE, most=min(room, SOME)) if room > 0 else []
    tx.run_many(TAKE, [{"id": found.id, "token": token} for found, _ in taken])
    changed = [monitor_id for monitor_id, revision in held.items() if known.get(monitor_id) != revision]
    loaded = [*taken, *(tx.one(ONE, id=monitor_id) for monitor_id in changed[:SOME])]
    news = [(found, _held(tx, found.org_id, found, last_slot)) for found, last_slot in loaded]
    count = len(held) + len(taken)
    return Holding(
        held=frozenset(held).union(found.id for found, _ in taken),
        news=tuple(each for _, each in news if each is not None),
        unreadable={found.id: found.revision for found, each in news if each is None},
        surplus=count - share if live > 1 and count > share + slack else 0,
        has_more=len(taken) == SOME or len(changed) > SOME,
    )


@across_organizations(_WHY)
def give_back(tx: Tx, token: str, ids: Sequence[int]) -> None:
    """Leave some monitors to others."""
    tx.run_many(GIVE_BACK, [{"id": monitor_id, "token": token} for monitor_id in ids])


@across_organizations(_WHY)
def leave(tx: Tx, token: str) -> None:
    """Leave all monitors to others, who need not wait for the lease to run out."""
    tx.run(GIVE_ALL_BACK, token=token)
    tx.run(FORGET, token=token)


@across_organizations(_WHY)
def touch(tx: Tx, token: str) -> None:
    """Write next to nothing; for who wants to know whether the store takes anything at all."""
    tx.run(RENEW, token=token, until=tx.now + LEASE_MS)


@across_organizations(_WHY)
def _live(tx: Tx, token: str) -> int:
    """Forget the dead and return how many are alive; 0 where the one who asks is not among them."""
    rows = tx.all(PROBERS)
    if all(each != token for each, _ in rows):
        return 0
    # A lease that ends much later than any can was written before the clock was set back. It might never run out.
    ends = range(tx.now, tx.now + 2 * LEASE_MS)
    dead = [each for each, until in rows if each != token and until not in ends]
    tx.run_many(FORGET, [{"token": each} for each in dead])
    return len(rows) - len(dead)


def _held(tx: Tx, org_id: int, found: Monitor, last_slot: int | None) -> Held | None:
    try:
        target = _target(tx, org_id, found)
    except CannotDecrypt:
        return None
    return Held(target, found.revision, found.from_at, last_slot)


def _target(tx: Tx, org_id: int, found: Monitor) -> Target:
    headers = vault.find(tx, org_id, found.resource, HEADERS) if found.has_headers else None
    body = vault.find(tx, org_id, found.resource, BODY) if found.has_body else None
    return Target(
        monitor_id=found.id,
        org_id=org_id,
        url=found.url,
        method=found.http_method,
        headers=tuple((name, value) for name, value in json.loads(headers or "[]")),
        body=None if body is None else body.encode(),
        keyword=found.keyword,
        codes=Codes.parse(found.codes),
        interval_s=found.interval_s,
        timeout_ms=found.timeout_ms,
        retries=found.retries,
        ignore_tls_error=found.ignore_tls_error,
    )
