"""The complete wanted state of the gateway as one value."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import field
from pathlib import Path

from moorage.core.kit.records import dataclass
from moorage.gateway.sites import HostMarker
from moorage.products.rules.patterns import HostRules

# The address becomes part of a file name and of Caddy's configuration.
ADDRESS_PATTERN = r"(?:[a-z0-9][a-z0-9.-]{0,80}|\[[0-9a-f:]{2,39}\]):[0-9]{1,5}"
_ADDRESS = re.compile(ADDRESS_PATTERN)


@dataclass(frozen=True)
class AppRoute:
    """Addresses of a host's app, such as `127.0.0.1:20001`; none routes to the waker."""

    addresses: tuple[str, ...]  # one per replica; requests are balanced
    generation: int  # greater than the generation of the previous route

    @property
    def bad_address(self) -> str | None:
        return next((address for address in self.addresses if _ADDRESS.fullmatch(address) is None), None)


@dataclass(frozen=True)
class Wanted:
    sites: Mapping[str, Path] = field(default_factory=dict)  # host -> folder of its release
    disabled: frozenset[str] = frozenset()  # hosts that answer "disabled"
    building: frozenset[str] = frozenset()  # hosts whose first release is not built yet
    unpublished: frozenset[str] = frozenset()  # hosts without a release
    moved: Mapping[str, str] = field(default_factory=dict)  # former host -> target of its redirect
    rules: Mapping[str, HostRules] = field(default_factory=dict)  # host -> its redirects and headers
    logged: frozenset[str] = frozenset()  # hosts with an access log
    apps: Mapping[str, AppRoute] = field(default_factory=dict)  # host -> its app; such a host has no site

    def marked(self, marker: HostMarker) -> frozenset[str]:
        """Return the hosts that have a marker on disk."""
        match marker:
            case HostMarker.DISABLED:
                return self.disabled
            case HostMarker.BUILDING:
                return self.building
            case HostMarker.UNPUBLISHED:
                return self.unpublished
