"""The benchmark of cronjobs runs from end to end at tiny sizes. What it measures there means nothing."""

from __future__ import annotations

from pathlib import Path

import pytest
from bench.cronjobs import Ran

from bench import cronjobs


@pytest.mark.bench
def test_every_bar_of_cronjobs_is_measured_and_nothing_runs_on(tmp_path: Path) -> None:
    measured = cronjobs.run(tmp_path, cronjobs.TINY)

    barred = [figure.name for figure in measured if figure.bar is not None]
    assert barred == [
        "cronjobs: 3 due in one minute, 2 at once: late, beyond the limit, p99",
        "cronjobs: 3 due in one minute, 2 at once: lost or doubled",
        "cronjobs: 50 next ticks",
    ]
    assert not list((tmp_path / "data" / "run" / "cronjobs").iterdir())


def test_a_run_can_begin_when_it_is_due_or_when_one_before_it_has_ended() -> None:
    runs = [Ran(0, 1, 10), Ran(0, 2, 5), Ran(0, 6, 20), Ran(0, 12, 30)]

    assert cronjobs._begins(runs, at_once=2) == [0, 0, 5, 10]
