"""The folder of routes to apps: the name of the first file in `apps/<host>/` says where the host's app listens.

A name is `<order>~<address>`, or `<order>~waker` for an app that sleeps. A change puts a file there whose name sorts
before all others, and takes the others away a while later: the gateway lists a folder and then looks at the first file,
and one that it had found must still be there. Whatever is left behind the first name has no effect.

The gateway's configuration may know a name from the time it was loaded. As soon as that is no longer the first one, a
file `<order>-left-<address>` says so, as long as that configuration may be in use.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Container, Mapping

from moorage.gateway import sites
from moorage.gateway.config.app_proxy import WAKER, left_name
from moorage.gateway.links import Complain
from moorage.gateway.wanted import ADDRESS_PATTERN, AppRoute, Wanted
from moorage.settings import Settings

KEPT_S = 2.0  # how long a former name stays

_FIRST = 10**15
_NAME = re.compile(rf"([0-9]{{15}})~({WAKER}|{ADDRESS_PATTERN})")
_LEFT = re.compile(_NAME.pattern.replace("~", "-left-"))


class BadAddress(ValueError):
    """The address is not one that an app can have."""

    def __init__(self, address: str) -> None:
        super().__init__(f"cannot route to {address!r}: should be an address and a port")


class AppRoutes:
    """Used by one thread at a time. As `Links`, it remembers what it put there, and looks when it is told to."""

    def __init__(self, settings: Settings, complain: Complain, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._folder = settings.folder("apps")
        self._complain = complain
        self._monotonic = monotonic
        self._there: dict[str, list[str]] = {}  # by host: the names of its files, the one in force first
        self._outdated: dict[str, float] = {}  # by host: since when all but its first name are
        self._leaving: dict[str, float] = {}  # by host: since when it has files instead of an app

    def look(self) -> None:
        """Find out what is there. Former names count as such from the first look on."""
        self._folder.mkdir(parents=True, exist_ok=True)
        with os.scandir(self._folder) as entries:
            hosts = [entry.name for entry in entries if sites.is_host(entry.name) and _is_folder(entry)]
        self._there = {host: names for host in hosts if (names := self._names(host))}
        now = self._monotonic()
        self._outdated = {host: self._outdated.get(host, now) for host, names in self._there.items() if len(names) > 1}

    def put(self, wanted: Wanted) -> None:
        """Bring into place what is missing."""
        for host, route in wanted.apps.items():
            if host not in wanted.disabled and self._address(host) != _in_name(route):
                self._try(host, lambda host, route=route: self._add(host, route))  # type: ignore[misc]

    def clear(self, wanted: Wanted, *, keep: Container[str] = ()) -> None:
        """Take away what is too much, except the hosts to keep; former names when their time has come."""
        now = self._monotonic()
        for host in [*self._there]:
            if host in keep or (host in wanted.apps and host not in wanted.disabled):
                self._leaving.pop(host, None)
            # Whoever found no file before there was one looks for the app after that.
            elif host not in wanted.sites or self._leaving.setdefault(host, now) <= now - KEPT_S:
                self._try(host, self._remove)
        for host in [host for host, since in self._outdated.items() if since <= now - KEPT_S]:
            self._try(host, self._sweep)

    def names(self) -> dict[str, str]:
        """Return the name that is in force, by host."""
        return {host: names[0] for host, names in self._there.items()}

    def prune(self, known: Mapping[str, str]) -> None:
        """Take away what was said of names that no configuration knows; those in use know these, by host."""
        for host in filter(sites.is_host, os.listdir(self._folder)):
            self._try(host, lambda host: self._prune(host, known.get(host)))

    def _prune(self, host: str, known: str | None) -> None:
        folder = self._folder / host
        kept = left_name(known) if known else None
        entries = os.listdir(folder)
        gone = [name for name in entries if _LEFT.fullmatch(name) and name != kept]
        for name in gone:
            (folder / name).unlink(missing_ok=True)
        if len(gone) == len(entries):
            folder.rmdir()

    def _try(self, host: str, change: Callable[[str], None]) -> None:
        try:
            change(host)
        except (OSError, sites.BadHost, BadAddress) as error:  # What is wrong with one host must not stop the others.
            self._complain(host, error)

    def _address(self, host: str) -> str | None:
        names = self._there.get(host)
        return names[0].partition("~")[2] if names else None

    def _add(self, host: str, route: AppRoute) -> None:
        if not sites.is_host(host):
            raise sites.BadHost(host)
        if route.bad_address is not None:
            raise BadAddress(route.bad_address)
        names = self._there.get(host, [])
        # Whatever the generation, what is wanted now comes before what was.
        order = min([_FIRST - max(route.generation, 1), *(int(name.partition("~")[0]) - 1 for name in names[:1])])
        name = f"{order:015d}~{_in_name(route)}"
        folder = self._folder / host
        folder.mkdir(exist_ok=True)
        (folder / name).touch(exist_ok=False)
        (folder / left_name(name)).unlink(missing_ok=True)
        self._there[host] = [name, *names]
        if names:
            (folder / left_name(names[0])).touch()
            self._outdated[host] = self._monotonic()

    def _remove(self, host: str) -> None:
        (self._folder / host / left_name(self._there[host][0])).touch()
        # From the last to the first: what was before must not come back on the way.
        for name in reversed(self._there[host]):
            (self._folder / host / name).unlink(missing_ok=True)
        del self._there[host]
        self._outdated.pop(host, None)
        self._leaving.pop(host, None)

    def _sweep(self, host: str) -> None:
        first, *former = self._there[host]
        for name in reversed(former):
            (self._folder / host / name).unlink(missing_ok=True)
        self._there[host] = [first]
        del self._outdated[host]

    def _names(self, host: str) -> list[str]:
        return sorted(name for name in os.listdir(self._folder / host) if _NAME.fullmatch(name))


def _in_name(route: AppRoute) -> str:
    return route.addresses[0] if route.addresses else WAKER


def _is_folder(entry: os.DirEntry[str]) -> bool:
    return entry.is_dir(follow_symlinks=False)
