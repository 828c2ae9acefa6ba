"""Leases of probers: processes share the monitors and replace a dead process.

Each prober renews the lease in its row. The next prober to refresh deletes rows with an expired lease and takes over
their monitors, so a failover takes seconds. Results are recorded only for the prober that holds the monitor, so results
of a prober that lost its lease are ignored.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from sqlalchemy import Select, delete, func, select, update

from moorage.core.db.query import Command, Query, arg, columns, insert_or_ignore, pair, scalar
from moorage.core.db.scope import across_organizations
from moorage.core.db.tx import Tx
from moorage.core.kit.crypto import CannotDecrypt
from moorage.core.kit.records import dataclass
from moorage.core.vault import service as vault
from moorage.products.monitors.probing.checks import CheckTarget
from moorage.products.monitors.probing.codes import Codes
from moorage.products.monitors.states import MonitorStatus
from moorage.products.monitors.tables import BODY, HEADERS, Monitor, monitor, prober, state

LEASE_MS = 10_000
BATCH_SIZE = 500  # monitors claimed or read in one transaction; a short one, because SQLite has a single writer
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
# Locks all rows in order, which serialises concurrent refreshes.
PROBERS: Query[tuple[str, int]] = Query(select(_p.token, _p.lease_until).order_by(_p.id).with_for_update(), pair)
RENEW = Command(update(prober).where(_p.token == arg("token")).values(lease_until=arg("until")))
DELETE_PROBER = Command(delete(prober).where(_p.token == arg("token")))
DELETE_ALL_PROBERS = Command(delete(prober))

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
CLAIM = Command(update(monitor).where(_m.id == arg("id")).values(prober=arg("token")))
RELEASE = Command(update(monitor).where((_m.id == arg("id")) & (_m.prober == arg("token"))).values(prober=None))
RELEASE_ALL = Command(update(monitor).where(_m.prober == arg("token")).values(prober=None))


@dataclass(frozen=True, slots=True)
class HeldMonitor:
    """A monitor that a prober holds."""

    target: CheckTarget
    revision: int
    from_at: int  # when its first check is due
    last_slot: int | None  # of the latest recorded check


@dataclass(frozen=True, slots=True)
class Holding:
    """The monitors of a prober after a refresh."""

    held: frozenset[int]  # ids of all held monitors
    news: tuple[HeldMonitor, ...]  # new or changed monitors
    unreadable: dict[int, int]  # revisions of new or changed monitors with secrets that cannot be decrypted
    surplus: int  # monitors beyond the fair share
    has_more: bool  # whether more monitors can be claimed or read immediately


@across_organizations(_WHY)
def register(tx: Tx, token: str, *, is_alone: bool) -> None:
    """Add the row of a prober. A sole prober expires all other leases. Safe to repeat."""
    if is_alone:
        tx.run(DELETE_ALL_PROBERS)
    tx.find(ADD, token=token, lease_until=tx.now + LEASE_MS, created_at=tx.now)


@across_organizations(_WHY)
def hold(tx: Tx, token: str, known: Mapping[int, int], *, is_eager: bool = False) -> Holding | None:
    """Renew the lease and claim free monitors; None if the lease was lost.

    `known` has the revisions of the monitors that the prober knows. It claims up to a fair share; with `is_eager` some
    more, because a new monitor may wait and other probers refresh later.
    """
    live = _expire(tx, token)
    if not live:
        return None
    tx.run(RENEW, token=token, until=tx.now + LEASE_MS)
    held = dict(tx.all(HELD, token=token))
    share = -(-tx.one(RUNNING) // live)
    slack = max(2, share * 5 // 100)
    room = share + (slack if is_eager else 0) - len(held)
    claimed = tx.all(FREE, most=min(room, BATCH_SIZE)) if room > 0 else []
    tx.run_many(CLAIM, [{"id": monitor.id, "token": token} for monitor, _ in claimed])
    changed = [monitor_id for monitor_id, revision in held.items() if known.get(monitor_id) != revision]
    loaded = [*claimed, *(tx.one(ONE, id=monitor_id) for monitor_id in changed[:BATCH_SIZE])]
    news = [(monitor, _load(tx, monitor.org_id, monitor, last_slot)) for monitor, last_slot in loaded]
    count = len(held) + len(claimed)
    return Holding(
        held=frozenset(held).union(monitor.id for monitor, _ in claimed),
        news=tuple(each for _, each in news if each is not None),
        unreadable={monitor.id: monitor.revision for monitor, each in news if each is None},
        surplus=count - share if live > 1 and count > share + slack else 0,
        has_more=len(claimed) == BATCH_SIZE or len(changed) > BATCH_SIZE,
    )


@across_organizations(_WHY)
def release(tx: Tx, token: str, ids: Sequence[int]) -> None:
    tx.run_many(RELEASE, [{"id": monitor_id, "token": token} for monitor_id in ids])


@across_organizations(_WHY)
def leave(tx: Tx, token: str) -> None:
    """Release all monitors and delete the row, so that others take over immediately."""
    tx.run(RELEASE_ALL, token=token)
    tx.run(DELETE_PROBER, token=token)


@across_organizations(_WHY)
def touch(tx: Tx, token: str) -> None:
    """Renew the lease: a minimal write that shows whether the database accepts writes."""
    tx.run(RENEW, token=token, until=tx.now + LEASE_MS)


@across_organizations(_WHY)
def _expire(tx: Tx, token: str) -> int:
    """Delete expired probers; return how many are left, 0 if `token` has no row."""
    rows = tx.all(PROBERS)
    if all(each != token for each, _ in rows):
        return 0
    # A lease that ends too far in the future was written before the clock was set back; it might never expire.
    ends = range(tx.now, tx.now + 2 * LEASE_MS)
    dead = [each for each, until in rows if each != token and until not in ends]
    tx.run_many(DELETE_PROBER, [{"token": each} for each in dead])
    return len(rows) - len(dead)


def _load(tx: Tx, org_id: int, monitor: Monitor, last_slot: int | None) -> HeldMonitor | None:
    try:
        target = _load_target(tx, org_id, monitor)
    except CannotDecrypt:
        return None
    return HeldMonitor(target, monitor.revision, monitor.from_at, last_slot)


def _load_target(tx: Tx, org_id: int, monitor: Monitor) -> CheckTarget:
    headers = vault.find(tx, org_id, monitor.resource, HEADERS) if monitor.has_headers else None
    body = vault.find(tx, org_id, monitor.resource, BODY) if monitor.has_body else None
    return CheckTarget(
        monitor_id=monitor.id,
        org_id=org_id,
        url=monitor.url,
        method=monitor.http_method,
        headers=tuple((name, value) for name, value in json.loads(headers or "[]")),
        body=None if body is None else body.encode(),
        keyword=monitor.keyword,
        codes=Codes.parse(monitor.codes),
        interval_s=monitor.interval_s,
        timeout_ms=monitor.timeout_ms,
        retries=monitor.retries,
        ignore_tls_error=monitor.ignore_tls_error,
    )
