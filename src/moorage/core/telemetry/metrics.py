"""Prometheus metrics, and the application of the metrics port."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Awaitable, Callable, Iterator
from itertools import accumulate
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.core import HistogramMetricFamily
from prometheus_client.registry import Collector

_BUCKETS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10)


class RequestTimes(Collector):
    """Histogram of requests without a lock, because only the event loop adds to it."""

    def __init__(self) -> None:
        self._counts: dict[tuple[str, str, int], list[float]] = {}  # counts per bucket, then the sum of seconds

    def add(self, method: str, route: str, status: int, seconds: float) -> None:
        key = (method, route, status)
        counts = self._counts.get(key)
        if counts is None:
            counts = self._counts[key] = [0.0] * (len(_BUCKETS) + 2)
        counts[bisect_left(_BUCKETS, seconds)] += 1
        counts[-1] += seconds

    def collect(self) -> Iterator[HistogramMetricFamily]:
        text = "Time from the first byte of a request to the last of its answer."
        family = HistogramMetricFamily("moorage_http_request_seconds", text, labels=("method", "route", "status"))
        for (method, route, status), counts in self._counts.items():
            totals = list(accumulate(counts[:-1]))
            buckets = [(str(bound), total) for bound, total in zip((*_BUCKETS, "+Inf"), totals, strict=True)]
            family.add_metric((method, route, str(status)), buckets, counts[-1])
        yield family


class MonitorMetrics:
    """Metrics of monitor checks."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.lag = Histogram(
            "moorage_monitor_lag_seconds",
            "Time from when a check was due to when it began.",
            registry=registry,
            buckets=_BUCKETS,
        )
        self.checks = Counter("moorage_monitor_checks_total", "Checks that were made.", ("status",), registry=registry)
        self.missed = Counter("moorage_monitor_missed_total", "Checks that were due and not made.", registry=registry)
        self.dropped = Counter(
            "moorage_monitor_dropped_total", "Results that were not written down.", ("why",), registry=registry
        )
        self.waiting = Gauge("moorage_monitor_waiting", "Checks that are due and wait for room.", registry=registry)


class Metrics:
    """The metrics of one process, in their own registry."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.requests = RequestTimes()
        self.registry.register(self.requests)
        self.jobs = Histogram(
            "moorage_job_seconds", "Time a job ran.", ("kind", "outcome"), registry=self.registry, buckets=_BUCKETS
        )
        self.job_wait = Histogram(
            "moorage_job_wait_seconds",
            "Time from when a job was due to when it started.",
            ("lane",),
            registry=self.registry,
            buckets=_BUCKETS,
        )
        self.tick_lag = Gauge(
            "moorage_schedule_lag_seconds", "How late the latest scheduled tick fired.", registry=self.registry
        )
        self.clock_steps = Counter(
            "moorage_clock_steps_total", "Times that the system clock was set.", ("direction",), registry=self.registry
        )
        self.monitors = MonitorMetrics(self.registry)
        self.crashes = Counter("moorage_crashes_total", "Unexpected errors.", ("where",), registry=self.registry)

    def text(self) -> bytes:
        return generate_latest(self.registry)


Ready = Callable[[], Awaitable[str | None]]


def application(metrics: Metrics, ready: Ready) -> Any:
    """Return the ASGI application; `ready` returns a problem or None."""

    async def answer(path: str) -> tuple[int, bytes]:
        if path == "/metrics":
            return 200, metrics.text()
        if path == "/ready":
            problem = await ready()
            return (200, b"ready\n") if problem is None else (503, problem.encode() + b"\n")
        return 404, b"not found: this port serves /metrics and /ready\n"

    async def app(scope: dict[str, Any], receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            return
        status, body = await answer(scope["path"])
        headers = [(b"content-type", b"text/plain; version=0.0.4; charset=utf-8")]
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": body})

    return app
