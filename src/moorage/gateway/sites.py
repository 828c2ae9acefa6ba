"""Routing table of static sites: `sites/<host>` is a symlink to a release.

Caddy resolves the link at each request, so replacing a link is a deployment, a rollback or a new domain, and needs no
reload at any number of hosts. Where a host has no such file, Caddy looks for the host in the folders of `HostMarker`.
`HOST_PATTERN` is the only rule for host names; Caddy's guard uses the same pattern, because an accepted host becomes a
path.
"""

from __future__ import annotations

import os
import re
import secrets
from enum import StrEnum
from pathlib import Path

from moorage.settings import Settings

_LABEL = "[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?"
# Lower case without a dot at either end; Python and Go (Caddy) read this pattern alike. It admits no empty label, so a
# Host header yields neither `..` nor a hidden file.
HOST_PATTERN = rf"^{_LABEL}(?:\.{_LABEL})*$"
_HOST = re.compile(HOST_PATTERN)
_LONGEST_HOST = 253  # the limit of DNS, and below the limit of file names


class HostMarker(StrEnum):
    """Why a host has nothing to serve; the value is the folder of the markers."""

    DISABLED = "disabled"  # its project is disabled
    BUILDING = "building"  # the first release of its project is queued or being built
    UNPUBLISHED = "unpublished"  # its project has no release


class BadHost(ValueError):
    """The name is not a valid host name of a route."""

    def __init__(self, host: str) -> None:
        super().__init__(f"cannot route {host!r}: should be a host name in lower case, without a port")


def is_host(name: str) -> bool:
    return len(name) <= _LONGEST_HOST and _HOST.fullmatch(name) is not None


def publish(settings: Settings, host: str, release_dir: Path) -> None:
    """Serve the folder at the host from the next request on; safe to repeat."""
    link, target = _link(settings, host), target_of(settings, release_dir)
    if not release_dir.is_dir():
        raise NotADirectoryError(f"cannot publish {release_dir}: it is not a folder")
    link.parent.mkdir(parents=True, exist_ok=True)
    # A name that starts with a dot is not a host, so a link left by a crash is never served.
    fresh = link.with_name(f".{secrets.token_hex(8)}")
    os.symlink(target, fresh, target_is_directory=True)
    try:
        fresh.replace(link)
    except OSError:
        fresh.unlink()
        raise


def target_of(settings: Settings, release_dir: Path) -> str:
    """Return a link target; relative, so that the data folder can be moved."""
    target = release_dir.resolve(strict=True)
    data = settings.data.resolve()
    return f"../{target.relative_to(data)}" if target.is_relative_to(data) else str(target)


def unpublish(settings: Settings, host: str) -> None:
    """Remove the link of the host; the release itself stays. Safe to repeat."""
    _link(settings, host).unlink(missing_ok=True)


def find(settings: Settings, host: str) -> Path | None:
    """Return the folder that the host serves, or None."""
    link = _link(settings, host)
    try:
        return Path(os.path.normpath(link.parent / os.readlink(link)))
    except FileNotFoundError:
        return None


def mark(settings: Settings, marker: HostMarker, host: str) -> None:
    """Answer with the page of the marker where the host has no file to serve. Safe to repeat."""
    path = _marker_path(settings, marker, host)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.touch()


def unmark(settings: Settings, marker: HostMarker, host: str) -> None:
    """Undo `mark`. Safe to repeat."""
    _marker_path(settings, marker, host).unlink(missing_ok=True)


def _marker_path(settings: Settings, marker: HostMarker, host: str) -> Path:
    if not is_host(host):
        raise BadHost(host)
    return settings.folder(marker) / host


def _link(settings: Settings, host: str) -> Path:
    if not is_host(host):
        raise BadHost(host)
    return settings.folder("sites") / host
