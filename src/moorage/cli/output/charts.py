"""Small charts of a terminal: a sparkline, horizontal bars, and columns over time.

All functions return text and print nothing. Colours are left out where `paint` leaves them out, and an output that
cannot encode block characters gets ASCII. A command prints rows of numbers instead in a pipe: see `tables.show_list`.
"""

from __future__ import annotations

import itertools
import sys
from collections.abc import Sequence
from typing import Final

from moorage.cli.output.tables import cut, width_of
from moorage.cli.output.terminal import paint, plain

Values = Sequence[float | None]

BLOCKS: Final = " ▁▂▃▄▅▆▇█"  # eighths of a cell, from the bottom
BAR_BLOCKS: Final = " ▏▎▍▌▋▊▉█"  # eighths of a cell, from the left
ASCII_BLOCKS: Final = " ...:::##"
GAP: Final = "·"  # a place without a value
LABEL_WIDTH: Final = 40
UNITS: Final = ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"))


def sparkline(values: Values, *, top: float | None = None) -> str:
    """Return one block per value, scaled to `top` or the largest value; a dot where there is no value."""
    highest = _highest(values, top)
    blocks, gap = _blocks(BLOCKS)
    return "".join(gap if value is None else blocks[max(_eighths(value, highest, 1), 1)] for value in values)


def bars(
    values: Values,
    labels: Sequence[str],
    *,
    width: int = 30,
    unit: str = "",
    style: str = "cyan",
    top: float | None = None,
) -> list[str]:
    """Return one line per value: its label, a horizontal bar scaled to `top` or the largest, and value with unit."""
    highest = _highest(values, top)
    names = [cut(plain(label), LABEL_WIDTH) for label in labels]
    room = max(map(width_of, names), default=0)
    lines = []
    for value, name in zip(values, names, strict=True):
        bar = _bar(value, highest, width)
        text = "-" if value is None else f"{short(value)}{unit}"
        lines.append(f"{name}{' ' * (room - width_of(name))}  {paint(bar, style)}  {text}".rstrip())
    return lines


def chart(
    series: Values,
    height: int = 6,
    width: int = 60,
    *,
    unit: str = "",
    labels: tuple[str, str] | None = None,
    style: str = "cyan",
) -> list[str]:
    """Return the lines of a chart: one column per value, with the scale on the left.

    A longer series is merged by its maxima until it fits `width`. `labels` are the texts below the first and the last
    column. Columns without a value stay empty, and a value above 0 shows at least its lowest block.
    """
    values = merged(series, width)
    highest = _highest(values)
    blocks, _ = _blocks(BLOCKS)
    columns = [0 if value is None else _eighths(value, highest, height) for value in values]
    scale = [f"{short(highest)}{unit}", *[""] * (height - 2), f"0{unit}"] if height > 1 else [f"{short(highest)}{unit}"]
    room = max(map(len, scale))
    lines = []
    for row, mark in zip(range(height - 1, -1, -1), scale, strict=True):
        cells = "".join(blocks[min(max(eighths - 8 * row, 0), 8)] for eighths in columns)
        lines.append(f"{paint(mark.rjust(room), 'dim')} {_axis()}{paint(cells, style)}".rstrip())
    if labels is not None:
        first, last = map(plain, labels)
        space = max(len(values) - width_of(first) - width_of(last), 1)
        lines.append(paint(f"{' ' * (room + 2)}{first}{' ' * space}{last}", "dim"))
    return lines


def merged(values: Values, width: int) -> list[float | None]:
    """Return at most `width` values: the maxima of equal parts of a longer list."""
    if len(values) <= width:
        return list(values)
    edges = [len(values) * number // width for number in range(width + 1)]
    parts = (values[begin:end] for begin, end in itertools.pairwise(edges))
    return [max((value for value in part if value is not None), default=None) for part in parts]


def short(value: float) -> str:
    """Return a number in few characters: 950, 1.2k, 34M, 0.05."""
    for size, letter in UNITS:
        if abs(value) >= size:
            return f"{_digits(value / size)}{letter}"
    return _digits(value)


def _digits(value: float) -> str:
    if value == int(value):
        return str(int(value))
    return f"{value:.0f}" if abs(value) >= 100 else f"{value:.1f}" if abs(value) >= 1 else f"{value:.2g}"


def _highest(values: Values, top: float | None = None) -> float:
    return top if top is not None else max((value for value in values if value is not None), default=0)


def _eighths(value: float, highest: float, cells: int) -> int:
    """Return the height of a column in eighths of a cell; a value above 0 has at least one."""
    if value <= 0 or highest <= 0:
        return 0
    return min(max(round(value / highest * cells * 8), 1), cells * 8)


def _bar(value: float | None, highest: float, width: int) -> str:
    blocks, _ = _blocks(BAR_BLOCKS)
    whole, part = divmod(_eighths(value or 0, highest, width), 8)
    return (blocks[8] * whole + (blocks[part] if part else "")).ljust(width)


def _blocks(wanted: str) -> tuple[str, str]:
    """Return the blocks and the mark of a missing value, in characters that the output can encode."""
    return (wanted, GAP) if _is_unicode() else (ASCII_BLOCKS, "-")


def _axis() -> str:
    return "│" if _is_unicode() else "|"


def _is_unicode() -> bool:
    try:
        (BLOCKS + GAP).encode(sys.stdout.encoding or "ascii")
    except (UnicodeEncodeError, LookupError):
        return False
    return True
