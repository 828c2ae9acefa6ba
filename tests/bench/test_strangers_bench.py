"""The benchmark of unfinished requests runs from end to end at tiny sizes. Its figures mean nothing there."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench import strangers


@pytest.mark.deep
def test_memory_and_calls_of_others_are_measured(tmp_path: Path) -> None:
    measured = strangers.run(tmp_path, strangers.TINY)

    assert len(measured) == 12
    assert [figure.value for figure in measured if figure.name.endswith("that failed")] == [0] * 4
