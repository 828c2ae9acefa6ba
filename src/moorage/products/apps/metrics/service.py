"""Metrics of apps: per minute for a week in the database, per second in memory.

Latencies are stored as histograms with logarithmic buckets. Histograms can be added up, so the median of a week comes
from its minutes, with an error of a few percent.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Mapping
from dataclasses import field
from itertools import zip_longest
from threading import Lock

import msgspec

from moorage.core.db.scope import across_organizations
from moorage.core.db.tx import Tx
from moorage.core.kit.clock import DAY_MS, MINUTE_MS, SECOND_MS
from moorage.core.kit.decoding import decoder_of
from moorage.core.kit.records import dataclass
from moorage.products.analytics.counting import Owner
from moorage.products.analytics.lines import Hit
from moorage.products.apps.metrics import tables
from moorage.products.apps.metrics.tables import CLASSES, Sums
from moorage.products.projects import tables as project_tables

RETENTION_MS = 8 * DAY_MS
TRIM_BATCH = 500  # rows per transaction, because other writers wait meanwhile
WINDOW_MS = 15 * MINUTE_MS
FAILED = 4  # index of 5xx in CLASSES
WEBSOCKET = 101

# Upper bounds of the buckets, from 0.5 ms to two minutes, each 36 % above the previous one.
_FIRST_MS, _LAST_MS, _STEPS = 0.5, 120_000.0, 40
STEPS_MS = tuple(_FIRST_MS * (_LAST_MS / _FIRST_MS) ** (step / _STEPS) for step in range(_STEPS + 1))

# Number of requests by bucket; the bucket after the last bound has all longer requests.
Histogram = dict[int, int]
_read_counts = decoder_of(list[list[int]]).decode


def step_of(duration_ms: float) -> int:
    return bisect_left(STEPS_MS, duration_ms)


def merge(into: Histogram, more: Mapping[int, int]) -> None:
    for step, count in more.items():
        into[step] = into.get(step, 0) + count


def _as_text(histogram: Histogram) -> str:
    last = max(histogram, default=-1)
    return msgspec.json.encode([histogram.get(step, 0) for step in range(last + 1)]).decode()


def _from_texts(texts: str) -> Histogram:
    """Add up histograms that `_as_text` wrote, separated by commas."""
    counts = map(sum, zip_longest(*_read_counts(f"[{texts}]"), fillvalue=0))
    return {step: count for step, count in enumerate(counts) if count}


def percentile(histogram: Mapping[int, int], percent: float) -> float | None:
    """Return a percentile of the latency in ms; None without requests."""
    wanted = sum(histogram.values()) * percent / 100
    if not wanted:
        return None
    before = 0
    for step in sorted(histogram):
        if before + histogram[step] >= wanted:
            return _interpolate(step, (wanted - before) / histogram[step])
        before += histogram[step]
    return _LAST_MS


def _interpolate(step: int, fraction: float) -> float:
    """Return the duration at a fraction of a bucket, on its logarithmic scale."""
    if step == 0:
        return _FIRST_MS * fraction
    if step > _STEPS:
        return _LAST_MS
    low, high = STEPS_MS[step - 1], STEPS_MS[step]
    return float(low * (high / low) ** fraction)


@dataclass(frozen=True, slots=True)
class Usage:
    """Resources that all replicas of an app used in a time span."""

    cpu_us: int
    cpu_share_us: int  # CPU time that the tier allowed: cores times time, for each running replica
    span_ms: int
    memory_bytes: int
    replicas: int


@dataclass(slots=True)
class Requests:
    """Requests to an app in a time span."""

    count: int = 0
    classes: list[int] = field(default_factory=lambda: [0] * len(CLASSES))  # 1xx to 5xx
    histogram: Histogram = field(default_factory=dict)

    @property
    def failed(self) -> int:
        return self.classes[FAILED]

    def add(self, hit: Hit) -> None:
        self.count += 1
        if 100 <= hit.status < 600:
            self.classes[hit.status // 100 - 1] += 1
        if hit.status != WEBSOCKET:  # The duration of a WebSocket is not a latency of the app.
            step = step_of(hit.seconds * 1000)
            self.histogram[step] = self.histogram.get(step, 0) + 1

    def merge(self, other: Requests) -> None:
        self.count += other.count
        self.classes = [mine + more for mine, more in zip(self.classes, other.classes, strict=True)]
        merge(self.histogram, other.histogram)


@dataclass(frozen=True, slots=True)
class Stats:
    """Totals of a time span."""

    requests: int
    failed: int
    p50_ms: float | None
    p95_ms: float | None

    @classmethod
    def of(cls, requests: int, failed: int, histogram: Histogram) -> Stats:
        return cls(requests, failed, percentile(histogram, 50), percentile(histogram, 95))


@dataclass(slots=True)
class Bucket:
    """Usage and requests of one bucket of a time series."""

    start: int
    cpu_us: int = 0
    cpu_share_us: int = 0
    span_ms: int = 0
    memory_bytes: int = 0
    replicas: int = 0
    requests: Requests = field(default_factory=Requests)

    @property
    def cpu_percent(self) -> float | None:
        """CPU use in percent of the tier's limit; None where no replica ran."""
        return 100 * self.cpu_us / self.cpu_share_us if self.cpu_share_us else None

    @property
    def cpu_milli(self) -> int:
        """CPU use of all replicas in thousandths of a core, over the measured time."""
        return round(self.cpu_us / self.span_ms) if self.span_ms else 0

    @classmethod
    def of(cls, start: int, sums: Sums) -> Bucket:
        usage = {name: getattr(sums, name) for name in ("cpu_us", "cpu_share_us", "span_ms", *tables.HIGHEST)}
        classes = [sums.s1xx, sums.s2xx, sums.s3xx, sums.s4xx, sums.s5xx]
        return cls(start, **usage, requests=Requests(sums.requests, classes, _from_texts(sums.latencies)))


def add_usage(tx: Tx, org_id: int, project_id: int, at: int, usage: Usage) -> None:
    """Add a usage that ends at `at` to the minute of `at`."""
    values = {name: getattr(usage, name) for name in ("cpu_us", "cpu_share_us", "span_ms", *tables.HIGHEST)}
    row = {"org_id": org_id, "project_id": project_id, "at": at // MINUTE_MS * MINUTE_MS}
    tx.one(tables.ADD, **row, **{**tables.NOTHING, **values}, latency=tables.EMPTY)


def add_requests(tx: Tx, org_id: int, project_id: int, minute: int, requests: Requests) -> None:
    """Add requests to a minute; a minute may be added in several parts."""
    counts = {"requests": requests.count, **dict(zip(CLASSES, requests.classes, strict=True))}
    row = {"org_id": org_id, "project_id": project_id, "at": minute // MINUTE_MS * MINUTE_MS}
    row_id, latency = tx.one(tables.ADD, **row, **{**tables.NOTHING, **counts}, latency=tables.EMPTY)
    histogram = _from_texts(latency)
    merge(histogram, requests.histogram)
    tx.run(tables.SET_LATENCY, id=row_id, new=_as_text(histogram))


def read(tx: Tx, org_id: int, project_id: int, from_ms: int, to_ms: int, bucket_ms: int) -> list[Bucket]:
    """Return all buckets of a time span, empty ones included.

    `bucket_ms` should be a multiple of a minute: a minute counts for the bucket in which it begins.
    """
    args = {"org_id": org_id, "project_id": project_id, "start": from_ms, "end": to_ms, "width": bucket_ms}
    sums_by_number = {sums.number: sums for sums in tx.all(tables.SUMS, **args)}
    starts = enumerate(range(from_ms, to_ms, bucket_ms))
    return [
        Bucket.of(start, sums_by_number[number]) if number in sums_by_number else Bucket(start)
        for number, start in starts
    ]


def stats(tx: Tx, org_id: int, project_id: int, from_ms: int, to_ms: int) -> Stats:
    """Return the totals of the minutes that begin in a time span."""
    if from_ms >= to_ms:
        return Stats(0, 0, None, None)
    [whole] = read(tx, org_id, project_id, from_ms, to_ms, to_ms - from_ms)
    return Stats.of(whole.requests.count, whole.requests.failed, whole.requests.histogram)


def last_request_at(tx: Tx, org_id: int, project_id: int) -> int | None:
    """Return the time of the last request, rounded up within its minute."""
    minute = tx.find(tables.LAST_REQUEST_MINUTE, org_id=org_id, project_id=project_id, now=tx.now)
    return None if minute is None else max(minute, min(minute + MINUTE_MS - 1, tx.now))


def remove_of_project(tx: Tx, org_id: int, project_id: int) -> None:
    """Delete the metrics of a project, in the transaction that deletes the project.

    Locks the project's row first, so that a concurrent transaction that counts requests ends before.
    """
    tx.find(project_tables.LOCK_BY_ID, org_id=org_id, id=project_id)
    tx.run(tables.DELETE_OF_PROJECT, org_id=org_id, project_id=project_id)


@across_organizations("the retention time is the same for every organization")
def trim(tx: Tx) -> int:
    """Delete up to TRIM_BATCH expired rows; return how many were deleted."""
    return tx.run(tables.TRIM, before=tx.trusted_now - RETENTION_MS, most=TRIM_BATCH)


class RequestWindow:
    """Requests per second of the last 15 minutes, in memory, for fast decisions.

    A second counts for the time span in which it begins, so consecutive spans do not overlap. Requests from before the
    start of the process are only in the database.
    """

    def __init__(self) -> None:
        self._seconds: dict[int, dict[int, Requests]] = {}  # by project and start of the second
        self._last: dict[int, int] = {}
        self._swept = 0
        self._lock = Lock()

    def add(self, project_id: int, seconds: Mapping[int, Requests], now: int) -> None:
        """Add requests, keyed by the start of the second in which they were answered."""
        with self._lock:
            counted = self._seconds.setdefault(project_id, {})
            for start, requests in seconds.items():
                if start in counted:
                    counted[start].merge(requests)
                elif start > now - WINDOW_MS:
                    counted[start] = requests
            self._last[project_id] = max((self._last.get(project_id, 0), *seconds))
            if now - self._swept >= MINUTE_MS:
                self._sweep(now)

    def stats(self, project_id: int, from_ms: int, to_ms: int) -> Stats:
        with self._lock:
            total = Requests()
            for at, requests in self._seconds.get(project_id, {}).items():
                if from_ms <= at < to_ms:
                    total.merge(requests)
            return Stats.of(total.count, total.failed, total.histogram)

    def last_at(self, project_id: int) -> int | None:
        """Return the second of the last request, of any age; None without requests."""
        return self._last.get(project_id)

    def forget(self, project_id: int) -> None:
        with self._lock:
            self._seconds.pop(project_id, None)
            self._last.pop(project_id, None)

    def _sweep(self, now: int) -> None:
        self._swept = now
        for project_id, seconds in list(self._seconds.items()):
            kept = {at: each for at, each in seconds.items() if at > now - WINDOW_MS}
            if kept:
                self._seconds[project_id] = kept
            else:
                del self._seconds[project_id]


class RequestCounter:
    """Counts requests of apps from the gateway's log, fed by `analytics.ingest`."""

    def __init__(self, window: RequestWindow) -> None:
        self._window = window

    @across_organizations("one batch has requests for many projects")
    def __call__(self, tx: Tx, owned: Mapping[Owner, list[Hit]]) -> None:
        ids = [project_id for _, project_id in owned]
        apps = set(tx.all(tables.HOLD_APPS, project_ids=msgspec.json.encode(ids).decode())) if ids else set()
        for org_id, project_id in sorted(owned, key=lambda owner: owner[1]):
            if project_id in apps:
                self._count(tx, org_id, project_id, owned[org_id, project_id])

    def _count(self, tx: Tx, org_id: int, project_id: int, hits: list[Hit]) -> None:
        recent = (hit for hit in hits if tx.now - RETENTION_MS <= hit.at < tx.now + DAY_MS)
        seconds = _by_second(recent)
        for minute, requests in sorted(_by_minute(seconds).items()):
            add_requests(tx, org_id, project_id, minute, requests)
        if seconds:
            tx.after_commit(lambda: self._window.add(project_id, seconds, tx.now))


def _by_second(hits: Iterable[Hit]) -> dict[int, Requests]:
    seconds: dict[int, Requests] = {}
    for hit in hits:
        start = hit.at // SECOND_MS * SECOND_MS
        requests = seconds.get(start)
        if requests is None:
            requests = seconds[start] = Requests()
        requests.add(hit)
    return seconds


def _by_minute(seconds: Mapping[int, Requests]) -> dict[int, Requests]:
    minutes: dict[int, Requests] = {}
    for start, requests in seconds.items():
        minutes.setdefault(start // MINUTE_MS * MINUTE_MS, Requests()).merge(requests)
    return minutes
