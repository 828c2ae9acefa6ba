"""`moorage version`."""

from __future__ import annotations

import typer

from moorage import __version__
from moorage.cli.help import single

app = single()


@app.command("version")
def _version() -> None:
    """Print the version."""
    typer.echo(__version__)
