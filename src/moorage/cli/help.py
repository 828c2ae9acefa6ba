"""Help texts of the command line: commands in groups, and types and defaults of settings."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Any, get_args

from pydantic import SecretStr
from pydantic.fields import FieldInfo
from typer.core import TyperGroup

MAX_WIDTH = 120  # columns; a narrower terminal wraps the text

GROUPS = {
    "Start": ("up", "doctor", "version"),
    "Try a repository": ("detect",),
    "Operate": ("admin", "databases", "engines", "backup", "restore", "keys", "audit"),
    "Single processes, on several machines": ("serve", "work", "edge"),
}
_TYPES = {bool: "<bool>", int: "<int>", float: "<number>", Path: "<path>", SecretStr: "<secret>", str: "<text>"}


class GroupedCommands(TyperGroup):
    """Lists the commands with the whole first paragraph of their help; those of `moorage` by group."""

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        shown = {name: command for name, command in self.commands.items() if not command.hidden}
        width = max(map(len, shown))
        for title, names in (GROUPS if ctx.parent is None else {"Commands": tuple(shown)}).items():
            with formatter.section(title):
                formatter.write_dl([(name.ljust(width), _summary(shown[name].help or "")) for name in names])


def type_text(field: FieldInfo) -> str:
    """Return the type of a setting as a placeholder: `<int>`, or the values of an enum."""
    kinds = [kind for kind in (field.annotation, *get_args(field.annotation)) if isinstance(kind, type)]
    for kind in kinds:
        if issubclass(kind, StrEnum):
            return f"<{'|'.join(kind)}>"
    if getattr(field.annotation, "__origin__", None) is tuple:
        return "<list>"
    return next((_TYPES[kind] for kind in kinds if kind in _TYPES), "<text>")


def default_text(field: FieldInfo) -> str:
    """Return the default of a setting; empty where the description says how it is chosen."""
    value = field.default
    if isinstance(value, SecretStr) or value in (None, "", ()):
        return ""
    return str(value).lower() if isinstance(value, bool) else str(value)


def _summary(text: str) -> str:
    """Return the first paragraph of a help text in one line."""
    return " ".join(text.partition("\n\n")[0].split())
