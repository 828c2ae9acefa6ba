"""Everything the gateway should serve, as one value: whoever holds it can make the gateway so, and again."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from moorage.rules.patterns import HostRules


@dataclass(frozen=True)
class Wanted:
    sites: Mapping[str, Path] = field(default_factory=dict)  # host -> folder of the release it serves
    disabled: frozenset[str] = frozenset()  # hosts that say that they are switched off
    moved: Mapping[str, str] = field(default_factory=dict)  # former host -> the one its visitors are sent to
    rules: Mapping[str, HostRules] = field(default_factory=dict)  # host -> its redirects and headers
    logged: frozenset[str] = frozenset()  # hosts whose requests are counted
