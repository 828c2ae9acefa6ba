"""The benchmark of a flood runs from end to end at tiny sizes. What it measures there means nothing."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench import flood


@pytest.mark.bench
def test_every_bar_of_a_flood_is_measured(tmp_path: Path) -> None:
    measured = flood.run(tmp_path, flood.TINY)

    assert [figure.name.split(":")[1].split(" of ")[0].strip() for figure in measured] == [
        "calls",
        "API reads",
        "pages",
        "failed requests",
        "CPU time stolen by the host, worst round",
    ]
    assert all(figure.ratio for figure in measured[:3])
    assert measured[3].value == 0
