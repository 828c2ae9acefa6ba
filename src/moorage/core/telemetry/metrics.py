"""Prometheus metrics, and the application of the metrics port.

The values are kept here. prometheus_client, which writes their text, is imported by the first scrape: most platforms
are never scraped, and it takes 2 MB.
"""

from __future__ import annotations

import threading
from bisect import bisect_left
from collections.abc import Awaitable, Callable, Iterator, Mapping
from itertools import accumulate
from typing import Any

_BUCKETS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10)


class RequestTimes:
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

    def collect(self) -> Iterator[Any]:
        text = "Time from the first byte of a request to the last of its answer."
        labelled = {(method, route, str(status)): counts for (method, route, status), counts in self._counts.items()}
        yield _histogram("moorage_http_request_seconds", text, ("method", "route", "status"), labelled, str)


class Metric:
    """Values by the values of labels; any thread may change them."""

    def __init__(self, registry: list[Any], name: str, text: str, labels: tuple[str, ...] = ()) -> None:
        self._name, self._text, self._labels = name, text, labels
        self._values: dict[tuple[str, ...], Value] = {}
        self._lock = threading.Lock()
        if not labels:
            self.labels()
        registry.append(self)

    def labels(self, *values: object) -> Value:
        key = tuple(map(str, values))
        with self._lock:
            if key not in self._values:
                self._values[key] = Value(self._lock, self._zero())
            return self._values[key]

    def _zero(self) -> list[float]:
        return [0.0]


class Value:
    """The numbers of one combination of labels."""

    __slots__ = ("_lock", "numbers")

    def __init__(self, lock: threading.Lock, numbers: list[float]) -> None:
        self._lock = lock
        self.numbers = numbers

    def inc(self, amount: float = 1) -> None:
        with self._lock:
            self.numbers[0] += amount

    def set(self, number: float) -> None:
        self.numbers[0] = number

    def observe(self, seconds: float) -> None:
        with self._lock:
            self.numbers[bisect_left(_BUCKETS, seconds)] += 1
            self.numbers[-1] += seconds


class Counter(Metric):
    def inc(self, amount: float = 1) -> None:
        self.labels().inc(amount)

    def collect(self) -> Iterator[Any]:
        from prometheus_client.core import CounterMetricFamily

        family = CounterMetricFamily(self._name, self._text, labels=self._labels)
        for labels, value in list(self._values.items()):
            family.add_metric(labels, value.numbers[0])
        yield family


class Gauge(Metric):
    def set(self, number: float) -> None:
        self.labels().set(number)

    def collect(self) -> Iterator[Any]:
        from prometheus_client.core import GaugeMetricFamily

        family = GaugeMetricFamily(self._name, self._text, labels=self._labels)
        for labels, value in list(self._values.items()):
            family.add_metric(labels, value.numbers[0])
        yield family


class Histogram(Metric):
    def observe(self, seconds: float) -> None:
        self.labels().observe(seconds)

    def collect(self) -> Iterator[Any]:
        counts = {labels: value.numbers for labels, value in list(self._values.items())}
        yield _histogram(self._name, self._text, self._labels, counts, lambda bound: str(float(bound)))

    def _zero(self) -> list[float]:
        return [0.0] * (len(_BUCKETS) + 2)  # counts per bucket, then the sum


def _histogram(
    name: str,
    text: str,
    labels: tuple[str, ...],
    counts: Mapping[Any, list[float]],  # by the values of the labels
    bound_text: Callable[[float], str],
) -> Any:
    from prometheus_client.core import HistogramMetricFamily

    family = HistogramMetricFamily(name, text, labels=labels)
    for values, numbers in counts.items():
        bounds = [*map(bound_text, _BUCKETS), "+Inf"]
        family.add_metric(values, list(zip(bounds, accumulate(numbers[:-1]), strict=True)), numbers[-1])
    return family


class MonitorMetrics:
    """Metrics of monitor checks."""

    def __init__(self, registry: list[Any]) -> None:
        self.lag = Histogram(
            registry, "moorage_monitor_lag_seconds", "Time from when a check was due to when it began."
        )
        self.checks = Counter(registry, "moorage_monitor_checks_total", "Checks that were made.", ("status",))
        self.missed = Counter(registry, "moorage_monitor_missed_total", "Checks that were due and not made.")
        self.dropped = Counter(
            registry, "moorage_monitor_dropped_total", "Results that were not written down.", ("why",)
        )
        self.waiting = Gauge(registry, "moorage_monitor_waiting", "Checks that are due and wait for room.")


class Metrics:
    """The metrics of one process."""

    def __init__(self) -> None:
        self.requests = RequestTimes()
        all_metrics: list[Any] = [self.requests]
        self._all = all_metrics
        self.jobs = Histogram(all_metrics, "moorage_job_seconds", "Time a job ran.", ("kind", "outcome"))
        waited = "Time from when a job was due to when it started."
        self.job_wait = Histogram(all_metrics, "moorage_job_wait_seconds", waited, ("lane",))
        late = "How late the latest scheduled tick fired."
        self.tick_lag = Gauge(all_metrics, "moorage_schedule_lag_seconds", late)
        steps = "Times that the system clock was set."
        self.clock_steps = Counter(all_metrics, "moorage_clock_steps_total", steps, ("direction",))
        self.monitors = MonitorMetrics(all_metrics)
        self.crashes = Counter(all_metrics, "moorage_crashes_total", "Unexpected errors.", ("where",))

    def text(self) -> bytes:
        from prometheus_client import CollectorRegistry, generate_latest

        registry = CollectorRegistry()
        for metric in self._all:
            registry.register(metric)
        return generate_latest(registry)


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
