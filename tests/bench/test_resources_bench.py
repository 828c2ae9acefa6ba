"""The benchmark of memory by resource runs from end to end at tiny sizes. What it measures there means nothing."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench import resources


@pytest.mark.bench
@pytest.mark.deep
def test_memory_and_idle_cpu_are_measured_by_resource(tmp_path: Path) -> None:
    measured = {figure.name: figure.value for figure in resources.run(tmp_path, resources.TINY)}

    for kind in ("site", "app", "database", "monitor", "function"):
        assert f"resources: 2 {kind}s: memory of each further" in measured
    assert measured["resources: nothing deployed: memory of control"] > 0
    assert measured["resources: everything deployed: memory of apps, databases, sandboxes"] > 0
