"""Groups of commands: loaded when they are used, and listed with the first paragraph of their help."""

from __future__ import annotations

import importlib
import os
from dataclasses import dataclass
from typing import Any, ClassVar

import typer
from typer.core import TyperCommand, TyperGroup

COMPLETE_VARIABLE = "_MOORAGE_COMPLETE"  # set by the completion scripts of shells
MAX_WIDTH = 120  # columns; a narrower terminal wraps the text


@dataclass(frozen=True, slots=True)
class Entry:
    """A command of `moorage`: its module has a Typer `app`, which is the group or contains the command."""

    name: str
    title: str  # of the group of commands in the help
    module: str
    summary: str  # the first paragraph of its help, so that `moorage --help` need not import it

    def load(self) -> Any:
        command: Any = typer.main.get_command(importlib.import_module(self.module).app)
        subcommand = getattr(command, "commands", {}).get(self.name)
        command = subcommand if subcommand is not None and command.name != self.name else command
        command.name = self.name
        return command


class GroupedCommands(TyperGroup):
    """Lists the commands of a group with the whole first paragraph of their help."""

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        shown = {name: command for name, command in self.commands.items() if not command.hidden}
        _write(formatter, "Commands", {name: summary(command.help or "") for name, command in shown.items()})


class LazyCommands(TyperGroup):
    """The commands of `moorage`. A module is imported when one of its commands is used."""

    entries: ClassVar[dict[str, Entry]] = {}
    _is_listing = False

    def list_commands(self, ctx: Any) -> list[str]:
        return list(self.entries)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        entry = self.entries.get(cmd_name)
        if entry is not None and self._is_listing:
            return TyperCommand(cmd_name, help=entry.summary)
        return entry.load() if entry is not None else None

    def shell_complete(self, ctx: Any, incomplete: str) -> Any:
        """Complete the names of commands with their summaries, without an import of their modules."""
        self._is_listing = True
        try:
            return super().shell_complete(ctx, incomplete)
        finally:
            self._is_listing = False

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        is_unknown = bool(args) and not args[0].startswith("-") and args[0] not in self.entries
        if is_unknown and not ctx.resilient_parsing:
            ctx.fail(f"No such command '{args[0]}'.{_suggestion(args[0], self.entries)}")
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        for title in dict.fromkeys(entry.title for entry in self.entries.values()):
            rows = {entry.name: entry.summary for entry in self.entries.values() if entry.title == title}
            _write(formatter, title, rows, width=max(map(len, self.entries)))


def _write(formatter: Any, title: str, rows: dict[str, str], width: int = 0) -> None:
    width = width or max(map(len, rows), default=0)
    with formatter.section(title):
        formatter.write_dl([(name.ljust(width), text) for name, text in rows.items()])


def _suggestion(name: str, known: dict[str, Entry]) -> str:
    from difflib import get_close_matches

    near = get_close_matches(name, known, n=1)
    return f" Did you mean '{near[0]}'?" if near else " `moorage --help` lists all commands."


def prepare_completion() -> None:
    """Register the shells when a completion script runs the command."""
    if COMPLETE_VARIABLE in os.environ:
        from typer.completion import completion_init  # type: ignore[attr-defined]

        completion_init()


def summary(text: str) -> str:
    """Return the first paragraph of a help text in one line."""
    return " ".join(text.partition("\n\n")[0].split())


def group(text: str) -> typer.Typer:
    """Return a Typer for a group of commands, such as `moorage projects`."""
    app = typer.Typer(cls=GroupedCommands, no_args_is_help=True, add_completion=False, rich_markup_mode=None)
    app.callback(help=text)(_nothing)  # With a callback, a group of one command stays a group.
    return app


def _nothing() -> None:
    pass


def single() -> typer.Typer:
    """Return a Typer for commands that stand alone, such as `moorage deploy`."""
    return typer.Typer(add_completion=False, rich_markup_mode=None)
