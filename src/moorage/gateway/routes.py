"""Makes the gateway serve exactly what is wanted: names on disk, and one load of Caddy where configuration differs.

Level-triggered: what is wanted comes whole each time, so a call that failed half-way is made good by the next one.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Container
from dataclasses import replace

from moorage.core.telemetry import Telemetry
from moorage.gateway import admin, caddy, operator_certificate
from moorage.gateway.app_routes import AppRoutes
from moorage.gateway.config import hosts as host_configs
from moorage.gateway.config.hosts import HostConfig
from moorage.gateway.links import Links
from moorage.gateway.wanted import Wanted
from moorage.products.rules.patterns import HostRules
from moorage.runtime.shim import ports
from moorage.settings import BadSettings, Settings

LOOK_AGAIN_S = 60.0
QUIET_S = 10.0  # without a change; who has just deployed something asks for it, and so does the deployment itself


class Routes:
    """One per machine: it takes the folders of links and Caddy's configuration for its own."""

    def __init__(self, settings: Settings, telemetry: Telemetry) -> None:
        self._settings = settings
        self._log = telemetry.log
        self._turn = asyncio.Lock()
        self._links = Links(settings, self._complain)
        self._apps = AppRoutes(settings, self._complain)
        self._looked_at: float | None = None
        self._complaints: dict[str, str] = {}
        self._written: HostConfig | None = None  # what Caddy will start with
        self._loaded: HostConfig | None = None  # what Caddy runs with
        self._newest: HostConfig | None = None  # what was wanted last, and since when
        self._newest_at = 0.0
        self._refused: dict[str, HostRules] = {}  # rules that Caddy would not take
        self._is_unreachable = False

    async def apply(self, wanted: Wanted) -> None:
        """Return when the gateway serves what is wanted; calls take their turns. Safe to repeat.

        While Caddy is down, its configuration waits for it on disk, and each call tries to reach it.
        """
        async with self._turn:
            # A host that moved keeps its files, or its app, until visitors are sent on.
            await asyncio.to_thread(self._bring_in_line, wanted)
            config = host_configs.of(wanted, self._apps.names())
            await self._configure(replace(config, certificate=await asyncio.to_thread(self._certificate)))
            if wanted.moved:
                await asyncio.to_thread(self._clear, wanted)

    @property
    def is_loaded(self) -> bool:
        """Whether Caddy runs with what was wanted last."""
        return self._loaded is not None and not self._is_unreachable

    def _bring_in_line(self, wanted: Wanted) -> None:
        now = time.monotonic()
        if self._looked_at is None or now - self._looked_at >= LOOK_AGAIN_S:
            self._links.look()
            self._apps.look()
            if self._loaded is not None and self._loaded == self._written:
                self._apps.prune(self._loaded.direct)
            self._looked_at = now
        # A host that changes between files and an app has both for a moment, and never neither.
        self._links.put(wanted)
        self._apps.put(wanted)
        self._clear(wanted, keep=wanted.moved)

    def _clear(self, wanted: Wanted, keep: Container[str] = ()) -> None:
        self._links.clear(wanted, keep=keep)
        self._apps.clear(wanted, keep=keep)

    def _certificate(self) -> str:
        """Return the operator's certificate as it is now; the one before where its files cannot be used."""
        try:
            return operator_certificate.ensure_copy(self._settings)
        except (BadSettings, OSError) as error:
            self._complain("the operator's certificate", error)
            before = self._loaded or self._written or caddy.last_hosts(self._settings)
            return before.certificate

    def _complain(self, host: str, error: Exception) -> None:
        if self._complaints.get(host) != str(error):
            self._complaints[host] = str(error)
            self._log.error("cannot route a host", host=host, why=str(error))

    async def _configure(self, wanted: HostConfig) -> None:
        config = self._without_refused(wanted)
        if self._loaded is None and not self._is_unreachable:
            self._written = self._loaded = await self._recall()
        if self._loaded is not None and config.is_as_good_as(self._loaded) and not await self._may_remember(config):
            return
        try:
            await self._load(config)
        except admin.Refused as error:
            await self._leave_out(config, str(error))

    async def _recall(self) -> HostConfig | None:
        """Return what Caddy runs with already: a control process that is started again need not load anything."""
        last = await asyncio.to_thread(caddy.last_hosts, self._settings)
        text = await asyncio.to_thread(caddy.config_text, self._settings, last)
        try:
            running = await admin.running(caddy.admin_socket(self._settings))
        except admin.Unreachable:
            return None
        return last if await asyncio.to_thread(json.loads, text) == running else None

    async def _may_remember(self, config: HostConfig) -> bool:
        """Tell whether to load names that are only quicker: a load closes connections, also those that come just then.

        So it waits until nobody is connected, and somebody soon is less likely.
        """
        now = time.monotonic()
        if config != self._newest:
            self._newest, self._newest_at = config, now
        if config == self._loaded or now - self._newest_at < QUIET_S:
            return False
        return not await asyncio.to_thread(self._is_in_use)

    def _is_in_use(self) -> bool:
        """Tell whether any client is connected to the gateway, as far as that can be told."""
        if ":" in self._settings.host:
            return True
        return any(ports.count(port, ports.ESTABLISHED) for port in caddy.ports(self._settings))

    async def _load(self, config: HostConfig) -> None:
        """Write the configuration for a Caddy that starts, and give it to the one that runs; raises Refused."""
        text = await asyncio.to_thread(caddy.config_text, self._settings, config)
        if config != self._written:
            await asyncio.to_thread(caddy.write_config, self._settings, config)
        try:
            await admin.load(caddy.admin_socket(self._settings), text.encode(), caddy.ports(self._settings))
        except admin.Unreachable as error:
            if not self._is_unreachable:
                self._log.warning("the gateway does not take its configuration; it will be tried again", why=str(error))
            self._is_unreachable = True
            if config.rules and config != self._written:  # Nobody else will tell whether Caddy can start with it.
                await caddy.check(self._settings, text)
            self._written = config
            return
        self._is_unreachable = False
        self._written = self._loaded = config

    async def _leave_out(self, config: HostConfig, why: str) -> None:
        """Go on without the rules that Caddy refuses: one host's must not keep the others from changing."""
        found = await self._find_refused(config, sorted(config.rules))
        self._log.error("the gateway refuses its configuration", why=why, without_rules_of=found)
        self._refused |= {host: config.rules[host] for host in found}
        try:
            await self._load(self._without_refused(config))
        except admin.Refused as error:
            # It is not for any host's rules. Caddy goes on with what it has, and must be able to start with it too.
            self._log.error("the gateway refuses its configuration", why=str(error))
            self._written = None
            await asyncio.to_thread(caddy.write_config, self._settings, self._loaded or HostConfig())

    async def _find_refused(self, config: HostConfig, hosts: list[str]) -> list[str]:
        """Halve the hosts until those are found that Caddy does not start with."""
        alone = HostConfig(rules={host: config.rules[host] for host in hosts})
        try:
            text = await asyncio.to_thread(caddy.config_text, self._settings, alone)
            await caddy.check(self._settings, text)
        except admin.Refused:
            middle = len(hosts) // 2
            if middle == 0:
                return hosts
            first = await self._find_refused(config, hosts[:middle])
            return [*first, *await self._find_refused(config, hosts[middle:])]
        return []

    def _without_refused(self, config: HostConfig) -> HostConfig:
        if not self._refused:
            return config
        kept = {host: its for host, its in config.rules.items() if self._refused.get(host) != its}
        return replace(config, rules=kept)
