"""Query and response of the metrics route."""

from __future__ import annotations

from typing import Literal

import msgspec

from moorage.core.http.models import Output, QueryInput
from moorage.core.kit.clock import to_wire
from moorage.products.apps.metrics.service import Bucket, Requests, Stats
from moorage.products.apps.metrics.tables import CLASSES

RangeName = Literal["1h", "6h", "24h", "7d"]


class MetricsQuery(QueryInput):
    range: RangeName = "1h"


class MetricsItem(Output, frozen=True):
    at: str
    cpu_percent: float | None
    cpu_milli: int
    memory_mib: float = msgspec.field(name="memoryMiB")
    replicas: int
    requests: int
    p50_ms: float | None
    p95_ms: float | None
    statuses: dict[str, int]

    @classmethod
    def of(cls, bucket: Bucket) -> MetricsItem:
        requests = bucket.requests
        stats = Stats.of(requests.count, requests.failed, requests.histogram)
        return cls(
            at=to_wire(bucket.start),
            cpu_percent=_rounded(bucket.cpu_percent),
            cpu_milli=bucket.cpu_milli,
            memory_mib=round(bucket.memory_bytes / 2**20, 1),
            replicas=bucket.replicas,
            requests=requests.count,
            p50_ms=_rounded(stats.p50_ms),
            p95_ms=_rounded(stats.p95_ms),
            statuses={name[1:]: count for name, count in zip(CLASSES, requests.classes, strict=True)},
        )


class MetricsTotals(Output, frozen=True):
    requests: int
    failed: int
    p50_ms: float | None
    p95_ms: float | None

    @classmethod
    def of(cls, buckets: list[Bucket]) -> MetricsTotals:
        total = Requests()
        for bucket in buckets:
            total.merge(bucket.requests)
        stats = Stats.of(total.count, total.failed, total.histogram)
        return cls(stats.requests, stats.failed, _rounded(stats.p50_ms), _rounded(stats.p95_ms))


class ProjectMetrics(Output, frozen=True):
    range: RangeName
    bucket_seconds: int
    items: list[MetricsItem]
    totals: MetricsTotals


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 1)
