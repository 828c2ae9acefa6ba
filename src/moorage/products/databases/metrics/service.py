"""How much the servers of databases use, and what they are asked for.

Every look at a server is added to three rows at once: of 15 s, of five minutes and of an hour. All hold sums, so they
can be added up in any order and nothing has to be computed later; the finer a row is, the sooner it is forgotten. A
rate is a sum of differences over the time in which they were counted, so that it is right for any span.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Literal

import msgspec

from moorage.accounts.plans.service import Standing
from moorage.core.db.scope import across_organizations
from moorage.core.db.tx import Tx
from moorage.core.kit.clock import DAY_MS, HOUR_MS, MINUTE_MS, SECOND_MS
from moorage.products.databases import servers, service
from moorage.products.databases import tables as database_tables
from moorage.products.databases.metrics import tables
from moorage.products.databases.metrics.tables import Latest, Sums
from moorage.products.databases.states import DatabaseStatus
from moorage.products.databases.tables import Database, Server

RangeName = Literal["1h", "24h", "7d", "30d"]

FINE_S, MIDDLE_S, COARSE_S = 15, 300, 3600
KEPT_MS = {FINE_S: 2 * HOUR_MS, MIDDLE_S: 8 * DAY_MS, COARSE_S: 31 * DAY_MS}
STALE_MS = MINUTE_MS  # What was seen longer ago says nothing about now.
AT_ONCE = 500  # Others wait to write meanwhile, so no unit takes long.

# Which rows a range is made of, the width of its buckets, and how many there are.
_SHAPES: dict[RangeName, tuple[int, int, int]] = {
    "1h": (FINE_S, MINUTE_MS, 60),
    "24h": (MIDDLE_S, 5 * MINUTE_MS, 288),
    "7d": (COARSE_S, HOUR_MS, 168),
    "30d": (COARSE_S, 4 * HOUR_MS, 180),
}
_BEGINNING = frozenset((DatabaseStatus.PENDING, DatabaseStatus.QUEUED, DatabaseStatus.DEPLOYING))
_PHASES = {
    **dict.fromkeys(_BEGINNING, "Pending"),
    DatabaseStatus.STOPPED: "Stopped",
    DatabaseStatus.FAILED: "Failed",
    DatabaseStatus.DELETING: "Terminating",
}


@dataclass(frozen=True, slots=True)
class ServerLook:
    """What was seen of one server."""

    server: Server
    at: int
    restarts: int  # in all
    started_at: int | None
    cpu_milli: int | None
    memory_bytes: int | None  # None where no process of it runs


@dataclass(frozen=True, slots=True)
class Sample:
    """What a server said of itself, and what it did since it last said so. Without an answer there is neither."""

    at: int
    answered: bool = False
    connections: int = 0
    max_connections: int | None = None
    queries: int | None = None
    queries_ms: int = 0  # the time in which these were counted
    cache_hits: int | None = None
    cache_reads: int | None = None


@dataclass(frozen=True, slots=True)
class DiskLook:
    """What a database takes on disk, and whether it may grow."""

    used: int
    is_full: bool
    reason: str | None = None  # where it has just become full


@dataclass(slots=True)
class Visit:
    """All that one look at a database has found."""

    database: Database
    servers: list[ServerLook] = field(default_factory=list)
    sample: Sample | None = None
    disk: DiskLook | None = None


@across_organizations("one machine runs everybody's databases")
def running(tx: Tx) -> list[tuple[Database, list[Server]]]:
    """Return every database that runs, with its servers."""
    its: dict[int, list[Server]] = {}
    for each in tx.all(tables.SERVERS_OF_RUNNING):
        its.setdefault(each.database_id, []).append(each)
    return [(found, its.get(found.id, [])) for found in tx.all(tables.RUNNING)]


@across_organizations("one machine runs everybody's databases")
def never_seen(tx: Tx) -> set[int]:
    """Return the databases that run, and of which a server was not looked at yet."""
    return set(tx.all(tables.NEVER_SEEN))


@across_organizations("a round looks at everybody's databases, and is written at once")
def record(tx: Tx, visits: Sequence[Visit]) -> None:
    """Write down what a round has found. What became of a database meanwhile goes before what was seen."""
    given = msgspec.json.encode([visit.database.id for visit in visits]).decode()
    there = set(tx.all(tables.HOLD, given=given)) if visits else set()
    for visit in visits:
        if visit.database.id in there:
            _record(tx, visit.database.org_id, visit)


def _record(tx: Tx, org_id: int, visit: Visit) -> None:
    for look in visit.servers:
        its = {"cpu": look.cpu_milli, "memory": look.memory_bytes, "seen": look.restarts, "since": look.started_at}
        tx.run(tables.SET_SEEN, org_id=org_id, id=look.server.id, token=look.server.token, at=look.at, **its)
    if visit.sample is not None:
        add(tx, org_id, visit.database.id, visit.sample)
    if visit.disk is not None:
        _record_disk(tx, org_id, visit.database, visit.disk)


def _record_disk(tx: Tx, org_id: int, found: Database, disk: DiskLook) -> None:
    its = {"org_id": org_id, "id": found.id, "used": disk.used}
    if disk.is_full and disk.reason is not None:
        tx.run(tables.SET_FULL, reason=disk.reason, now=tx.now, **its)
    elif found.is_full and not disk.is_full:
        tx.run(tables.SET_ROOMY, now=tx.now, **its)
    else:
        tx.run(tables.SET_USED, **its)


def add(tx: Tx, org_id: int, database_id: int, found: Sample) -> None:
    """Add a look to the rows of its time."""
    values = {name: getattr(found, name) for name in ("connections", "max_connections", "queries_ms", *tables.UNSURE)}
    values |= {"looks": 1, "answers": int(found.answered)}
    for step_s in KEPT_MS:
        width = step_s * SECOND_MS
        at = found.at // width * width
        tx.run(tables.ADD, org_id=org_id, database_id=database_id, step_s=step_s, at=at, **values)


# What it comes to.


@dataclass(frozen=True, slots=True)
class Figures:
    """What a span of time comes to; None where there is nothing to tell it from."""

    start: int
    connections: float | None = None
    qps: float | None = None
    cache_hit_pct: float | None = None

    @classmethod
    def of(cls, start: int, sums: Sums) -> Figures:
        connections = sums.connections / sums.answers if sums.answers else None
        qps = sums.queries * 1000 / sums.queries_ms if sums.queries is not None and sums.queries_ms else None
        reads = (sums.cache_hits or 0) + (sums.cache_reads or 0)
        hits = 100 * (sums.cache_hits or 0) / reads if reads else None
        return cls(start, connections, qps, hits)


@dataclass(frozen=True, slots=True)
class Summary:
    """How a database is now, and how it did over a span of time."""

    up: bool | None
    connections: int | None
    max_connections: int | None
    figures: Figures

    @property
    def connections_pct(self) -> float | None:
        if self.connections is None or not self.max_connections:
            return None
        return min(100 * self.connections / self.max_connections, 100.0)


def engine_database(tx: Tx, org_id: int, standing: Standing | None, name: str) -> Database:
    """Return a database whose engine is measured; raises NotFound, and QuotaExceeded where that is not paid for."""
    found = service.get(tx, org_id, name)
    assert standing is not None  # Whoever acts for an organization has one.
    service.check_paid(tx, org_id, standing, found, "Engine metrics")
    return found


def summary(tx: Tx, org_id: int, database_id: int, name: RangeName) -> Summary:
    step_s, width, count = _SHAPES[name]
    end = (tx.now // width + 1) * width
    start = end - width * count
    whole = _sums(tx, org_id, database_id, step_s, start, end, end - start)
    figures = Figures.of(start, whole[0]) if whole else Figures(start)
    latest = tx.find(tables.LATEST, org_id=org_id, database_id=database_id, step_s=FINE_S)
    if latest is None or latest.at + FINE_S * SECOND_MS < tx.now - STALE_MS:
        return Summary(None, None, None, figures)
    return _summary(latest, figures)


def _summary(latest: Latest, figures: Figures) -> Summary:
    connections = round(latest.connections / latest.answers) if latest.answers else None
    return Summary(latest.answers > 0, connections, latest.max_connections, figures)


def series(tx: Tx, org_id: int, database_id: int, name: RangeName) -> list[Figures]:
    """Return the figures of every bucket of a range, the present one last, also where there are none."""
    step_s, width, count = _SHAPES[name]
    end = (tx.now // width + 1) * width
    start = end - width * count
    found = {sums.number: sums for sums in _sums(tx, org_id, database_id, step_s, start, end, width)}
    starts = enumerate(range(start, end, width))
    return [Figures.of(at, found[number]) if number in found else Figures(at) for number, at in starts]


def _sums(tx: Tx, org_id: int, database_id: int, step_s: int, start: int, end: int, width: int) -> list[Sums]:
    its = {"org_id": org_id, "database_id": database_id, "step_s": step_s}
    return tx.all(tables.SUMS, start=start, end=end, width=width, **its)


# What its servers use right now.


@dataclass(frozen=True, slots=True)
class Container:
    name: str
    cpu_milli: int | None
    memory_bytes: int | None


@dataclass(frozen=True, slots=True)
class Snapshot:
    """How the servers of a database are, as of the last look at them."""

    available: bool
    phase: str | None
    ready: bool
    restarts: int
    started_at: int | None
    cpu_milli: int | None
    memory_bytes: int | None
    containers: list[Container]


def snapshot(tx: Tx, org_id: int, name: str) -> Snapshot:
    found = service.get(tx, org_id, name)
    its = servers.servers_of(tx, org_id, found.id)
    primary = next((each for each in its if each.role == "primary"), None)
    if primary is None or found.status in _PHASES:
        phase = _PHASES.get(DatabaseStatus(found.status))
        return Snapshot(False, phase, False, _restarts(its), None, None, None, [])
    phase, ready = _condition(primary, tx.now)
    containers = [_container(found, each, tx.now) for each in its]
    return Snapshot(
        available=containers[its.index(primary)].memory_bytes is not None,
        phase=phase,
        ready=ready,
        restarts=_restarts(its),
        started_at=primary.started_at if ready else None,
        cpu_milli=_total(each.cpu_milli for each in containers),
        memory_bytes=_total(each.memory_bytes for each in containers),
        containers=containers,
    )


def _condition(primary: Server, now: int) -> tuple[str | None, bool]:
    """Return the phase of a server, and whether it is ready. One that nobody has looked at yet has just come up."""
    if primary.reason is not None:
        return "Pending", False
    if primary.seen_at is None:
        return "Running", True
    if not _is_fresh(primary, now):
        return None, False
    return ("Running", True) if primary.memory_bytes is not None else ("Pending", False)


def _container(found: Database, server: Server, now: int) -> Container:
    name = found.engine if server.role == "primary" else server.role
    if not _is_fresh(server, now):
        return Container(name, None, None)
    return Container(name, server.cpu_milli, server.memory_bytes)


def _is_fresh(server: Server, now: int) -> bool:
    return server.seen_at is not None and now - server.seen_at <= STALE_MS


def _restarts(its: Iterable[Server]) -> int:
    return sum(max(each.restarts, each.seen_restarts) for each in its)


def _total(figures: Iterable[int | None]) -> int | None:
    known = [figure for figure in figures if figure is not None]
    return sum(known) if known else None


# Forgetting.


def remove_of_database(tx: Tx, org_id: int, database_id: int) -> None:
    """Forget what was measured of a database, for whoever deletes it in the same unit.

    Its row is locked first: a round that is just being written is waited for, and goes as well.
    """
    tx.find(database_tables.LOCK_BY_ID, org_id=org_id, id=database_id)
    tx.run(tables.DELETE_OF_DATABASE, org_id=org_id, database_id=database_id)


@across_organizations("retention is the same for all")
def trim(tx: Tx, step_s: int) -> int:
    """Delete some of what is too old; return how many rows went. There may be more where it is AT_ONCE."""
    return tx.run(tables.TRIM, step_s=step_s, before=tx.trusted_now - KEPT_MS[step_s], most=AT_ONCE)
