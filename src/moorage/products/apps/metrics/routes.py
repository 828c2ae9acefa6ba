"""Route of an app's metrics."""

from __future__ import annotations

from moorage.accounts.identity.caller import Caller
from moorage.core.db.tx import Tx
from moorage.core.http.route import Router
from moorage.core.kit.clock import HOUR_MS, MINUTE_MS, SECOND_MS
from moorage.products.apps.metrics import service as metrics
from moorage.products.apps.metrics.schemas import MetricsItem, MetricsQuery, MetricsTotals, ProjectMetrics, RangeName
from moorage.products.projects import service as projects

# Width of a bucket and number of buckets, at most 288.
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
        """Return usage, requests and latency of a container project over time.

        `range` is `1h` (buckets of one minute), `6h` (two minutes), `24h` (five minutes) or `7d` (one hour, UTC); the
        last bucket is the current one, and empty buckets are included. `cpuPercent` is relative to the tier's limit for
        the replicas that ran, null where none ran; `memoryMiB` and `replicas` are maxima. `p50Ms` and `p95Ms` are null
        without requests, and exclude WebSockets. All figures of a static project are zero.
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
