"""`moorage machines`: the machines of the platform, through its operator's socket."""

from __future__ import annotations

import time
from typing import Annotated, Any

import typer

from moorage.cli.help import group
from moorage.cli.operate.socket import DataOption, ask
from moorage.cli.output.tables import JsonOption, show_json

POLL_INTERVAL_S = 1.0

app = group("Machines of the platform: list, drain and remove them.")
Name = Annotated[str, typer.Argument(help="Name of the machine.")]


@app.command("list")
def list_(data: DataOption = None, as_json: JsonOption = False) -> None:
    """List all machines: state, address, capacity, and what they run."""
    rows: list[dict[str, Any]] = ask(data, "machines")
    if as_json:
        show_json(rows)
        return
    for row in rows:
        typer.echo(_line(row))


def _line(row: dict[str, Any]) -> str:
    words = [row["name"], row["status"], row["address"] or "no address"]
    words += [f"{row['cpuCount']} CPUs", f"{row['memoryMb']} MB", f"load {row['load']}"]
    words += [f"{count} {kind}" for kind, count in row["resources"].items()]
    words += [f"{name}={value}" for name, value in row["labels"].items()]
    if row["status"] == "gone":
        words.append(f"last heartbeat {row['heartbeatAgeMs'] // 1000} s ago")
    return "  ".join([*words, *(["(this machine)"] if row["isThis"] else [])])


@app.command()
def drain(
    name: Name,
    undo: Annotated[bool, typer.Option("--undo", help="Let the machine get apps again.")] = False,
    wait: Annotated[bool, typer.Option("--wait/--no-wait", help="Wait until its stateless apps have moved.")] = True,
    data: DataOption = None,
) -> None:
    """Move the stateless apps of a machine to others, without a failed request, and place nothing new on it.

    Databases and apps with volumes stay, because their data is on the machine.
    """
    row = ask(data, "drain-machine", name=name, undo=undo)
    if undo:
        typer.echo(f"{name} is {row['status']} and gets apps again")
        return
    typer.echo(f"{name} is {row['status']}")
    while wait and row["movable"] and row["hasTarget"]:
        time.sleep(POLL_INTERVAL_S)
        row = next(each for each in ask(data, "machines") if each["name"] == name)
    if row["movable"] and not row["hasTarget"]:
        typer.echo("no other machine is active, so its apps stay until one is")
    elif not row["movable"]:
        typer.echo("it runs no stateless apps any more")
    for text in row["stateful"]:
        typer.echo(f"these stay with their data: {text}")


@app.command()
def remove(
    name: Name,
    lost: Annotated[
        bool, typer.Option("--lost", help="Its disks are lost for good: give up databases, volumes and repositories.")
    ] = False,
    data: DataOption = None,
) -> None:
    """Forget a machine that is gone. Refused while it runs, or has databases, volumes or repositories."""
    ask(data, "remove-machine", name=name, lost=lost)
    typer.echo(f"{name} is removed")
