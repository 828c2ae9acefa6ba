"""The benchmark of databases runs from end to end at tiny sizes. What it measures there means nothing."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench import databases


@pytest.mark.bench
def test_every_bar_of_databases_is_measured_and_nothing_runs_on(tmp_path: Path) -> None:
    measured = databases.run(tmp_path, databases.TINY)

    barred = [figure.name for figure in measured if figure.bar is not None]
    assert barred == [
        "databases: create PostgreSQL, first answer, median",
        "databases: create PostgreSQL, first answer, p95",
        "databases: create MariaDB, first answer, median",
        "databases: create MariaDB, first answer, p95",
        "databases: pgbench, transactions a second, median",
        "databases: statements counted, off by",
        "databases: 2 of PostgreSQL idle, memory of each, largest",
        "databases: 2 of MariaDB idle, memory of each, largest",
    ]
    assert all(figure.value >= 0 for figure in measured)
    assert not list((tmp_path / "data" / "run" / "databases").iterdir())
