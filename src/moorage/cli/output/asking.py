"""Questions to the user: confirmation of irreversible changes, and secret values."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from moorage.cli.output.terminal import is_terminal, stop

YesOption = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")]
MAX_SECRET_CHARS = 1_000_000


def confirm(question: str, *, is_confirmed: bool) -> None:
    """Ask before something that cannot be undone; refuse without a terminal unless `--yes` was given."""
    if is_confirmed:
        return
    _check_terminal(question)
    if not typer.confirm(question, err=True):
        stop("nothing was changed")


def confirm_name(what: str, name: str, *, is_confirmed: bool) -> None:
    """Ask for the name of a resource before it is deleted with its data."""
    if is_confirmed:
        return
    question = f"{what} Type its name to go on"
    _check_terminal(what)
    if typer.prompt(question, err=True, default="", show_default=False).strip() != name:
        stop("the names differ; nothing was changed")


def read_secret(name: str) -> str:
    """Return a secret value from a prompt that does not show it, or from standard input."""
    if is_terminal(sys.stdin):
        value: str = typer.prompt(f"Value of {name}", hide_input=True, err=True)
    else:
        value = sys.stdin.read(MAX_SECRET_CHARS).removesuffix("\n").removesuffix("\r")
    if not value:
        stop(f"no value was given for {name}")
    return value


def _check_terminal(question: str) -> None:
    if not is_terminal(sys.stdin):
        stop(f"{question} There is no terminal to ask on; confirm with --yes", 2)
