"""Start an app on request, and wait until one of its replicas is ready."""

from __future__ import annotations

from functools import partial

from moorage.core.db.scope import across_organizations
from moorage.core.db.store import Database
from moorage.core.db.tx import Tx
from moorage.products.apps import service
from moorage.products.apps.reconciler import AppReconciler
from moorage.products.apps.states import ReplicaStatus
from moorage.products.apps.tables import LiveApp
from moorage.products.apps.waker import AppAddress
from moorage.products.domains import service as domains
from moorage.products.projects import service as projects

READY_POLL_INTERVAL_S = 0.5


class AppStarter:
    def __init__(self, db: Database, reconciler: AppReconciler) -> None:
        self._db = db
        self._reconciler = reconciler

    async def wake(self, host: str) -> AppAddress | None:
        """Return the address of a host's app once it is ready; None without an app."""
        app = await self._db.read(partial(find_app, host=host))
        if app is None:
            return None
        if app.asleep and app.preview_id is None:
            await self._db.write(partial(service.wake, org_id=app.org_id, project_id=app.project_id))
        self._reconciler.wake()
        while True:
            target = await self._db.read(partial(_find_address, host=host))
            if target is None or target.port:
                return target
            await self._reconciler.changed(READY_POLL_INTERVAL_S)


@across_organizations("the host identifies the organization")
def find_app(tx: Tx, host: str) -> LiveApp | None:
    owner = domains.find_owner(tx, host)
    for app in service.view(tx).live:
        if projects.host_of(tx.env.settings, app.name) == host:
            return app
        if owner == (app.org_id, app.project_id) and app.preview_id is None:
            return app
    return None


@across_organizations("the host identifies the organization")
def _find_address(tx: Tx, host: str) -> AppAddress | None:
    app = find_app(tx, host)
    if app is None:
        return None
    rows = service.of_deployment(tx, app.org_id, app.deployment_id)
    return AppAddress(next((row.port for row in rows if row.status == ReplicaStatus.READY and row.port), 0))
