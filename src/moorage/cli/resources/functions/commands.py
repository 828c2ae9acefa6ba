"""`moorage functions`: the group of all its commands."""

from __future__ import annotations

from typing import Annotated

import typer

from moorage.cli.help import group
from moorage.cli.output.asking import YesOption, confirm
from moorage.cli.output.tables import Column, JsonOption, show_list, show_one
from moorage.cli.output.terminal import is_terminal, note, plain, say, stop
from moorage.cli.output.words import ago
from moorage.cli.resources.functions import calling, deploying, develop, settings
from moorage.cli.resources.functions.deploying import WAIT_S
from moorage.cli.resources.series import RangeOption, Series, from_ms, show_series
from moorage.cli.session import connect
from moorage.cli.session.names import FunctionArgument

app = group("Functions: deploy, call and observe them, or run one on this machine.")

app.command("new")(deploying.new)
app.command("dev")(develop.dev)
app.command("deploy")(deploying.deploy)


@app.command("list")
def list_functions(as_json: JsonOption = False) -> None:
    """List the functions of the organization, newest first.

    Examples: `moorage functions list`, `moorage functions list --json`.
    """
    columns = [
        Column("NAME", lambda row: row.name),
        Column("RUNTIME", lambda row: row.runtime),
        Column("VERSION", lambda row: row.current_version),
        Column("UPDATED", lambda row: ago(row.updated_at) if is_terminal() else row.updated_at),
        Column("ADDRESS", lambda row: row.endpoint),
    ]
    rows = connect.client().functions.iterate(page_size=100)
    empty = "There are no functions; write one with `moorage functions new NAME` and deploy it."
    show_list(rows, columns, as_json=as_json, empty=empty)


@app.command()
def show(name: FunctionArgument, as_json: JsonOption = False) -> None:
    """Show a function with its settings.

    Examples: `moorage functions show hello`.
    """
    function = connect.client().functions.read(name)
    pairs = [
        ("name", function.name),
        ("runtime", function.runtime),
        ("version", function.current_version),
        ("address", function.url),
        ("shared address", function.endpoint),
        ("memory", f"{function.memory} MB"),
        ("timeout", f"{function.timeout} ms"),
        ("network", function.network),
        ("raw HTTP", function.raw_http),
        ("handles OPTIONS", function.handle_options),
        ("variables", [each.name for each in function.env]),
        ("description", function.description),
        ("updated", function.updated_at),
    ]
    show_one(function, pairs, as_json=as_json)


@app.command()
def url(name: FunctionArgument) -> None:
    """Print the address of a function.

    Examples: `curl "$(moorage functions url hello)?name=Ada"`.
    """
    say(plain(connect.client().functions.read(name).url))


app.command("invoke")(calling.invoke)
app.command("logs")(calling.logs)


@app.command()
def versions(name: FunctionArgument, as_json: JsonOption = False) -> None:
    """List the versions of a function, newest first; a star marks the current one.

    Examples: `moorage functions versions hello`.
    """
    columns = [
        Column("", lambda row: "*" if row.current else ""),
        Column("VERSION", lambda row: row.version),
        Column("CREATED", lambda row: ago(row.created_at) if is_terminal() else row.created_at),
    ]
    show_list(connect.client().functions.list_versions(name), columns, as_json=as_json, empty="There are no versions.")


@app.command()
def rollback(
    name: FunctionArgument,
    version: Annotated[
        int | None, typer.Argument(metavar="[VERSION]", help="Version; default: the one before the current one.")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Make an existing version of a function its current one.

    Examples: `moorage functions rollback hello`, `moorage functions rollback hello 3`.
    """
    client = connect.client()
    if version is None:
        listed = client.functions.list_versions(name)
        current = next((each.version for each in listed if each.current), 0)
        version = max((each.version for each in listed if each.version < current), default=0)
        if not version:
            stop(f"{name} has no version before version {current}")
    function = client.functions.roll_back(name, version=version, wait=WAIT_S)
    show_one(
        function,
        [("name", function.name), ("version", function.current_version), ("address", function.url)],
        as_json=as_json,
    )


@app.command()
def metrics(name: FunctionArgument, hours: RangeOption = 24, as_json: JsonOption = False) -> None:
    """Show calls, errors and the average duration over time.

    Charts on a terminal, one line per interval in a pipe.

    Examples: `moorage functions metrics hello`, `moorage functions metrics hello --hours 2`.
    """
    timeseries = connect.client().functions.read_metrics(name, from_ms=from_ms(hours))
    series: Series = {"calls": timeseries.invocations, "errors": timeseries.errors, "ms": timeseries.latency}
    if not as_json and is_terminal():
        total, errors = sum(timeseries.invocations), sum(timeseries.errors)
        say(f"{total} calls in {hours} h, {errors} errors{f' ({errors / total:.1%})' if total else ''}")
    titles = {"calls": "calls", "errors": "errors", "ms": "average duration in ms"}
    show_series(timeseries, timeseries.timestamps, series, titles, as_json=as_json, styles={"errors": "red"})


app.add_typer(settings.env_app, name="env")
app.add_typer(settings.secrets_app, name="secrets")


@app.command()
def delete(name: FunctionArgument, yes: YesOption = False) -> None:
    """Delete a function with its code, versions, schedules and records.

    Examples: `moorage functions delete hello`.
    """
    client = connect.client()
    function = client.functions.read(name)
    confirm(f"Delete the function {function.name} with its {function.current_version} versions?", is_confirmed=yes)
    client.functions.delete(name)
    note(f"deleted {function.name}")
