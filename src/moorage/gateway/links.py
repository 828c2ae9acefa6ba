"""Routing table of sites: a symlink per served host, a marker per host without a site.

`Links` remembers the links and markers it made, so a change of one host touches one file. Changes by other processes
are found by scanning the folders, at the first use and every minute.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Container
from functools import partial
from pathlib import Path

from moorage.gateway import sites
from moorage.gateway.sites import HostMarker
from moorage.gateway.wanted import Wanted
from moorage.settings import Settings

ReportError = Callable[[str, Exception], None]  # called with the host and the error of its change


class Links:
    """Not thread-safe: one thread at a time."""

    def __init__(self, settings: Settings, report_error: ReportError) -> None:
        self._settings = settings
        self._report_error = report_error
        self._applied: dict[str, Path] = {}  # by host: the release folder whose link is in place
        self._links: dict[str, str] = {}  # by host: the target of its link, for links that the platform made
        self._markers: dict[HostMarker, set[str]] = {marker: set() for marker in HostMarker}  # hosts, by marker

    def scan(self) -> None:
        """Read the links and markers on disk."""
        for name in ("sites", *HostMarker):
            self._settings.folder(name).mkdir(parents=True, exist_ok=True)
        targets = self._links_on_disk()
        self._applied = {
            host: release for host, release in self._applied.items() if targets.get(host) == self._links.get(host)
        }
        self._links = {host: to for host, to in targets.items() if host in self._links or self._is_release(to)}
        self._markers = {
            marker: {name for name in os.listdir(self._settings.folder(marker)) if sites.is_host(name)}
            for marker in HostMarker
        }

    def put(self, wanted: Wanted) -> None:
        """Create missing markers, then links: a disabled host is never unknown."""
        for marker, marked in self._markers.items():
            for host in wanted.marked(marker) - marked:
                self._try(host, partial(self._mark, marker))
        for host, release in wanted.sites.items():
            if self._applied.get(host) != release:
                self._try(host, lambda host, release=release: self._link(host, release))  # type: ignore[misc]

    def clear(self, wanted: Wanted, *, keep: Container[str] = ()) -> None:
        """Remove surplus links and markers, except the links of the hosts in `keep`."""
        for host in [host for host in self._links if host not in wanted.sites and host not in keep]:
            self._try(host, self._unlink)
        for marker, marked in self._markers.items():
            for host in marked - wanted.marked(marker):
                self._try(host, partial(self._unmark, marker))

    def _try(self, host: str, change: Callable[[str], None]) -> None:
        try:
            change(host)
        except (OSError, sites.BadHost) as error:  # An error of one host must not stop the others.
            self._report_error(host, error)

    def _link(self, host: str, release: Path) -> None:
        target = sites.target_of(self._settings, release)
        if self._links.get(host) != target:
            sites.publish(self._settings, host, release)
            self._links[host] = target
        self._applied[host] = release

    def _unlink(self, host: str) -> None:
        sites.unpublish(self._settings, host)
        self._links.pop(host, None)
        self._applied.pop(host, None)

    def _mark(self, marker: HostMarker, host: str) -> None:
        sites.mark(self._settings, marker, host)
        self._markers[marker].add(host)

    def _unmark(self, marker: HostMarker, host: str) -> None:
        sites.unmark(self._settings, marker, host)
        self._markers[marker].discard(host)

    def _links_on_disk(self) -> dict[str, str]:
        with os.scandir(self._settings.folder("sites")) as entries:
            links = [entry for entry in entries if sites.is_host(entry.name) and entry.is_symlink()]
        return {entry.name: os.readlink(entry.path) for entry in links}

    def _is_release(self, target: str) -> bool:
        """Return whether a link leads to a release: operators may add other links."""
        return Path(target).parent.name == self._settings.folder("releases").name
