"""Metrics of databases: usage of their servers, statistics of their engines.

Every sample is added to three rows: of 15 s, five minutes and an hour. All rows hold sums, so there is no later
aggregation; finer rows have a shorter retention. A rate is a sum of differences divided by the time in which they were
counted, so that it is correct for any period.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import field, replace
from typing import Literal

import msgspec

from moorage.accounts.plans.service import Standing
from moorage.core.db.scope import across_organizations
from moorage.core.db.tx import Tx
from moorage.core.kit.clock import DAY_MS, HOUR_MS, MINUTE_MS, SECOND_MS
from moorage.core.kit.records import dataclass
from moorage.products.databases import servers, service
from moorage.products.databases import tables as database_tables
from moorage.products.databases.metrics import tables
from moorage.products.databases.metrics.tables import Latest, SampleSums
from moorage.products.databases.states import DatabaseStatus
from moorage.products.databases.tables import Database, Server

RangeName = Literal["1h", "24h", "7d", "30d"]

FINE_S, MIDDLE_S, COARSE_S = 15, 300, 3600
RETENTION_MS = {FINE_S: 2 * HOUR_MS, MIDDLE_S: 8 * DAY_MS, COARSE_S: 31 * DAY_MS}
STALE_MS = MINUTE_MS  # Older measurements do not describe the current state.
MAX_DELETED_ROWS = 500  # per transaction, because other writers wait for it

# By range: period of the rows, width of a bucket, number of buckets.
_BUCKETS: dict[RangeName, tuple[int, int, int]] = {
    "1h": (FINE_S, MINUTE_MS, 60),
    "24h": (MIDDLE_S, 5 * MINUTE_MS, 288),
    "7d": (COARSE_S, HOUR_MS, 168),
    "30d": (COARSE_S, 4 * HOUR_MS, 180),
}
_STARTING = frozenset((DatabaseStatus.PENDING, DatabaseStatus.QUEUED, DatabaseStatus.DEPLOYING))
_PHASES = {
    **dict.fromkeys(_STARTING, "Pending"),
    DatabaseStatus.STOPPED: "Stopped",
    DatabaseStatus.FAILED: "Failed",
    DatabaseStatus.DELETING: "Terminating",
}


@dataclass(frozen=True, slots=True)
class ServerUsage:
    """Measured usage of one server."""

    server: Server
    at: int
    restarts: int  # in total
    started_at: int | None
    cpu_milli: int | None
    memory_bytes: int | None  # None if it has no process


@dataclass(frozen=True, slots=True)
class Sample:
    """Statistics of a server since the last sample; empty without an answer."""

    at: int
    answered: bool = False
    connections: int = 0
    max_connections: int | None = None
    queries: int | None = None
    queries_ms: int = 0  # time in which `queries` was counted
    cache_hits: int | None = None
    cache_reads: int | None = None
    cpu_milli: int | None = None  # of all servers of the database, like the next one
    memory_bytes: int | None = None
    disk_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class DiskUsage:
    """Disk usage of a database, and whether it is read-only."""

    used: int
    is_full: bool
    reason: str | None = None  # set when it has just become full


@dataclass(slots=True)
class Measurement:
    """All measured values of a database."""

    database: Database
    servers: list[ServerUsage] = field(default_factory=list)
    sample: Sample | None = None
    disk: DiskUsage | None = None


@across_organizations("one machine runs everybody's databases")
def running(tx: Tx) -> list[tuple[Database, list[Server]]]:
    by_database: dict[int, list[Server]] = {}
    for each in tx.all(tables.SERVERS_OF_RUNNING):
        by_database.setdefault(each.database_id, []).append(each)
    mine = [database for database in tx.all(tables.RUNNING) if database.machine_id == tx.env.machine.id]
    return [(database, by_database.get(database.id, [])) for database in mine]


@across_organizations("one machine runs everybody's databases")
def never_seen(tx: Tx) -> set[int]:
    """Return the running databases with a server that was not measured yet."""
    return set(tx.all(tables.NEVER_SEEN))


@across_organizations("a round looks at everybody's databases, and is written at once")
def record(tx: Tx, measurements: Sequence[Measurement]) -> None:
    """Store the measurements of a round; skips deleted databases."""
    ids = msgspec.json.encode([each.database.id for each in measurements]).decode()
    existing = set(tx.all(tables.EXISTING, ids=ids)) if measurements else set()
    for each in measurements:
        if each.database.id in existing:
            _record(tx, each.database.org_id, each)


def _record(tx: Tx, org_id: int, measurement: Measurement) -> None:
    for usage in measurement.servers:
        values = {"cpu": usage.cpu_milli, "memory": usage.memory_bytes, "seen": usage.restarts}
        values |= {"since": usage.started_at, "at": usage.at}
        tx.run(tables.SET_SEEN, org_id=org_id, id=usage.server.id, token=usage.server.token, **values)
    if measurement.sample is not None:
        add(tx, org_id, measurement.database.id, _with_usage(measurement.sample, measurement))
    if measurement.disk is not None:
        _record_disk(tx, org_id, measurement.database, measurement.disk)


def _with_usage(sample: Sample, measurement: Measurement) -> Sample:
    return replace(
        sample,
        cpu_milli=_total(each.cpu_milli for each in measurement.servers),
        memory_bytes=_total(each.memory_bytes for each in measurement.servers),
        disk_bytes=measurement.disk.used if measurement.disk is not None else None,
    )


def _record_disk(tx: Tx, org_id: int, database: Database, disk: DiskUsage) -> None:
    values = {"org_id": org_id, "id": database.id, "used": disk.used}
    if disk.is_full and disk.reason is not None:
        tx.run(tables.SET_FULL, reason=disk.reason, now=tx.now, **values)
    elif database.is_full and not disk.is_full:
        tx.run(tables.SET_WRITABLE, now=tx.now, **values)
    else:
        tx.run(tables.SET_USED, **values)


def add(tx: Tx, org_id: int, database_id: int, sample: Sample) -> None:
    """Add a sample to the three rows of its time."""
    names = {"connections", "queries_ms", *tables.LATEST_VALUES, *tables.NULLABLE} - {"cpu_looks", "memory_looks"}
    values = {name: getattr(sample, name) for name in names}
    values |= {"looks": 1, "answers": int(sample.answered)}
    values["cpu_looks"] = None if sample.cpu_milli is None else 1
    values["memory_looks"] = None if sample.memory_bytes is None else 1
    for step_s in RETENTION_MS:
        width = step_s * SECOND_MS
        at = sample.at // width * width
        tx.run(tables.ADD, org_id=org_id, database_id=database_id, step_s=step_s, at=at, **values)


# Engine statistics over time.


@dataclass(frozen=True, slots=True)
class Figures:
    """Averages of one period; None without data."""

    start: int
    connections: float | None = None
    qps: float | None = None
    cache_hit_pct: float | None = None
    cpu_milli: float | None = None
    memory_bytes: float | None = None
    disk_bytes: int | None = None

    @classmethod
    def of(cls, start: int, sums: SampleSums) -> Figures:
        connections = sums.connections / sums.answers if sums.answers else None
        qps = sums.queries * 1000 / sums.queries_ms if sums.queries is not None and sums.queries_ms else None
        reads = (sums.cache_hits or 0) + (sums.cache_reads or 0)
        hits = 100 * (sums.cache_hits or 0) / reads if reads else None
        cpu = sums.cpu_milli / sums.cpu_looks if sums.cpu_milli is not None and sums.cpu_looks else None
        memory = sums.memory_bytes / sums.memory_looks if sums.memory_bytes is not None and sums.memory_looks else None
        return cls(start, connections, qps, hits, cpu, memory, sums.disk_bytes)


@dataclass(frozen=True, slots=True)
class Summary:
    """Current state of a database, and its averages over a range."""

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
    """Return a database with engine metrics; raises NotFound or QuotaExceeded."""
    database = service.get(tx, org_id, name)
    assert standing is not None  # Set for every caller of an organization.
    service.check_paid(tx, org_id, standing, database, "Engine metrics")
    return database


def summary(tx: Tx, org_id: int, database_id: int, name: RangeName) -> Summary:
    step_s, width, count = _BUCKETS[name]
    end = (tx.now // width + 1) * width
    start = end - width * count
    sums = _sums(tx, org_id, database_id, step_s, start, end, end - start)
    figures = Figures.of(start, sums[0]) if sums else Figures(start)
    latest = tx.find(tables.LATEST, org_id=org_id, database_id=database_id, step_s=FINE_S)
    if latest is None or latest.at + FINE_S * SECOND_MS < tx.now - STALE_MS:
        return Summary(None, None, None, figures)
    return _summary(latest, figures)


def _summary(latest: Latest, figures: Figures) -> Summary:
    connections = round(latest.connections / latest.answers) if latest.answers else None
    return Summary(latest.answers > 0, connections, latest.max_connections, figures)


def series(tx: Tx, org_id: int, database_id: int, name: RangeName) -> list[Figures]:
    """Return the averages of all buckets of a range; the current one is last."""
    step_s, width, count = _BUCKETS[name]
    end = (tx.now // width + 1) * width
    start = end - width * count
    buckets = {sums.number: sums for sums in _sums(tx, org_id, database_id, step_s, start, end, width)}
    starts = enumerate(range(start, end, width))
    return [Figures.of(at, buckets[number]) if number in buckets else Figures(at) for number, at in starts]


def _sums(tx: Tx, org_id: int, database_id: int, step_s: int, start: int, end: int, width: int) -> list[SampleSums]:
    row_filter = {"org_id": org_id, "database_id": database_id, "step_s": step_s}
    return tx.all(tables.SUMS, start=start, end=end, width=width, **row_filter)


# Current usage.


@dataclass(frozen=True, slots=True)
class Container:
    name: str
    cpu_milli: int | None
    memory_bytes: int | None


@dataclass(frozen=True, slots=True)
class Snapshot:
    """State of a database's servers at the last measurement."""

    available: bool
    phase: str | None
    ready: bool
    restarts: int
    started_at: int | None
    cpu_milli: int | None
    memory_bytes: int | None
    containers: list[Container]


def snapshot(tx: Tx, org_id: int, name: str) -> Snapshot:
    database = service.get(tx, org_id, name)
    all_servers = servers.servers_of(tx, org_id, database.id)
    primary = next((each for each in all_servers if each.role == "primary"), None)
    if primary is None or database.status in _PHASES:
        phase = _PHASES.get(DatabaseStatus(database.status))
        return Snapshot(False, phase, False, _restarts(all_servers), None, None, None, [])
    phase, ready = _condition(primary, tx.now)
    containers = [_container(database, each, tx.now) for each in all_servers]
    return Snapshot(
        available=containers[all_servers.index(primary)].memory_bytes is not None,
        phase=phase,
        ready=ready,
        restarts=_restarts(all_servers),
        started_at=primary.started_at if ready else None,
        cpu_milli=_total(each.cpu_milli for each in containers),
        memory_bytes=_total(each.memory_bytes for each in containers),
        containers=containers,
    )


def _condition(primary: Server, now: int) -> tuple[str | None, bool]:
    """Return phase and readiness of a server; an unmeasured one just started."""
    if primary.reason is not None:
        return "Pending", False
    if primary.seen_at is None:
        return "Running", True
    if not _is_fresh(primary, now):
        return None, False
    return ("Running", True) if primary.memory_bytes is not None else ("Pending", False)


def _container(database: Database, server: Server, now: int) -> Container:
    name = database.engine if server.role == "primary" else server.role
    if not _is_fresh(server, now):
        return Container(name, None, None)
    return Container(name, server.cpu_milli, server.memory_bytes)


def _is_fresh(server: Server, now: int) -> bool:
    return server.seen_at is not None and now - server.seen_at <= STALE_MS


def _restarts(all_servers: Iterable[Server]) -> int:
    return sum(max(each.restarts, each.seen_restarts) for each in all_servers)


def _total(figures: Iterable[int | None]) -> int | None:
    known = [figure for figure in figures if figure is not None]
    return sum(known) if known else None


# Retention.


def remove_of_database(tx: Tx, org_id: int, database_id: int) -> None:
    """Delete the samples of a database, in the transaction that deletes its row.

    Locks that row first, so that samples of a concurrent round are committed before and deleted too.
    """
    tx.find(database_tables.LOCK_BY_ID, org_id=org_id, id=database_id)
    tx.run(tables.DELETE_OF_DATABASE, org_id=org_id, database_id=database_id)


@across_organizations("retention is the same for all")
def trim(tx: Tx, step_s: int) -> int:
    """Delete up to MAX_DELETED_ROWS expired rows; return their number."""
    return tx.run(tables.TRIM, step_s=step_s, before=tx.trusted_now - RETENTION_MS[step_s], most=MAX_DELETED_ROWS)
