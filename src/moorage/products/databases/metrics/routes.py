"""HTTP routes of database metrics."""

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
        """Return the current CPU and memory usage of a database's servers.

        Usage is measured every 15 seconds. `cpuMilli` covers the time since the previous measurement, `memoryMiB`
        counts shared memory once; if the last measurement is older than a minute both are null and `available` is
        false. `containers` lists the server, named after its engine, and the replica of a replica set.
        """
        return DatabaseMetrics.of(metrics.snapshot(tx, caller.org_id, name))

    @router.get("/databases/{name}/metrics/summary", paid=True)
    def read_database_metrics_summary(
        tx: Tx, caller: Caller, name: str, query: DatabaseMetricsQuery
    ) -> DatabaseEngineMetricsSummary:
        """Return engine metrics: current `connections`, `qps` and `cacheHitPct`.

        `qps` and `cacheHitPct` are averages over `range`: `1h`, `24h`, `7d` or `30d`. Fields without data are null, and
        `cacheHitPct` without reads. A cache miss of PostgreSQL may still be a hit in the operating system's cache.
        """
        database = metrics.engine_database(tx, caller.org_id, caller.standing, name)
        summary = metrics.summary(tx, caller.org_id, database.id, query.range)
        return DatabaseEngineMetricsSummary.of(query.range, database.engine, summary)

    @router.get("/databases/{name}/metrics/timeseries", paid=True)
    def read_database_metrics_timeseries(
        tx: Tx, caller: Caller, name: str, query: DatabaseMetricsQuery
    ) -> DatabaseEngineMetricsTimeseries:
        """Return engine metrics and usage of a database over time.

        A point covers the time from `t` on: one minute (`1h`), five (`24h`), one hour (`7d`) or four (`30d`). The last
        point is the current one; a null is a missing sample. `cpuMilli` and `memoryMiB` are averages over all servers
        of the database, `diskMiB` is the largest value.
        """
        database = metrics.engine_database(tx, caller.org_id, caller.standing, name)
        figures = metrics.series(tx, caller.org_id, database.id, query.range)
        points = [DatabaseEngineMetricsPoint.of(each) for each in figures]
        return DatabaseEngineMetricsTimeseries(query.range, True, database.engine, points)

    return router
