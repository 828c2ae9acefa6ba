"""Lists and single resources: a table on a terminal, tab-separated in a pipe, JSON with --json."""

from __future__ import annotations

import shutil
import sys
import unicodedata
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, TypeVar

import msgspec
import typer

from moorage.cli.output.terminal import is_terminal, json_text, note, paint, plain, say

T = TypeVar("T")

JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON, with the names of the API.")]
GAP = "  "
MIN_WIDTH = 8  # columns of a cell that is cut


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a list; `style` names the colour of a cell, such as green for `live`."""

    title: str
    cell: Callable[[Any], object]
    style: Callable[[Any], tuple[str, ...]] = lambda _: ()


def show_list(rows: Iterable[Any], columns: Sequence[Column], *, as_json: bool, empty: str) -> None:
    """Print a list. `empty` is a sentence for a terminal without rows: say how to create the first one."""
    listed = list(rows)
    if as_json:
        show_json(listed)
    elif not is_terminal():
        for row in listed:
            say("\t".join(text_of(column.cell(row)) for column in columns))
    elif listed:
        show_table(listed, columns)
    else:
        note(empty)


def show_one(item: Any, pairs: Sequence[tuple[str, object]], *, as_json: bool) -> None:
    """Print one resource as lines of name and value; lines without a value are left out."""
    if as_json:
        show_json(item)
        return
    shown = [(name, text_of(value)) for name, value in pairs if value is not None and value != ""]
    width = max((len(name) for name, _ in shown), default=0)
    for name, value in shown:
        say(f"{paint(name.ljust(width), 'dim')}{GAP}{value}" if is_terminal() else f"{name}\t{value}")


def show_json(item: Any) -> None:
    text = msgspec.json.format(msgspec.json.encode(item), indent=2)
    sys.stdout.write(json_text(text.decode()) + "\n")


def text_of(value: object) -> str:
    """Return a value as a cell: empty for None, words for booleans, comma-separated for lists."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list | tuple):
        return ", ".join(text_of(each) for each in value)
    return plain(value)


def width_of(text: str) -> int:
    """Return the columns that a text takes on a terminal."""
    return sum(
        0 if unicodedata.combining(each) else 2 if unicodedata.east_asian_width(each) in "WF" else 1 for each in text
    )


def cut(text: str, width: int) -> str:
    """Shorten a text to a number of columns."""
    if width_of(text) <= width:
        return text
    while text and width_of(text) > width - 1:
        text = text[:-1]
    return f"{text}…"


def show_table(rows: list[Any], columns: Sequence[Column]) -> None:
    """Print rows as a table of a terminal; there has to be one."""
    cells = [[text_of(column.cell(row)) for column in columns] for row in rows]
    widths = [
        max(width_of(column.title), *(width_of(line[number]) for line in cells))
        for number, column in enumerate(columns)
    ]
    _fit(widths, shutil.get_terminal_size().columns)
    say(GAP.join(_padded(column.title, width) for column, width in zip(columns, widths, strict=True)).rstrip(), "bold")
    for row, line in zip(rows, cells, strict=True):
        painted = [
            paint(_padded(text, width), *column.style(row))
            for text, width, column in zip(line, widths, columns, strict=True)
        ]
        say(GAP.join(painted).rstrip())


def _fit(widths: list[int], room: int) -> None:
    """Narrow the widest column until the table fits the terminal, as long as that is sensible."""
    while sum(widths) + len(GAP) * (len(widths) - 1) > room and max(widths) > MIN_WIDTH:
        widths[widths.index(max(widths))] -= 1


def _padded(text: str, width: int) -> str:
    short = cut(text, width)
    return short + " " * (width - width_of(short))
