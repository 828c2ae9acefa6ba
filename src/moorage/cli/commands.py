"""All commands of `moorage`."""

from __future__ import annotations

from typing import Annotated

import typer

from moorage import __version__
from moorage.cli import admin, databases, detect, engines, keys, system, up
from moorage.cli.help import MAX_WIDTH, GroupedCommands

app = typer.Typer(
    name="moorage",
    cls=GroupedCommands,
    context_settings={"max_content_width": MAX_WIDTH},
    help="Moorage: sites, apps, functions, databases, schedules and monitors with one command.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
up.register(app)
system.register(app)
detect.register(app)
app.add_typer(admin.app, name="admin")
app.add_typer(databases.app, name="databases")
app.add_typer(engines.app, name="engines")
app.add_typer(keys.app, name="keys")
app.add_typer(system.audit_app, name="audit")


def _print_version(is_asked: bool) -> None:
    if is_asked:
        typer.echo(__version__)
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    pass


@app.command()
def version() -> None:
    """Print the version."""
    typer.echo(__version__)
