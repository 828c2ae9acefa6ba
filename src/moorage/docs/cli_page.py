"""The page of all commands, from the command line itself."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import typer
from typer.core import TyperGroup

from moorage.cli.commands import app
from moorage.docs.markdown import code, table
from moorage.docs.markdown import page as join
from moorage.settings import Settings

SETTINGS = {f"--{name.replace('_', '-')}" for name in Settings.model_fields}


def page() -> str:
    """Return the page: every command with its arguments and options."""
    root = typer.main.get_command(app)
    return join(
        "# Commands",
        str(root.help or ""),
        "Every command takes `--help`, and `moorage --version` prints the version.",
        *(block for name, command in commands(root, "moorage") for block in _command(name, command)),
    )


def commands(command: Any, name: str) -> Iterator[tuple[str, Any]]:
    """Return every command under one, by its full name; a group itself runs nothing."""
    if not isinstance(command, TyperGroup):
        if not command.hidden:
            yield name, command
        return
    for each in sorted(command.list_commands(None)):  # type: ignore[arg-type]
        yield from commands(command.get_command(None, each), f"{name} {each}")  # type: ignore[arg-type]


def _command(name: str, command: Any) -> Iterator[str]:
    arguments = [each for each in command.params if each.param_type_name == "argument"]
    options = [each for each in command.params if each.param_type_name == "option" and not each.hidden]
    flags = {flag for each in options for flag in each.opts}
    usage = [each.name.upper() if each.required else f"[{each.name.upper()}]" for each in arguments]
    yield f"## {code(' '.join([name, *usage]))}"
    yield from (" ".join(part.split()) for part in (command.help or "").split("\n\n"))
    yield table(("Argument", "Meaning"), [(code(each.name.upper()), each.help or "") for each in arguments])
    if flags >= SETTINGS:
        yield "Takes every [setting](settings.md) as a flag."
        options = [each for each in options if not SETTINGS & set(each.opts)]
    yield table(("Option", "Default", "Meaning"), [_option(each) for each in options])


def _option(option: Any) -> tuple[str, str, str]:
    default = "" if option.default in (None, False) else code(str(option.default))
    return ", ".join(map(code, [*option.opts, *option.secondary_opts])), default, option.help or ""
