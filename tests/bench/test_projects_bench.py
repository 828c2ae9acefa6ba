"""The benchmark of projects runs from end to end at tiny sizes. What it measures there means nothing."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench import projects


@pytest.mark.bench
def test_every_bar_of_projects_is_measured(tmp_path: Path) -> None:
    measured = projects.run(tmp_path, projects.TINY)

    barred = [figure.name for figure in measured if figure.bar is not None]
    assert all(figure.value > 0 for figure in measured)
    assert barred == [
        "projects: git push of 5 files to live, p95",
        "projects: ZIP of 20 files to live, p95",
        "projects: rollback to seen, p95",
        "projects: log line printed to seen, p95",
        "projects: with 4 projects, rollback to seen, p95",
    ]
