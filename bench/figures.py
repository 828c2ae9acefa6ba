"""Results of a benchmark: figures, each with a comparison and a bar."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

HEADINGS = ("name", "figure", "against", "ratio", "bar", "verdict")


@dataclass(frozen=True)
class Bar:
    """A limit, on the figure itself or on its ratio to the comparison."""

    limit: float
    at_most: bool
    on_ratio: bool

    def is_met_by(self, value: float) -> bool:
        return value <= self.limit if self.at_most else value >= self.limit


def ratio_at_most(limit: float) -> Bar:
    return Bar(limit, at_most=True, on_ratio=True)


def ratio_at_least(limit: float) -> Bar:
    return Bar(limit, at_most=False, on_ratio=True)


def at_most(limit: float) -> Bar:
    return Bar(limit, at_most=True, on_ratio=False)


@dataclass(frozen=True)
class Figure:
    name: str
    value: float
    unit: str
    base: float | None = None  # the same quantity of the thing it is compared to
    base_name: str = ""
    bar: Bar | None = None  # None: shown for information

    @property
    def ratio(self) -> float | None:
        return self.value / self.base if self.base else None

    @property
    def is_missed(self) -> bool:
        if self.bar is None:
            return False
        judged = self.ratio if self.bar.on_ratio else self.value
        # A ratio without a comparison was not measured, so the bar is not met.
        return judged is None or not self.bar.is_met_by(judged)

    @property
    def verdict(self) -> str:
        if self.bar is None:
            return "-"
        if self.bar.on_ratio and self.ratio is None:
            return "NOT MEASURED"
        return "MISSED" if self.is_missed else "met"

    def cells(self) -> tuple[str, ...]:
        against = "-" if self.base is None else f"{_short(self.base)} {self.unit} ({self.base_name})"
        ratio = "-" if self.ratio is None else f"{self.ratio:.2f}x"
        return (self.name, f"{_short(self.value)} {self.unit}", against, ratio, self._bar_text(), self.verdict)

    def _bar_text(self) -> str:
        if self.bar is None:
            return "-"
        sign = "<=" if self.bar.at_most else ">="
        return f"{sign} {_short(self.bar.limit)}{'x' if self.bar.on_ratio else ' ' + self.unit}"


def table(figures: Sequence[Figure]) -> str:
    """Return all figures as one aligned table."""
    rows = [HEADINGS, *(figure.cells() for figure in figures)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(HEADINGS))]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
    return "\n".join([lines[0], "  ".join("-" * width for width in widths), *lines[1:]])


def percentile(values: Sequence[float], share: float) -> float:
    """Return the value that `share` of the values do not exceed (nearest rank)."""
    ordered = sorted(values)
    return ordered[max(0, math.ceil(round(share * len(ordered), 9)) - 1)]


def median(values: Sequence[float]) -> float:
    return statistics.median(values)


def _short(value: float) -> str:
    if value == int(value) and abs(value) < 1e6:
        return str(int(value))
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"
