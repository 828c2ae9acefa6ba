"""Start an app on request, and wait until one of its replicas is ready."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from moorage.core.db.scope import across_organizations
from moorage.core.db.store import Database
from moorage.core.db.tx import Tx
from moorage.products.apps import service
from moorage.products.apps.machines import placing
from moorage.products.apps.reconciler import AppReconciler
from moorage.products.apps.tables import LiveApp
from moorage.products.apps.waker import absent
from moorage.products.domains import service as domains
from moorage.products.projects import service as projects
from moorage.runtime.engines.ports import Address, HostOf, stored_host

READY_POLL_INTERVAL_S = 0.5


class AppStarter:
    def __init__(
        self,
        db: Database,
        reconciler: AppReconciler,
        local_address: Callable[[str], str],
        host_of: HostOf = stored_host,
    ) -> None:
        self._db = db
        self._reconciler = reconciler
        self._local_address = local_address  # of a replica, also on another machine
        self._host_of = host_of

    async def wake(self, host: str) -> Address | None:
        """Return the address of a host's app once it is ready; None without an app."""
        app = await self._db.read(partial(find_app, host=host))
        if app is None:
            return None
        if (why := await self._db.read(partial(_explain_absence, app=app))) is not None:
            raise absent(why)
        if app.asleep and app.preview_id is None:
            await self._db.write(partial(service.wake, org_id=app.org_id, project_id=app.project_id))
        self._reconciler.wake()
        while True:
            address = await self._db.read(partial(_find_address, host=host, host_of=self._host_of))
            if address is None:
                return None
            if address:
                host, _, port = self._local_address(address).rpartition(":")
                return Address(int(port), host.strip("[]"))
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


@across_organizations("the app names the organization")
def _explain_absence(tx: Tx, app: LiveApp) -> str | None:
    project = projects.find_by_id(tx, app.org_id, app.project_id) if app.has_volume else None
    return None if project is None else placing.explain_absence(tx, app.org_id, project)


@across_organizations("the host identifies the organization")
def _find_address(tx: Tx, host: str, host_of: HostOf) -> str | None:
    """Return the address of a ready replica; empty while there is none, and None without an app."""
    app = find_app(tx, host)
    if app is None:
        return None
    seen = service.relocated(service.view(tx), host_of)
    return next(iter(service.addresses(seen, app.deployment_id)), "")
