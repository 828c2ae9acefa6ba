"""Routing table of apps: the first file name in `apps/<host>/` is its address.

A file name is `<order>~<address>`, or `<order>~waker` for a sleeping app. A change adds a file whose name sorts first,
and removes the others a while later: Caddy lists the folder and then stats the first file, which must still exist. All
names but the first have no effect.

Caddy's configuration may contain a name from the time of its load. When that name is no longer the first one, a file
`<order>-left-<address>` marks it as outdated, for as long as that configuration may be loaded.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Container, Mapping

from moorage.gateway import sites
from moorage.gateway.config.app_proxy import WAKER, left_name
from moorage.gateway.links import ReportError
from moorage.gateway.wanted import ADDRESS_PATTERN, AppRoute, Wanted
from moorage.settings import Settings

FORMER_NAME_KEPT_S = 2.0

_FIRST = 10**15
_NAME = re.compile(rf"([0-9]{{15}})~({WAKER}|{ADDRESS_PATTERN})")
_LEFT = re.compile(_NAME.pattern.replace("~", "-left-"))


class BadAddress(ValueError):
    """The address cannot be the address of an app."""

    def __init__(self, address: str) -> None:
        super().__init__(f"cannot route to {address!r}: it is not `<address>:<port>`")


class AppRoutes:
    """Not thread-safe: one thread at a time. `scan` reads the disk, as in `Links`."""

    def __init__(
        self, settings: Settings, report_error: ReportError, monotonic: Callable[[], float] = time.monotonic
    ) -> None:
        self._folder = settings.folder("apps")
        self._report_error = report_error
        self._monotonic = monotonic
        self._names_of: dict[str, list[str]] = {}  # by host: its file names, the one in force first
        self._outdated: dict[str, float] = {}  # by host: since when it has more than one name
        self._leaving: dict[str, float] = {}  # by host: since when it serves files instead of an app

    def scan(self) -> None:
        """Read the names on disk. Former names expire from the first scan on."""
        self._folder.mkdir(parents=True, exist_ok=True)
        with os.scandir(self._folder) as entries:
            hosts = [entry.name for entry in entries if sites.is_host(entry.name) and _is_folder(entry)]
        self._names_of = {host: names for host in hosts if (names := self._read_names(host))}
        now = self._monotonic()
        self._outdated = {
            host: self._outdated.get(host, now) for host, names in self._names_of.items() if len(names) > 1
        }

    def put(self, wanted: Wanted) -> None:
        """Create missing routes."""
        for host, route in wanted.apps.items():
            if host not in wanted.disabled and self._address(host) != _in_name(route):
                self._try(host, lambda host, route=route: self._add(host, route))  # type: ignore[misc]

    def clear(self, wanted: Wanted, *, keep: Container[str] = ()) -> None:
        """Remove surplus routes, except of the hosts in `keep`, and expired former names."""
        now = self._monotonic()
        for host in [*self._names_of]:
            if host in keep or (host in wanted.apps and host not in wanted.disabled):
                self._leaving.pop(host, None)
            # A request that found no file just before the site was published still looks for the app.
            elif host not in wanted.sites or self._leaving.setdefault(host, now) <= now - FORMER_NAME_KEPT_S:
                self._try(host, self._remove)
        for host in [host for host, since in self._outdated.items() if since <= now - FORMER_NAME_KEPT_S]:
            self._try(host, self._remove_former_names)

    def names(self) -> dict[str, str]:
        """Return the name in force, by host."""
        return {host: names[0] for host, names in self._names_of.items()}

    def prune(self, known: Mapping[str, str]) -> None:
        """Remove "left" marks of names that are not in Caddy's configuration (`known`)."""
        for host in filter(sites.is_host, os.listdir(self._folder)):
            self._try(host, lambda host: self._prune(host, known.get(host)))

    def _prune(self, host: str, known: str | None) -> None:
        folder = self._folder / host
        kept = left_name(known) if known else None
        entries = os.listdir(folder)
        outdated = [name for name in entries if _LEFT.fullmatch(name) and name != kept]
        for name in outdated:
            (folder / name).unlink(missing_ok=True)
        if len(outdated) == len(entries):
            folder.rmdir()

    def _try(self, host: str, change: Callable[[str], None]) -> None:
        try:
            change(host)
        except (OSError, sites.BadHost, BadAddress) as error:  # An error of one host must not stop the others.
            self._report_error(host, error)

    def _address(self, host: str) -> str | None:
        names = self._names_of.get(host)
        return names[0].partition("~")[2] if names else None

    def _add(self, host: str, route: AppRoute) -> None:
        if not sites.is_host(host):
            raise sites.BadHost(host)
        if route.bad_address is not None:
            raise BadAddress(route.bad_address)
        names = self._names_of.get(host, [])
        # The new name sorts first at any generation.
        order = min([_FIRST - max(route.generation, 1), *(int(name.partition("~")[0]) - 1 for name in names[:1])])
        name = f"{order:015d}~{_in_name(route)}"
        folder = self._folder / host
        folder.mkdir(exist_ok=True)
        (folder / name).touch(exist_ok=False)
        (folder / left_name(name)).unlink(missing_ok=True)
        self._names_of[host] = [name, *names]
        if names:
            (folder / left_name(names[0])).touch()
            self._outdated[host] = self._monotonic()

    def _remove(self, host: str) -> None:
        (self._folder / host / left_name(self._names_of[host][0])).touch()
        # From the last to the first: a former name must never become the first one.
        for name in reversed(self._names_of[host]):
            (self._folder / host / name).unlink(missing_ok=True)
        del self._names_of[host]
        self._outdated.pop(host, None)
        self._leaving.pop(host, None)

    def _remove_former_names(self, host: str) -> None:
        first, *former = self._names_of[host]
        for name in reversed(former):
            (self._folder / host / name).unlink(missing_ok=True)
        self._names_of[host] = [first]
        del self._outdated[host]

    def _read_names(self, host: str) -> list[str]:
        return sorted(name for name in os.listdir(self._folder / host) if _NAME.fullmatch(name))


def _in_name(route: AppRoute) -> str:
    return route.addresses[0] if route.addresses else WAKER


def _is_folder(entry: os.DirEntry[str]) -> bool:
    return entry.is_dir(follow_symlinks=False)
