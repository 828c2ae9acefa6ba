"""Values over time: charts on a terminal, rows in a pipe, JSON with --json."""

from __future__ import annotations

import shutil
import time
from collections.abc import Mapping, Sequence
from typing import Annotated, Any

import typer

from moorage.cli.output import charts
from moorage.cli.output.tables import show_json, text_of
from moorage.cli.output.terminal import is_terminal, say
from moorage.cli.output.words import parsed

Series = Mapping[str, Sequence[float | None]]
RangeOption = Annotated[int, typer.Option("--hours", min=1, max=24 * 90, help="Length of the range that ends now.")]
MARGIN = 12  # columns of the scale
MAX_WIDTH = 96
HEIGHT = 5


def from_ms(hours: int) -> int:
    return int((time.time() - hours * 3600) * 1000)


def show_series(
    item: Any,
    times: Sequence[str],
    series: Series,
    titles: Mapping[str, str],
    *,
    as_json: bool,
    styles: Mapping[str, str] | None = None,
) -> None:
    """Print parallel lists of values: one chart each on a terminal, one row per time in a pipe."""
    if as_json:
        show_json(item)
        return
    if not is_terminal():
        for number, moment in enumerate(times):
            say("\t".join([text_of(moment), *(text_of(values[number]) for values in series.values())]))
        return
    width = max(min(shutil.get_terminal_size().columns - MARGIN, MAX_WIDTH), 20)
    labels = (clock(times[0]), clock(times[-1])) if times else None
    for name, values in series.items():
        say()
        say(titles[name], "bold")
        for line in charts.chart(values, HEIGHT, width, labels=labels, style=(styles or {}).get(name, "cyan")):
            say(line)


def clock(text: str) -> str:
    """Return a time of the API as local day and time."""
    moment = parsed(text)
    return moment.astimezone().strftime("%d %b %H:%M") if moment is not None else text
