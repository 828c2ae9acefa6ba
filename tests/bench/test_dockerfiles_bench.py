"""The benchmark of Dockerfiles runs from end to end at tiny sizes. What it measures there means nothing."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench import dockerfiles


@pytest.mark.bench
def test_every_bar_of_dockerfiles_is_measured(tmp_path: Path) -> None:
    measured = dockerfiles.run(tmp_path, dockerfiles.TINY)

    assert [figure.name for figure in measured if figure.bar is not None] == [
        "dockerfiles: 3 builds without a cache",
        "dockerfiles: 3 builds with nothing changed",
    ]
    assert all(figure.value > 0 for figure in measured)
