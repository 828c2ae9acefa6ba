"""Apply the wanted state to the gateway: links on disk, and a load if needed.

Level-triggered: each call gets the complete state, so the next call repairs one that failed half-way.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Container
from dataclasses import replace

from moorage.core.net import tcp_sockets
from moorage.core.telemetry import Telemetry
from moorage.gateway import admin, caddy, operator_certificate
from moorage.gateway.app_routes import AppRoutes
from moorage.gateway.config import hosts as host_configs
from moorage.gateway.config.hosts import HostConfig
from moorage.gateway.links import Links
from moorage.gateway.wanted import Wanted
from moorage.products.rules.patterns import HostRules
from moorage.settings import BadSettings, Settings

DISK_SCAN_INTERVAL_S = 60.0
# Time without a change. Just after a deployment its author sends requests, and so does the deployment's health probe.
QUIET_BEFORE_LOAD_S = 10.0


class Routes:
    """One per machine: the only writer of the link folders and Caddy's configuration."""

    def __init__(self, settings: Settings, telemetry: Telemetry) -> None:
        self._settings = settings
        self._log = telemetry.log
        self._lock = asyncio.Lock()
        self._links = Links(settings, self._report_error)
        self._apps = AppRoutes(settings, self._report_error)
        self._scanned_at: float | None = None
        self._reported: dict[str, str] = {}
        self._written: HostConfig | None = None  # on disk: Caddy starts with it
        self._loaded: HostConfig | None = None  # in force in Caddy
        self._newest: HostConfig | None = None  # the last wanted one, unchanged since `_newest_at`
        self._newest_at = 0.0
        self._refused: dict[str, HostRules] = {}  # rules that Caddy rejected
        self._is_unreachable = False

    async def apply(self, wanted: Wanted) -> None:
        """Return when the gateway serves the wanted state; one call at a time.

        While Caddy is down, the configuration is written to disk, and each call tries to load it. Safe to repeat.
        """
        async with self._lock:
            # A moved host keeps its files or its app until its redirect is loaded.
            await asyncio.to_thread(self._sync_files, wanted)
            config = host_configs.of(wanted, self._apps.names())
            await self._configure(replace(config, certificate=await asyncio.to_thread(self._certificate)))
            if wanted.moved:
                await asyncio.to_thread(self._clear, wanted)

    @property
    def is_loaded(self) -> bool:
        """Whether Caddy runs with the last wanted configuration."""
        return self._loaded is not None and not self._is_unreachable

    def _sync_files(self, wanted: Wanted) -> None:
        now = time.monotonic()
        if self._scanned_at is None or now - self._scanned_at >= DISK_SCAN_INTERVAL_S:
            self._links.scan()
            self._apps.scan()
            if self._loaded is not None and self._loaded == self._written:
                self._apps.prune(self._loaded.direct)
            self._scanned_at = now
        # A host that changes between files and an app has both for a moment, and never neither.
        self._links.put(wanted)
        self._apps.put(wanted)
        self._clear(wanted, keep=wanted.moved)

    def _clear(self, wanted: Wanted, keep: Container[str] = ()) -> None:
        self._links.clear(wanted, keep=keep)
        self._apps.clear(wanted, keep=keep)

    def _certificate(self) -> str:
        """Return the certificate's fingerprint; the previous one if a file is unusable."""
        try:
            return operator_certificate.ensure_copy(self._settings)
        except (BadSettings, OSError) as error:
            self._report_error("the operator's certificate", error)
            previous = self._loaded or self._written or caddy.last_hosts(self._settings)
            return previous.certificate

    def _report_error(self, host: str, error: Exception) -> None:
        if self._reported.get(host) != str(error):
            self._reported[host] = str(error)
            self._log.error("cannot route a host", host=host, why=str(error))

    async def _configure(self, wanted: HostConfig) -> None:
        config = self._without_refused(wanted)
        if self._loaded is None and not self._is_unreachable:
            self._written = self._loaded = await self._running_config()
        if self._loaded is not None and config.serves_same_as(self._loaded) and not await self._should_optimise(config):
            return
        try:
            await self._load(config)
        except admin.Refused as error:
            await self._load_without_rejected_rules(config, str(error))

    async def _running_config(self) -> HostConfig | None:
        """Return Caddy's configuration if it is known: then a restart needs no load."""
        last = await asyncio.to_thread(caddy.last_hosts, self._settings)
        text = await asyncio.to_thread(caddy.config_text, self._settings, last)
        try:
            running = await admin.running(caddy.admin_socket(self._settings))
        except admin.Unreachable:
            return None
        return last if await asyncio.to_thread(json.loads, text) == running else None

    async def _should_optimise(self, config: HostConfig) -> bool:
        """Return whether to load a configuration that only speeds up the routing to apps.

        A load closes connections, also those that arrive at that moment. So it waits until no client is connected, and
        until a new connection is less likely.
        """
        now = time.monotonic()
        if config != self._newest:
            self._newest, self._newest_at = config, now
        if config == self._loaded or now - self._newest_at < QUIET_BEFORE_LOAD_S:
            return False
        return not await asyncio.to_thread(self._has_clients)

    def _has_clients(self) -> bool:
        """Return whether a client is connected to the gateway; always True on IPv6."""
        if ":" in self._settings.host:
            return True
        return any(tcp_sockets.count(port, tcp_sockets.ESTABLISHED) for port in caddy.ports(self._settings))

    async def _load(self, config: HostConfig) -> None:
        """Write the configuration to disk and load it into Caddy; raises Refused."""
        text = await asyncio.to_thread(caddy.config_text, self._settings, config)
        if config != self._written:
            await asyncio.to_thread(caddy.write_config, self._settings, config)
        try:
            await admin.load(caddy.admin_socket(self._settings), text.encode(), caddy.ports(self._settings))
        except admin.Unreachable as error:
            if not self._is_unreachable:
                self._log.warning("the gateway does not take its configuration; it will be tried again", why=str(error))
            self._is_unreachable = True
            if config.rules and config != self._written:  # Otherwise nothing checks that Caddy can start with it.
                await caddy.check(self._settings, text)
            self._written = config
            return
        self._is_unreachable = False
        self._written = self._loaded = config

    async def _load_without_rejected_rules(self, config: HostConfig, why: str) -> None:
        """Skip the rules that Caddy rejects: one host must not block changes of others."""
        rejected = await self._find_refused(config, sorted(config.rules))
        self._log.error("the gateway refuses its configuration", why=why, without_rules_of=rejected)
        self._refused |= {host: config.rules[host] for host in rejected}
        try:
            await self._load(self._without_refused(config))
        except admin.Refused as error:
            # The cause is not the rules of a host. Caddy keeps its configuration and must be able to start with it.
            self._log.error("the gateway refuses its configuration", why=str(error))
            self._written = None
            await asyncio.to_thread(caddy.write_config, self._settings, self._loaded or HostConfig())

    async def _find_refused(self, config: HostConfig, hosts: list[str]) -> list[str]:
        """Bisect the hosts for those whose rules Caddy rejects."""
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
