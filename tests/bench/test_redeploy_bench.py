"""The benchmark of redeploys runs from end to end at tiny sizes. What it measures there means nothing."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench import redeploy


@pytest.mark.bench
@pytest.mark.deep
def test_a_redeploy_of_express_is_measured(tmp_path: Path) -> None:
    measured = redeploy.run(tmp_path, redeploy.TINY)

    assert [figure.name for figure in measured if figure.bar is not None] == [
        "redeploy: Express, unchanged dependencies, median",
        "redeploy: Express, failed requests in all switches",
    ]
