"""Monitors that a prober holds, with recorded checks, incidents and notices."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from sqlalchemy import Integer, select, update
from tests.builders import make_member, make_org
from tests.products.monitors.support import make_alert, make_beat, make_monitor

from moorage.accounts.identity.roles import Role
from moorage.core.db.query import Command, Query, arg, columns
from moorage.core.db.store import Database
from moorage.core.db.tx import Tx
from moorage.core.kit.clock import DAY_MS, MINUTE_MS
from moorage.products.monitors import tables
from moorage.products.monitors.alerts import tables as alert_tables
from moorage.products.monitors.alerts.tables import Alert, Incident, Notice
from moorage.products.monitors.probing import recording
from moorage.products.monitors.probing.beats import Beat, Certificate
from moorage.products.monitors.tables import Monitor, rollup

PROBER = "prober-1"

_m, _r, _n = tables.monitor.c, rollup.c, alert_tables.notice.c
_HOLD = Command(update(tables.monitor).where(_m.id == arg("id")).values(prober=arg("token")))
_ROLLUPS = Query(
    select(_r.span_s, _r.start, _r.up, _r.down, _r.response_sum)
    .where(_r.monitor_id == arg("monitor_id"))
    .order_by(_r.span_s, _r.start),
    lambda *row: row,
)
_NOTICES = Query(
    select(*columns(alert_tables.notice)).where(_n.org_id == arg("org_id")).order_by(_n.id).limit(arg("most", Integer)),
    Notice,
)
_SET_FIRED_AT = Command(
    update(alert_tables.alert).where(alert_tables.alert.c.id == arg("id")).values(fired_at=arg("new"))
)


@dataclass(frozen=True)
class Owner:
    """An organization with a single member, the recipient of all notices."""

    org_id: int


async def make_owner(db: Database, *, members: int = 0) -> Owner:
    org = await make_org(db)
    for _ in range(members):
        await make_member(db, org, Role.MEMBER)
    return Owner(org.id)


async def hold(db: Database, monitor: Monitor, prober: str | None = PROBER) -> Monitor:
    """Assign a monitor to a prober."""
    await db.write(lambda tx: tx.run(_HOLD, id=monitor.id, token=prober))
    return replace(monitor, prober=prober)


async def make_held(db: Database, owner: Owner, **fields: Any) -> Monitor:
    return await hold(db, await make_monitor(db, owner, **fields))


async def make_watched(db: Database, owner: Owner, **fields: Any) -> tuple[Monitor, Alert]:
    """Create a monitor with one alert, by default on one minute of downtime."""
    monitor = await make_held(db, owner)
    return monitor, await make_alert(db, owner, monitor, **fields)


async def record(db: Database, *beats: Beat, prober: str = PROBER) -> int:
    return await db.write(lambda tx: recording.record(tx, prober, beats))


async def find(db: Database, monitor: Monitor, start: int, ups: str, *, step_ms: int = MINUTE_MS) -> int:
    """Record checks, one transaction each: `u` is up, `d` is down. Return the next slot."""
    for number, letter in enumerate(ups):
        await record(db, make_beat(monitor, start + number * step_ms, up=letter == "u"))
    return start + len(ups) * step_ms


async def rollups(db: Database, monitor: Monitor) -> list[tuple[int, ...]]:
    return await db.read(lambda tx: tx.all(_ROLLUPS, monitor_id=monitor.id))


async def notices(db: Database, owner: Owner) -> list[Notice]:
    return await db.read(lambda tx: tx.all(_NOTICES, org_id=owner.org_id, most=1000))


async def told(db: Database, owner: Owner) -> list[str]:
    """Return the kinds of the notices, oldest first."""
    return [notice.kind for notice in await notices(db, owner)]


async def incidents_of(db: Database, monitor: Monitor) -> list[Incident]:
    """Return the incidents of a monitor, newest first."""

    def unit(tx: Tx) -> list[Incident]:
        return tx.all(
            alert_tables.INCIDENTS_OF_MONITOR, org_id=monitor.org_id, monitor_id=monitor.id, since=0, most=100
        )

    return await db.read(unit)


async def set_fired_at(db: Database, alert: Alert, text: str) -> None:
    """Store a raw value in the fired_at column of an alert."""
    await db.write(lambda tx: tx.run(_SET_FIRED_AT, id=alert.id, new=text))


def make_certificate(now: int, days: float, fingerprint: str = "aa", *, subject: str = "shop.example") -> Certificate:
    return Certificate(subject, "Harbor CA", now + int(days * DAY_MS), fingerprint)
