"""The benchmark of machines runs from end to end at tiny sizes. What it measures there means nothing."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench import machines


@pytest.mark.bench
@pytest.mark.deep
def test_every_bar_of_machines_is_measured(tmp_path: Path) -> None:
    measured = machines.run(tmp_path, machines.TINY)

    barred = [figure.name.rpartition(": ")[2] for figure in measured if figure.bar is not None]
    assert barred[:3] == ["replicas restarted", "runs falsely ended", "failed requests through both gateways"]
    assert "answer elsewhere" in barred[3]
