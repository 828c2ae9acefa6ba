"""The part of the routing table that is on disk: a link for each host that serves, a marker for each that is off.

What was put there is remembered, so a change of one host touches one name however many there are. What others did to
these folders meanwhile is found by looking at all of it, which happens at the first use and every minute.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Container
from pathlib import Path

from moorage.gateway import sites
from moorage.gateway.wanted import Wanted
from moorage.settings import Settings

Complain = Callable[[str, Exception], None]  # the host, and what could not be done for it


class Links:
    """Used by one thread at a time."""

    def __init__(self, settings: Settings, complain: Complain) -> None:
        self._settings = settings
        self._complain = complain
        self._wanted: dict[str, Path] = {}  # by host: the release whose link is in place, as it was asked for
        self._there: dict[str, str] = {}  # by host: where its link leads, for the links that are ours
        self._markers: set[str] = set()

    def look(self) -> None:
        """Find out what is there."""
        for folder in (self._settings.folder("sites"), self._settings.folder("disabled")):
            folder.mkdir(parents=True, exist_ok=True)
        there = self._links_on_disk()
        self._wanted = {
            host: release for host, release in self._wanted.items() if there.get(host) == self._there.get(host)
        }
        self._there = {host: to for host, to in there.items() if host in self._there or self._is_release(to)}
        self._markers = {name for name in os.listdir(self._settings.folder("disabled")) if sites.is_host(name)}

    def put(self, wanted: Wanted) -> None:
        """Bring into place what is missing. Markers first: a host that is switched off must never seem unknown."""
        for host in wanted.disabled - self._markers:
            self._try(host, self._mark)
        for host, release in wanted.sites.items():
            if self._wanted.get(host) != release:
                self._try(host, lambda host, release=release: self._link(host, release))  # type: ignore[misc]

    def clear(self, wanted: Wanted, *, keep: Container[str] = ()) -> None:
        """Take away what is too much, except the links of the hosts to keep."""
        for host in [host for host in self._there if host not in wanted.sites and host not in keep]:
            self._try(host, self._unlink)
        for host in self._markers - wanted.disabled:
            self._try(host, self._unmark)

    def _try(self, host: str, change: Callable[[str], None]) -> None:
        try:
            change(host)
        except (OSError, sites.BadHost) as error:  # What is wrong with one host must not stop the others.
            self._complain(host, error)

    def _link(self, host: str, release: Path) -> None:
        target = sites.target_of(self._settings, release)
        if self._there.get(host) != target:
            sites.publish(self._settings, host, release)
            self._there[host] = target
        self._wanted[host] = release

    def _unlink(self, host: str) -> None:
        sites.unpublish(self._settings, host)
        self._there.pop(host, None)
        self._wanted.pop(host, None)

    def _mark(self, host: str) -> None:
        sites.mark_disabled(self._settings, host)
        self._markers.add(host)

    def _unmark(self, host: str) -> None:
        sites.unmark_disabled(self._settings, host)
        self._markers.discard(host)

    def _links_on_disk(self) -> dict[str, str]:
        with os.scandir(self._settings.folder("sites")) as entries:
            links = [entry for entry in entries if sites.is_host(entry.name) and entry.is_symlink()]
        return {entry.name: os.readlink(entry.path) for entry in links}

    def _is_release(self, target: str) -> bool:
        """Tell links to releases from those that others may have put here."""
        return Path(target).parent.name == self._settings.folder("releases").name
