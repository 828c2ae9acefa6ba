"""`moorage completion`: the script that makes a shell complete commands, options and names."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import typer

from moorage.cli.help import COMPLETE_VARIABLE, single

app = single()


class Shell(StrEnum):
    BASH = "bash"
    ZSH = "zsh"
    FISH = "fish"


@app.command("completion")
def _completion(shell: Annotated[Shell, typer.Argument(help="The shell: bash, zsh or fish.")]) -> None:
    """Print the script that completes commands, options and names in a shell.

    Names of projects, functions, databases and other resources are read from the platform while you type; without an
    answer within 1.5 seconds there are none.

    Examples: `eval "$(moorage completion bash)"` in ~/.bashrc, `eval "$(moorage completion zsh)"` in ~/.zshrc after
    compinit, `moorage completion fish > ~/.config/fish/completions/moorage.fish`.
    """
    from typer.completion import get_completion_script  # type: ignore[attr-defined]

    options = {"prog_name": "moorage", "complete_var": COMPLETE_VARIABLE, "shell": shell.value}
    typer.echo(get_completion_script(**options))
