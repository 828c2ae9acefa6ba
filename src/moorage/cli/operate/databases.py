"""`moorage databases`: operator commands for databases of any organization."""

from __future__ import annotations

from typing import Annotated

import typer

from moorage.cli.help import group
from moorage.cli.operate.socket import DataOption, ask

app = group("Databases of all organizations, also deleted ones.")

Number = Annotated[int, typer.Argument(help="Number of the database, as `moorage databases list` shows it.")]


@app.command("list")
def list_databases(data: DataOption = None) -> None:
    """List all databases, including those in the trash."""
    rows = ask(data, "databases")
    if not rows:
        typer.echo("there are no databases")
    for row in rows:
        deleted = f" (deleted {row['deletedAt']}; bring it back with: moorage databases undelete {row['id']})"
        reason = f": {row['reason']}" if row["reason"] else ""
        typer.echo(
            f"{row['id']}  {row['name']}  organization {row['organization']}  {row['software']}  "
            f"127.0.0.1:{row['port']}  {row['diskBytes'] // 2**20} MB  {row['status']}{reason}"
            + (deleted if row["deletedAt"] else "")
        )


@app.command()
def stop(number: Number, data: DataOption = None) -> None:
    """Stop a database until `moorage databases start`; its data stays."""
    typer.echo(f"stopped {ask(data, 'stop-database', id=number)}")


@app.command()
def start(number: Number, data: DataOption = None) -> None:
    """Start a database that was stopped, or that failed for a reason that is gone."""
    typer.echo(f"started {ask(data, 'start-database', id=number)}")


@app.command()
def undelete(number: Number, data: DataOption = None) -> None:
    """Restore a deleted database from the trash, with its data, address and password."""
    typer.echo(f"{ask(data, 'undelete-database', id=number)} is restored and starts now")
