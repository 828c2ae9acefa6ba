"""What the routes of metrics take and give, by their names on the wire."""

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
    def of(cls, found: Container) -> DatabaseContainer:
        return cls(found.name, found.cpu_milli, _in_mib(found.memory_bytes))


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
    def of(cls, found: Snapshot) -> DatabaseMetrics:
        return cls(
            available=found.available,
            phase=found.phase,
            ready=found.ready,
            restarts=found.restarts,
            started_at=to_wire_or_none(found.started_at),
            cpu_milli=found.cpu_milli,
            memory_mib=_in_mib(found.memory_bytes),
            containers=[DatabaseContainer.of(each) for each in found.containers],
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
    def of(cls, name: RangeName, engine: str, found: Summary) -> DatabaseEngineMetricsSummary:
        return cls(
            range=name,
            enabled=True,
            engine=engine,
            up=found.up,
            connections=found.connections,
            max_connections=found.max_connections,
            connections_pct=_rounded(found.connections_pct),
            qps=_rounded(found.figures.qps),
            cache_hit_pct=_rounded(found.figures.cache_hit_pct),
        )


class DatabaseEngineMetricsPoint(Output, frozen=True):
    t: str
    connections: float | None
    qps: float | None
    cache_hit_pct: float | None

    @classmethod
    def of(cls, found: Figures) -> DatabaseEngineMetricsPoint:
        figures = (found.connections, found.qps, found.cache_hit_pct)
        return cls(to_wire(found.start), *map(_rounded, figures))


class DatabaseEngineMetricsTimeseries(Output, frozen=True):
    range: RangeName
    enabled: bool
    engine: str
    points: list[DatabaseEngineMetricsPoint]


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 2)


def _in_mib(size: int | None) -> float | None:
    return None if size is None else round(size / MIB, 1)
