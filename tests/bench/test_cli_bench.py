"""The benchmark of the command line runs from end to end at tiny sizes. What it measures there means nothing."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench import cli


@pytest.mark.bench
def test_every_bar_of_the_command_line_is_measured(tmp_path: Path) -> None:
    measured = cli.run(tmp_path, cli.TINY)

    assert all(figure.value > 0 for figure in measured)
    assert [figure.name.partition(",")[0] for figure in measured if figure.bar is not None] == [
        "cli: moorage --help",
        "cli: moorage deploy of 5 static files to live",
        "cli: moorage deploy of Express with cached packages to live",
        "cli: moorage status",
        "cli: CPU of a call of moorage.client",
    ]
