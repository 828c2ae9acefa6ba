"""Route of a project's analytics."""

from __future__ import annotations

from moorage.accounts.identity.caller import Caller
from moorage.core.db.tx import Tx
from moorage.core.http.route import Router
from moorage.products.analytics import service
from moorage.products.analytics.schemas import AnalyticsQuery, ProjectAnalytics
from moorage.products.projects import service as projects


def make_router() -> Router:
    router = Router("Projects")

    @router.get("/projects/{name}/analytics")
    def read_analytics(tx: Tx, caller: Caller, name: str, query: AnalyticsQuery) -> ProjectAnalytics:
        """Return a project's requests, visitors, bytes, top paths and referrers.

        `range` is `24h` (in hours), `7d`, `30d` or `90d` (in days, UTC); the current hour or day is the last. A visitor
        counts once a day: no cookie is set and no IP address is stored, so visitors are not recognized on another day.
        Self-declared bots count as requests, not as visitors. The top lists cover whole days and have 20 entries each,
        and `other` for the rest. Without `enableAnalytics`, `enabled` is false and there are no figures.
        """
        project = projects.get(tx, caller.org_id, name)
        return service.read(tx, caller.org_id, project, query.range)

    return router
