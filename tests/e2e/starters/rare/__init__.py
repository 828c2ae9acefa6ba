"""Frameworks that fewer people use."""

from __future__ import annotations

from tests.e2e.starters.rare import (
    analog_qwik,
    assets,
    node_fonts,
    node_nx,
    node_old,
    node_rendered,
    node_servers,
    node_sites,
    other_hosts,
    python_apps,
    python_old,
    variables,
)
from tests.e2e.starters.shapes import Starter

GROUPS = (
    node_servers,
    node_rendered,
    node_sites,
    analog_qwik,
    node_nx,
    node_old,
    python_apps,
    other_hosts,
    python_old,
    node_fonts,
    variables,
    assets,
)
STARTERS: tuple[Starter, ...] = tuple(starter for group in GROUPS for starter in group.STARTERS)
