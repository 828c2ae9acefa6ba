"""Keep the gateway's routes equal to the database, level-triggered.

A change of a host's routes requests a pass and waits for it; concurrent requests share one pass.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from dataclasses import field, replace
from functools import partial
from pathlib import Path

from moorage.core.artifacts.store import ArtifactStore
from moorage.core.artifacts.unpacked import Unpacked
from moorage.core.db.scope import across_organizations
from moorage.core.db.store import Database
from moorage.core.db.tx import Tx
from moorage.core.gateways import service as gateways
from moorage.core.kit.records import dataclass
from moorage.core.telemetry import Telemetry
from moorage.gateway.routes import Routes
from moorage.gateway.wanted import AppRoute, Wanted
from moorage.products.apps import service as apps
from moorage.products.apps.deploying import probe_host
from moorage.products.domains import service as domains
from moorage.products.projects import service, tables
from moorage.products.projects.deployments import tables as deployment_tables
from moorage.products.projects.deployments.tables import LiveSite
from moorage.products.rules import service as rules
from moorage.products.rules.patterns import HostRules
from moorage.runtime.engines.ports import HostOf, stored_host

GATEWAY_START_POLL_INTERVAL_S = 0.05


@dataclass
class Hosts:
    """State of every host in the database, before its release is on this machine."""

    sites: dict[str, LiveSite] = field(default_factory=dict)
    apps: dict[str, AppRoute] = field(default_factory=dict)
    disabled: set[str] = field(default_factory=set)
    building: set[str] = field(default_factory=set)
    unpublished: set[str] = field(default_factory=set)
    moved: dict[str, str] = field(default_factory=dict)
    rules: dict[str, HostRules] = field(default_factory=dict)
    logged: set[str] = field(default_factory=set)


class GatewayReconciler:
    def __init__(
        self,
        db: Database,
        routes: Routes,
        releases: Unpacked,
        artifacts: ArtifactStore,
        telemetry: Telemetry,
        local_address: Callable[[str], str] = str,
        host_of: HostOf = stored_host,
    ) -> None:
        self._db = db
        self._routes = routes
        self._releases = releases
        self._artifacts = artifacts
        self._telemetry = telemetry
        self._local_address = local_address  # of a replica, also on another machine
        self._host_of = host_of
        self._turn = asyncio.Lock()
        self._requested = 0
        self._completed = 0
        self._served: int | None = None  # generation of the routes that are in force

    async def sync_routes(self) -> None:
        """Return when the gateway serves the database state of this call or newer."""
        self._requested += 1
        request = self._requested
        async with self._turn:
            if self._completed >= request:
                return
            last_request = self._requested
            generation, hosts = await self._db.read(partial(_read, host_of=self._host_of))
            await self._routes.apply(await self._with_releases(hosts))
            self._completed = last_request
            if self._routes.is_loaded:
                is_new = generation != self._served
                self._served = generation
                if is_new:
                    await self.beat()

    async def beat(self) -> None:
        """Record the generation that the gateway serves, as a heartbeat. A Caddy that does not run has none."""
        if self._served is not None and self._routes.is_loaded and self._db.dialect == "postgresql":
            key, generation = own_key(self._db), self._served
            await self._db.write(lambda tx: gateways.serve(tx, key, generation))

    async def leave(self) -> None:
        """Delete the row of this gateway, so that no deployment waits for it."""
        if self._served is not None and self._db.dialect == "postgresql":
            self._served = None
            await self._db.write(lambda tx: gateways.forget(tx, own_key(self._db)))

    async def ready(self, within_s: float) -> None:
        """Sync the routes; wait up to `within_s` for a gateway that is still starting."""
        give_up_at = asyncio.get_running_loop().time() + within_s
        await self.sync_routes()
        while not self._routes.is_loaded and asyncio.get_running_loop().time() < give_up_at:
            await asyncio.sleep(GATEWAY_START_POLL_INTERVAL_S)
            await self.sync_routes()

    async def _with_releases(self, hosts: Hosts) -> Wanted:
        folders: dict[str, Path] = {}
        for host, site in hosts.sites.items():
            folder = self._releases.folder_of(site.digest)
            if not folder.is_dir():
                try:
                    folder = await self._releases.ensure(self._artifacts, site.org_id, site.digest)
                except Exception as error:  # noqa: BLE001 - one damaged release must not take every other host down
                    self._telemetry.crashed(None, error, where=f"release of {host}")
                    continue
            folders[host] = folder
        return Wanted(
            sites=folders,
            apps={host: self._localize(route) for host, route in hosts.apps.items()},
            disabled=frozenset(hosts.disabled),
            building=frozenset(hosts.building),
            unpublished=frozenset(hosts.unpublished),
            moved=hosts.moved,
            rules=hosts.rules,
            logged=frozenset(hosts.logged),
        )

    def _localize(self, route: AppRoute) -> AppRoute:
        return replace(route, addresses=tuple(map(self._local_address, route.addresses)))


def own_key(db: Database) -> str:
    """Return the key of the gateway that this process configures. One that runs on its own has no machine."""
    if machine_id := db.env.machine.id:
        return key_of(machine_id)
    return f"gateway:{db.env.settings.machine_name or socket.gethostname()}"


def key_of(machine_id: int) -> str:
    """Return the key of the gateway of a machine."""
    return f"machine:{machine_id}"


@across_organizations("one gateway serves all organizations")
def _read(tx: Tx, host_of: HostOf) -> tuple[int, Hosts]:
    """Return the generation, which is read first, and the hosts."""
    return gateways.current(tx), read_hosts(tx, host_of)


@across_organizations("one gateway serves all organizations")
def read_hosts(tx: Tx, host_of: HostOf = stored_host) -> Hosts:
    """Return the wanted state of every host; `host_of` returns the present addresses of replicas."""
    settings = tx.env.settings
    hosts = Hosts()
    projects = {project.id: project for project in tx.all(tables.EVERY)}
    of_project = {project.id: [service.host_of(settings, project.name)] for project in projects.values()}
    is_open = set(tx.all(deployment_tables.OPEN_PROJECTS))
    live = {site.project_id: site for site in tx.all(deployment_tables.LIVE_PROJECTS)}
    for host, project_id in domains.served(tx).items():
        if project_id in of_project:
            of_project[project_id].append(host)
    for project_id, names in of_project.items():
        if project_id in live:
            hosts.sites.update(dict.fromkeys(names, live[project_id]))
        elif projects[project_id].current_deployment_id is None:
            # Hosts of previews are left out: builds of pull requests concern members only.
            (hosts.building if project_id in is_open else hosts.unpublished).update(names)
    for site in tx.all(deployment_tables.LIVE_PREVIEWS):
        hosts.sites.setdefault(service.host_of(settings, site.name), site)
        of_project[site.project_id].append(service.host_of(settings, site.name))
    for name, project_id in tx.all(deployment_tables.DISABLED_PREVIEWS):
        of_project[project_id].append(service.host_of(settings, name))
    _add_apps(tx, hosts, of_project, host_of)
    for project_id, project_rules in rules.all_rules(tx).items():
        hosts.rules.update(dict.fromkeys(of_project.get(project_id, ()), project_rules))
    for project in projects.values():
        if not project.enabled:
            hosts.disabled.update(of_project[project.id])
        if project.enable_analytics:
            hosts.logged.update(of_project[project.id])
    taken = {name for names in of_project.values() for name in names}
    for former in tx.all(tables.LEFT_SINCE, since=tx.now - service.MOVED_MS):
        host = service.host_of(settings, former.name)
        if former.project_id in projects and host not in taken:
            hosts.moved.setdefault(host, service.host_of(settings, projects[former.project_id].name))
    return hosts


@across_organizations("one gateway serves all organizations")
def _add_apps(tx: Tx, hosts: Hosts, of_project: dict[int, list[str]], host_of: HostOf) -> None:
    """Add routes to apps; a live app without a ready replica routes to the waker."""
    settings, seen = tx.env.settings, apps.relocated(apps.view(tx), host_of)
    for app in seen.live:
        own = service.host_of(settings, app.name)
        names = of_project[app.project_id] if app.preview_id is None else [own]
        # A preview cannot take a served name: its creation was refused.
        route = AppRoute(apps.addresses(seen, app.deployment_id), app.deployment_id)
        hosts.apps.update(dict.fromkeys(names, route))
        hosts.logged.update(names)
        if app.preview_id is not None:
            of_project[app.project_id].append(own)
    for candidate in seen.candidates:
        if addresses := apps.addresses(seen, candidate.deployment_id):
            hosts.apps[probe_host(settings, candidate.uuid)] = AppRoute(addresses, candidate.deployment_id)
