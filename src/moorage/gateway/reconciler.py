"""Keeps the gateway equal to the store: level-triggered, whole, and as often as anybody asks.

Whoever changes what an address serves asks for a round and waits for it; those who ask at the same time share one.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from pathlib import Path

from moorage.core.artifacts.store import ArtifactStore
from moorage.core.artifacts.unpacked import Unpacked
from moorage.core.db.scope import across_organizations
from moorage.core.db.store import Database
from moorage.core.db.tx import Tx
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

AGAIN_S = 0.05


@dataclass
class Hosts:
    """What the store says of every host, before the releases are on this machine."""

    sites: dict[str, LiveSite] = field(default_factory=dict)
    apps: dict[str, AppRoute] = field(default_factory=dict)
    disabled: set[str] = field(default_factory=set)
    moved: dict[str, str] = field(default_factory=dict)
    rules: dict[str, HostRules] = field(default_factory=dict)
    logged: set[str] = field(default_factory=set)


class Keeper:
    def __init__(
        self, db: Database, routes: Routes, releases: Unpacked, artifacts: ArtifactStore, telemetry: Telemetry
    ) -> None:
        self._db = db
        self._routes = routes
        self._releases = releases
        self._artifacts = artifacts
        self._telemetry = telemetry
        self._turn = asyncio.Lock()
        self._asked = 0
        self._done = 0

    async def settle(self) -> None:
        """Return when the gateway serves what the store said at the moment of this call, or something newer."""
        self._asked += 1
        mine = self._asked
        async with self._turn:
            if self._done >= mine:
                return
            round_ = self._asked
            hosts = await self._db.read(read_hosts)
            await self._routes.apply(await self._with_releases(hosts))
            self._done = round_

    async def ready(self, within_s: float) -> None:
        """Return when the gateway serves what the store says; a gateway that is only starting is waited for."""
        give_up_at = asyncio.get_running_loop().time() + within_s
        await self.settle()
        while not self._routes.is_loaded and asyncio.get_running_loop().time() < give_up_at:
            await asyncio.sleep(AGAIN_S)
            await self.settle()

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
            apps=hosts.apps,
            disabled=frozenset(hosts.disabled),
            moved=hosts.moved,
            rules=hosts.rules,
            logged=frozenset(hosts.logged),
        )


@across_organizations("one gateway serves everybody")
def read_hosts(tx: Tx) -> Hosts:
    """Return what every host should serve."""
    settings = tx.env.settings
    hosts = Hosts()
    places = {place.id: place for place in tx.all(tables.EVERY)}
    of_project = {place.id: [service.host_of(settings, place.name)] for place in places.values()}
    live = {site.project_id: site for site in tx.all(deployment_tables.LIVE_PROJECTS)}
    for host, project_id in domains.served(tx).items():
        if project_id in of_project:
            of_project[project_id].append(host)
    for project_id, names in of_project.items():
        if project_id in live:
            hosts.sites.update(dict.fromkeys(names, live[project_id]))
    for site in tx.all(deployment_tables.LIVE_PREVIEWS):
        hosts.sites.setdefault(service.host_of(settings, site.name), site)
        of_project[site.project_id].append(service.host_of(settings, site.name))
    _add_apps(tx, hosts, of_project)
    for project_id, its in rules.all_rules(tx).items():
        hosts.rules.update(dict.fromkeys(of_project.get(project_id, ()), its))
    for place in places.values():
        if not place.enabled:
            hosts.disabled.update(of_project[place.id])
        if place.enable_analytics:
            hosts.logged.update(of_project[place.id])
    taken = {name for names in of_project.values() for name in names}
    for former in tx.all(tables.LEFT_SINCE, since=tx.now - service.MOVED_MS):
        host = service.host_of(settings, former.name)
        if former.project_id in places and host not in taken:
            hosts.moved.setdefault(host, service.host_of(settings, places[former.project_id].name))
    return hosts


@across_organizations("one gateway serves everybody")
def _add_apps(tx: Tx, hosts: Hosts, of_project: dict[int, list[str]]) -> None:
    """Add where apps are to be reached. One that is live and has nothing ready is woken by who asks for it."""
    settings, seen = tx.env.settings, apps.view(tx)
    for app in seen.live:
        own = service.host_of(settings, app.name)
        names = of_project[app.project_id] if app.preview_id is None else [own]
        # A preview that takes a name which is served already was refused before.
        route = AppRoute(apps.addresses(seen, app.deployment_id), app.deployment_id)
        hosts.apps.update(dict.fromkeys(names, route))
        hosts.logged.update(names)
        if app.preview_id is not None:
            of_project[app.project_id].append(own)
    for candidate in seen.candidates:
        if found := apps.addresses(seen, candidate.deployment_id):
            hosts.apps[probe_host(settings, candidate.uuid)] = AppRoute(found, candidate.deployment_id)
