"""Prometheus metrics, and the small server on a loopback port that shows them with `/ready`."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

_BUCKETS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10)


class Metrics:
    """The figures of one process. A registry of its own keeps two in one test apart."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.requests = Histogram(
            "moorage_http_request_seconds",
            "Time from the first byte of a request to the last of its answer.",
            ("method", "route", "status"),
            registry=self.registry,
            buckets=_BUCKETS,
        )
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
        self.crashes = Counter("moorage_crashes_total", "Unexpected errors.", ("where",), registry=self.registry)
        self._request_children: dict[tuple[str, str, int], Any] = {}

    def request(self, method: str, route: str, status: int, seconds: float) -> None:
        key = (method, route, status)
        child = self._request_children.get(key)
        if child is None:
            child = self._request_children[key] = self.requests.labels(method, route, str(status))
        child.observe(seconds)

    def text(self) -> bytes:
        return generate_latest(self.registry)


Ready = Callable[[], Awaitable[str | None]]


def application(metrics: Metrics, ready: Ready) -> Any:
    """Return the ASGI application of the metrics port. `ready` says what is wrong, or None."""

    async def answer(path: str) -> tuple[int, bytes]:
        if path == "/metrics":
            return 200, metrics.text()
        if path == "/ready":
            problem = await ready()
            return (200, b"ready\n") if problem is None else (503, problem.encode() + b"\n")
        return 404, b"there are /metrics and /ready here\n"

    async def app(scope: dict[str, Any], receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            return
        status, body = await answer(scope["path"])
        headers = [(b"content-type", b"text/plain; version=0.0.4; charset=utf-8")]
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": body})

    return app
