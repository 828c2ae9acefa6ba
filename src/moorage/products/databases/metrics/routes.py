"""The metrics of a database: what its servers use now, and what its engine did over time."""

from __future__ import annotations

from moorage.accounts.identity.caller import Caller
from moorage.core.db.tx import Tx
from moorage.core.http.route import Router
from moorage.products.databases.metrics import service as metrics
from moorage.products.databases.metrics.schemas import (
    DatabaseEngineMetricsPoint,
    DatabaseEngineMetricsSummary,
    DatabaseEngineMetricsTimeseries,
    DatabaseMetrics,
    DatabaseMetricsQuery,
)


def make_router() -> Router:
    router = Router("Databases")

    @router.get("/databases/{name}/metrics")
    def read_database_metrics(tx: Tx, caller: Caller, name: str) -> DatabaseMetrics:
        """Return what the servers of a database use right now.

        They are looked at every 15 seconds. `cpuMilli` is of the time since the look before, `memoryMiB` counts what
        processes share once; both are null where the last look was more than a minute ago, and `available` is false.
        `containers` has the server, named for its engine, and the replica of a replica set.
        """
        return DatabaseMetrics.of(metrics.snapshot(tx, caller.org_id, name))

    @router.get("/databases/{name}/metrics/summary", paid=True)
    def read_database_metrics_summary(
        tx: Tx, caller: Caller, name: str, query: DatabaseMetricsQuery
    ) -> DatabaseEngineMetricsSummary:
        """Return how the engine of a database does: `connections` now, `qps` and `cacheHitPct` over the range.

        `range` is `1h`, `24h`, `7d` or `30d`. What there is no data for is null, and so is `cacheHitPct` where nothing
        was read. What PostgreSQL reads past its own cache may come from that of the operating system all the same.
        """
        found = metrics.engine_database(tx, caller.org_id, caller.standing, name)
        whole = metrics.summary(tx, caller.org_id, found.id, query.range)
        return DatabaseEngineMetricsSummary.of(query.range, found.engine, whole)

    @router.get("/databases/{name}/metrics/timeseries", paid=True)
    def read_database_metrics_timeseries(
        tx: Tx, caller: Caller, name: str, query: DatabaseMetricsQuery
    ) -> DatabaseEngineMetricsTimeseries:
        """Return how the engine of a database did over time.

        A point sums up what happened from `t` on: a minute (`1h`), five (`24h`), an hour (`7d`) or four (`30d`). The
        present one is the last; a null is a missing sample.
        """
        found = metrics.engine_database(tx, caller.org_id, caller.standing, name)
        figures = metrics.series(tx, caller.org_id, found.id, query.range)
        points = [DatabaseEngineMetricsPoint.of(each) for each in figures]
        return DatabaseEngineMetricsTimeseries(query.range, True, found.engine, points)

    return router
