"""Query and response models of the metrics routes."""

from __future__ import annotations

import msgspec

from moorage.core.http.models import Output, QueryInput
from moorage.core.kit.clock import to_wire, to_wire_or_none
from moorage.products.databases.metrics.service import Container, Figures, RangeName, Snapshot, Summary

MIB = 2**20


class DatabaseMetricsQuery(QueryInput):
    range: RangeName = "24h"


class DatabaseContainer(Output, frozen=True):
    name: str
    cpu_milli: int | None
    memory_mib: float | None = msgspec.field(name="memoryMiB")

    @classmethod
    def of(cls, container: Container) -> DatabaseContainer:
        return cls(container.name, container.cpu_milli, _in_mib(container.memory_bytes))


class DatabaseMetrics(Output, frozen=True):
    available: bool
    phase: str | None
    ready: bool
    restarts: int
    started_at: str | None
    cpu_milli: int | None
    memory_mib: float | None = msgspec.field(name="memoryMiB")
    containers: list[DatabaseContainer]

    @classmethod
    def of(cls, snapshot: Snapshot) -> DatabaseMetrics:
        return cls(
            available=snapshot.available,
            phase=snapshot.phase,
            ready=snapshot.ready,
            restarts=snapshot.restarts,
            started_at=to_wire_or_none(snapshot.started_at),
            cpu_milli=snapshot.cpu_milli,
            memory_mib=_in_mib(snapshot.memory_bytes),
            containers=[DatabaseContainer.of(each) for each in snapshot.containers],
        )


class DatabaseEngineMetricsSummary(Output, frozen=True):
    range: RangeName
    enabled: bool
    engine: str
    up: bool | None
    connections: int | None
    max_connections: int | None
    connections_pct: float | None
    qps: float | None
    cache_hit_pct: float | None

    @classmethod
    def of(cls, name: RangeName, engine: str, summary: Summary) -> DatabaseEngineMetricsSummary:
        return cls(
            range=name,
            enabled=True,
            engine=engine,
            up=summary.up,
            connections=summary.connections,
            max_connections=summary.max_connections,
            connections_pct=_rounded(summary.connections_pct),
            qps=_rounded(summary.figures.qps),
            cache_hit_pct=_rounded(summary.figures.cache_hit_pct),
        )


class DatabaseEngineMetricsPoint(Output, frozen=True):
    t: str
    connections: float | None
    qps: float | None
    cache_hit_pct: float | None
    cpu_milli: float | None
    memory_mib: float | None = msgspec.field(name="memoryMiB")
    disk_mib: float | None = msgspec.field(name="diskMiB")

    @classmethod
    def of(cls, figures: Figures) -> DatabaseEngineMetricsPoint:
        return cls(
            t=to_wire(figures.start),
            connections=_rounded(figures.connections),
            qps=_rounded(figures.qps),
            cache_hit_pct=_rounded(figures.cache_hit_pct),
            cpu_milli=_rounded(figures.cpu_milli),
            memory_mib=_in_mib(figures.memory_bytes),
            disk_mib=_in_mib(figures.disk_bytes),
        )


class DatabaseEngineMetricsTimeseries(Output, frozen=True):
    range: RangeName
    enabled: bool
    engine: str
    points: list[DatabaseEngineMetricsPoint]


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 2)


def _in_mib(size: float | None) -> float | None:
    return None if size is None else round(size / MIB, 1)
