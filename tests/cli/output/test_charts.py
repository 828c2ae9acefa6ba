"""Charts as text: the scale, missing values, long series, and outputs without block characters."""

from __future__ import annotations

import io
import sys

import pytest

from moorage.cli.output import charts


def test_a_sparkline_has_one_block_per_value_and_a_dot_where_none_is() -> None:
    assert charts.sparkline([0, 1, None, 4, 8]) == "▁▁·▄█"
    assert charts.sparkline([]) == ""
    assert charts.sparkline([0, 0]) == "▁▁"
    assert charts.sparkline([50, 100], top=200) == "▂▄"


def test_bars_have_labels_of_one_width_and_their_values() -> None:
    lines = charts.bars([10, 5, 0, None], ["/", "/about", "/x", "/none"], width=4, unit=" ms")

    assert lines == ["/       ████  10 ms", "/about  ██    5 ms", "/x            0 ms", "/none         -"]


def test_a_label_cannot_steer_the_terminal() -> None:
    assert "\x1b" not in charts.bars([1], ["\x1b]0;title\x07/x"])[0]


def test_a_chart_has_its_scale_and_the_labels_of_both_ends() -> None:
    lines = charts.chart([0, 1, 2, None, 4], height=2, width=5, unit=" MB", labels=("a", "b"))

    assert lines == ["4 MB │    █", "0 MB │ ▄█ █", "      a   b"]


def test_a_long_series_is_merged_by_its_maxima() -> None:
    assert charts.merged([1, 9, None, None, 3, 2], 3) == [9, None, 3]
    assert len(charts.chart(list(range(1000)), height=3, width=20)[0]) <= 5 + 2 + 20


def test_a_chart_without_values_is_empty_columns() -> None:
    assert charts.chart([None, None], height=2) == ["0 │", "0 │"]
    assert charts.chart([3.0], height=1) == ["3 │█"]


@pytest.mark.parametrize(
    ("value", "text"),
    [(0, "0"), (950, "950"), (1234, "1.2k"), (34_000_000, "34M"), (0.05, "0.05"), (2.34, "2.3"), (150.6, "151")],
)
def test_numbers_are_short(value: float, text: str) -> None:
    assert charts.short(value) == text


def test_an_output_that_cannot_encode_blocks_gets_ascii(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(io.BytesIO(), encoding="ascii"))

    shown = [charts.sparkline([1, None, 8]), *charts.bars([3], ["/"]), *charts.chart([1, 2])]

    assert all(line.isascii() for line in shown)
