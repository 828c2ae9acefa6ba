"""Markdown helpers of the reference pages."""

from __future__ import annotations

from collections.abc import Iterable, Sequence


def code(text: str) -> str:
    return f"`` {text} ``" if "`" in text else f"`{text}`"


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table, or an empty string without rows."""
    lines = [_line(row) for row in rows]
    return "\n".join([_line(head), _line(["---"] * len(head)), *lines]) if lines else ""


def page(*blocks: str) -> str:
    """Join non-empty blocks with blank lines."""
    return "\n\n".join(block.strip("\n") for block in blocks if block) + "\n"


def _line(cells: Iterable[str]) -> str:
    return "| " + " | ".join(" ".join(cell.replace("|", "\\|").split()) for cell in cells) + " |"
