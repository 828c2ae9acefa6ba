"""All starters."""

from __future__ import annotations

from tests.e2e.starters import (
    node_frameworks,
    node_more,
    node_others,
    node_servers,
    node_sites,
    other_tools,
    python_apps,
    python_managers,
    python_servers,
    python_versions,
    rare,
    sites,
    workspaces,
)
from tests.e2e.starters.shapes import Starter

GROUPS = (
    node_servers,
    node_frameworks,
    node_sites,
    other_tools,
    node_others,
    node_more,
    python_apps,
    python_servers,
    python_versions,
    python_managers,
    sites,
    workspaces,
    rare,
)
STARTERS: tuple[Starter, ...] = tuple(starter for group in GROUPS for starter in group.STARTERS)
