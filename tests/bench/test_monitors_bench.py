"""The benchmark of monitors runs from end to end at tiny sizes. What it measures there means nothing."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench import monitors


@pytest.mark.bench
def test_every_bar_of_monitors_is_measured(tmp_path: Path) -> None:
    measured = monitors.run(tmp_path, monitors.TINY)

    assert [figure.name for figure in measured if figure.bar is not None] == [
        "monitors: CPU per HTTP check",
        "monitors: 4 at 30 s for 30 s: missed",
        "monitors: 4 at 30 s for 30 s: late, p99",
        "monitors: 4 at 30 s for 30 s: memory of the control process, peak",
        "monitors: CPU per HTTPS check",
        "monitors: 3 over HTTPS for 30 s: missed",
        "monitors: kill -9 with 6 monitors and 2 alerts pending: until the last was checked again",
        "monitors: kill -9 with 6 monitors and 2 alerts pending: lost or told under two ids",
    ]
