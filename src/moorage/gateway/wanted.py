"""Everything the gateway should serve, as one value: whoever holds it can make the gateway so, and again."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from moorage.products.rules.patterns import HostRules

# It becomes a part of the name of a file, and of Caddy's configuration.
ADDRESS_PATTERN = r"(?:[a-z0-9][a-z0-9.-]{0,80}|\[[0-9a-f:]{2,39}\]):[0-9]{1,5}"
_ADDRESS = re.compile(ADDRESS_PATTERN)


@dataclass(frozen=True)
class AppRoute:
    """Where the app of a host listens, such as `127.0.0.1:20001`; nowhere while it sleeps: then the waker is asked."""

    addresses: tuple[str, ...]  # of its replicas; several share the requests
    generation: int  # more than that of the route before it

    @property
    def bad_address(self) -> str | None:
        return next((address for address in self.addresses if _ADDRESS.fullmatch(address) is None), None)


@dataclass(frozen=True)
class Wanted:
    sites: Mapping[str, Path] = field(default_factory=dict)  # host -> folder of the release it serves
    disabled: frozenset[str] = frozenset()  # hosts that say that they are switched off
    moved: Mapping[str, str] = field(default_factory=dict)  # former host -> the one its visitors are sent to
    rules: Mapping[str, HostRules] = field(default_factory=dict)  # host -> its redirects and headers
    logged: frozenset[str] = frozenset()  # hosts whose requests are counted
    apps: Mapping[str, AppRoute] = field(default_factory=dict)  # host -> its app; such a host has no site
