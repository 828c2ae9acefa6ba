"""The order in which the groups of tests start: the longest first, so that no worker runs one alone at the end."""

from __future__ import annotations

from collections import Counter

import pytest

# Groups that take longer than about 10 s on an idle machine, longest first.
LONGEST = (
    "cli-live",
    "console",
    "postgres",
    "functions",
    "databases",
    "test_image_root",
    "test_routes",
    "openapi",
    "cells-installer",
    "full-disk",
    "cells-escapes",
    "test_lean_start",
    "up",
    "test_app_gateway",
    "test_functions_dev",
    "cli-browser",
    "test_start_failures",
    "projects",
    "test_app_changes",
    "cli-keys",
    "test_workloads",
    "apps-escapes",
    "apps-life",
    "test_network_attacks",
    "test_node_worker",
    "test_python_worker",
    "test_cgroups",
    "test_restore",
    "test_backup",
    "test_run_streams",
    "test_slow_bodies",
    "test_engine",
    "architecture",
    "test_setup_failures",
    "test_setup_packages",
    "image builds",
    "cells-channels",
    "test_database_copies",
    "test_client_install",
    "apps-run",
    "s3",
    "wildcard-certificate",
    "openid",
)


def name_of(item: pytest.Item) -> str:
    """Return the name of the group that a test belongs to."""
    mark = item.get_closest_marker("group")
    assert mark is not None
    return str(mark.args[0])


def longest_first(items: list[pytest.Item]) -> None:
    """Sort tests by group: the longest groups first, then those with many tests."""
    counts = Counter(map(name_of, items))
    ranks = {name: rank for rank, name in enumerate(LONGEST)}

    def position(item: pytest.Item) -> tuple[int, int, str]:
        name = name_of(item)
        return ranks.get(name, len(ranks)), -counts[name], name

    items.sort(key=position)
