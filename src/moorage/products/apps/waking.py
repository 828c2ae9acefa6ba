"""Waking an app: what happens when a request comes for one that has no replica that is ready."""

from __future__ import annotations

from functools import partial

from moorage.core.db.scope import across_organizations
from moorage.core.db.store import Database
from moorage.core.db.tx import Tx
from moorage.products.apps import service
from moorage.products.apps.reconciler import Keeper
from moorage.products.apps.states import ReplicaStatus
from moorage.products.apps.tables import LiveApp
from moorage.products.apps.waker import Target
from moorage.products.domains import service as domains
from moorage.products.projects import service as projects

LOOK_S = 0.5


class Waking:
    def __init__(self, db: Database, keeper: Keeper) -> None:
        self._db = db
        self._keeper = keeper

    async def wake(self, host: str) -> Target | None:
        """Return where an app is to be reached as soon as it is; None for a host that leads to no app."""
        app = await self._db.read(partial(find_app, host=host))
        if app is None:
            return None
        if app.asleep and app.preview_id is None:
            await self._db.write(partial(service.wake, org_id=app.org_id, project_id=app.project_id))
        self._keeper.wake()
        while True:
            found = await self._db.read(partial(_find_target, host=host))
            if found is None or found.port:
                return found
            await self._keeper.changed(LOOK_S)


@across_organizations("a host leads to whoever has it")
def find_app(tx: Tx, host: str) -> LiveApp | None:
    """Return the app that a host leads to."""
    owner = domains.find_owner(tx, host)
    for app in service.view(tx).live:
        if projects.host_of(tx.env.settings, app.name) == host:
            return app
        if owner == (app.org_id, app.project_id) and app.preview_id is None:
            return app
    return None


@across_organizations("a host leads to whoever has it")
def _find_target(tx: Tx, host: str) -> Target | None:
    app = find_app(tx, host)
    if app is None:
        return None
    rows = service.of_deployment(tx, app.org_id, app.deployment_id)
    return Target(next((row.port for row in rows if row.status == ReplicaStatus.READY and row.port), 0))
