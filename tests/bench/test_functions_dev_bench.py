"""The benchmark of `functions dev` runs from end to end at tiny sizes. What it measures there means nothing."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench import functions_dev


@pytest.mark.bench
def test_a_reload_of_each_language_is_measured(tmp_path: Path) -> None:
    measured = functions_dev.run(tmp_path, functions_dev.TINY)

    assert [figure.name for figure in measured if figure.bar is not None] == [
        "functions dev: nodejs, save to new response, median",
        "functions dev: python, save to new response, median",
    ]
