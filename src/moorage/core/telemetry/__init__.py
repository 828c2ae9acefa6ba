"""Telemetry: logs, metrics and spans."""

from __future__ import annotations

import time
from typing import Any

from moorage.core.telemetry.logs import AccessLine, access_writer, get_logger
from moorage.core.telemetry.metrics import Metrics
from moorage.core.telemetry.tracing import make_tracer
from moorage.settings import Settings


class Telemetry:
    """Records requests, jobs and crashes as logs, metrics and spans."""

    def __init__(self, *, tracer: Any = None, quiet: bool = False) -> None:
        self.metrics = Metrics()
        self.log = get_logger("moorage")
        self._access = None if quiet else access_writer()
        self._tracer = tracer

    @classmethod
    def of(cls, settings: Settings) -> Telemetry:
        return cls(tracer=make_tracer(settings.otlp_endpoint))

    def request(self, request: Any, route: Any, status: int, seconds: float) -> None:
        path = route.path if route is not None else "unknown"
        self.metrics.requests.add(request.method if route is not None else "-", path, status, seconds)
        caller = request.caller
        if self._access is not None:
            org, user = (caller.org_id, caller.user_id) if caller is not None else (None, None)
            ms = int(seconds * 100_000) / 100
            line = AccessLine(request.trace_id, request.method, path, status, ms, org, user, request.client)
            self._access(line)
        if self._tracer is not None:
            attributes = {
                "http.request.method": request.method,
                "http.route": path,
                "http.response.status_code": status,
            }
            self._span(f"{request.method} {path}", seconds, {**attributes, "moorage.trace_id": request.trace_id})

    def job(self, kind: str, lane: str, outcome: str, seconds: float, waited_s: float, **facts: Any) -> None:
        self.metrics.jobs.labels(kind, outcome).observe(seconds)
        self.metrics.job_wait.labels(lane).observe(max(waited_s, 0))
        self.log.info("job", kind=kind, outcome=outcome, ms=round(seconds * 1000, 2), **facts)
        if self._tracer is not None:
            self._span(f"job {kind}", seconds, {"moorage.job.outcome": outcome})

    def crashed(self, trace_id: str | None, error: BaseException, where: str = "http") -> None:
        self.metrics.crashes.labels(where).inc()
        self.log.error("crashed", trace=trace_id, where=where, exc_info=error)

    def _span(self, name: str, seconds: float, attributes: dict[str, Any]) -> None:
        end = time.time_ns()
        span = self._tracer.start_span(name, start_time=end - int(seconds * 1e9), attributes=attributes)
        span.end(end_time=end)
