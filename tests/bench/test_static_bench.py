"""The benchmark of static sites runs from end to end at tiny sizes. What it measures there means nothing."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench import static


@pytest.mark.bench
def test_every_bar_of_static_sites_is_measured(tmp_path: Path) -> None:
    measured = static.run(tmp_path, static.TINY)

    barred = [figure for figure in measured if figure.bar is not None]
    assert [(figure.name, figure.base_name) for figure in barred] == [
        ("static, 2 KB page c=2: requests/s", static.BARE),
        ("static, 100 KB script c=2: requests/s", static.BARE),
        ("static, 10 hosts: changed release to seen, p95", ""),
    ]
    assert all(figure.value > 0 for figure in measured)
    assert all(figure.ratio for figure in measured if figure.base_name in static.PEERS)
