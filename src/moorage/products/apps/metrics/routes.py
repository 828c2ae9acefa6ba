"""The metrics of an app."""

from __future__ import annotations

from moorage.accounts.identity.caller import Caller
from moorage.core.db.tx import Tx
from moorage.core.http.route import Router
from moorage.core.kit.clock import HOUR_MS, MINUTE_MS, SECOND_MS
from moorage.products.apps.metrics import service as metrics
from moorage.products.apps.metrics.schemas import MetricsItem, MetricsQuery, MetricsTotals, ProjectMetrics, RangeName
from moorage.products.projects import service as projects

# The width of a bucket, and how many there are: at most 288.
_SHAPES: dict[RangeName, tuple[int, int]] = {
    "1h": (MINUTE_MS, 60),
    "6h": (2 * MINUTE_MS, 180),
    "24h": (5 * MINUTE_MS, 288),
    "7d": (HOUR_MS, 168),
}


def make_router() -> Router:
    router = Router("Projects")

    @router.get("/projects/{name}/metrics")
    def read_app_metrics(tx: Tx, caller: Caller, name: str, query: MetricsQuery) -> ProjectMetrics:
        """Return what a container project used and how it answered, over time.

        `range` is `1h` (by the minute), `6h` (by two), `24h` (by five) or `7d` (by the hour, UTC); the present bucket
        is the last, and those in which nothing happened are there too. `cpuPercent` is of what the tier allows the
        replicas that ran, null where none did; `memoryMiB` and `replicas` are the most there were. `p50Ms` and `p95Ms`
        are null without requests, and leave WebSockets out. A static project has no such figures: its are zero.
        """
        project = projects.get(tx, caller.org_id, name)
        width, steps = _SHAPES[query.range]
        end = (tx.now // width + 1) * width
        buckets = metrics.read(tx, caller.org_id, project.id, end - width * steps, end, width)
        return ProjectMetrics(
            range=query.range,
            bucket_seconds=width // SECOND_MS,
            items=[MetricsItem.of(bucket) for bucket in buckets],
            totals=MetricsTotals.of(buckets),
        )

    return router
