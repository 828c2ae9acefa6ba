"""The benchmark of the console runs from end to end at tiny sizes. What it measures there means nothing."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench import console, console_idle, console_streams


@pytest.mark.bench
@pytest.mark.deep
def test_the_console_is_measured_in_a_browser(tmp_path: Path) -> None:
    measured = console.run(tmp_path, console.TINY)

    assert all(figure.value > 0 for figure in measured if "task" in figure.name or "load" in figure.name)
    assert len([figure for figure in measured if figure.bar is not None]) == 5


@pytest.mark.bench
@pytest.mark.deep
def test_open_tabs_are_measured(tmp_path: Path) -> None:
    measured = console_idle.run(tmp_path, console_idle.TINY)

    assert len([figure for figure in measured if figure.bar is not None]) == len(console_idle.TINY.pages)


@pytest.mark.bench
@pytest.mark.deep
def test_open_tabs_with_a_stream_are_measured(tmp_path: Path) -> None:
    measured = console_streams.run(tmp_path, console_streams.TINY)

    assert [figure.name for figure in measured if figure.bar is not None] == [
        "console: idle CPU for an open tab, activity, a stream"
    ]
