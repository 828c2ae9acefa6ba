"""`moorage schedules`: functions that run at fixed times."""

from __future__ import annotations

import json
from typing import Annotated, Any

import typer

from moorage.cli.help import group
from moorage.cli.output.asking import YesOption, confirm
from moorage.cli.output.tables import Column, JsonOption, show_list, show_one
from moorage.cli.output.terminal import is_terminal, note, plain, stop
from moorage.cli.output.words import ago, state_style
from moorage.cli.resources.finding import find, given
from moorage.cli.resources.functions.calling import read_data, show_result
from moorage.cli.session import connect
from moorage.cli.session.names import argument
from moorage.client.models import ScheduledFunction

app = group("Schedules: functions that run at fixed times.")

ScheduleArgument = Annotated[str, argument("schedule", "Name or number of the schedule.")]
CronOption = Annotated[str | None, typer.Option("--cron", help="Five fields, or a name such as @hourly.")]
TimezoneOption = Annotated[str | None, typer.Option("--timezone", help="Such as Europe/Berlin; default: UTC.")]
DataOption = Annotated[
    str | None, typer.Option("--data", "-d", metavar="JSON|@FILE|-", help="Params of each run, as a JSON object.")
]


@app.command("list")
def list_schedules(as_json: JsonOption = False) -> None:
    """List the schedules of the organization, oldest first.

    Examples: `moorage schedules list`.
    """
    columns = [
        Column("NAME", lambda row: row.name),
        Column("FUNCTION", lambda row: row.function_name),
        Column("CRON", lambda row: row.cron_schedule),
        Column("TIMEZONE", lambda row: row.timezone),
        Column("ENABLED", lambda row: row.enabled),
        Column("LAST", lambda row: row.last_status, lambda row: state_style(row.last_status)),
        Column("NEXT", lambda row: ago(row.next_run_at) if is_terminal() else row.next_run_at),
        Column("RUNS", lambda row: row.total_runs),
    ]
    empty = "There are no schedules; create one with `moorage schedules create NAME FUNCTION --cron '0 6 * * *'`."
    show_list(connect.client().schedules.list(), columns, as_json=as_json, empty=empty)


@app.command()
def create(
    name: Annotated[str, typer.Argument(help="Name of the schedule.")],
    function: Annotated[str, argument("function")],
    cron: Annotated[str, typer.Option("--cron", help="Five fields, or a name such as @hourly.")],
    timezone: TimezoneOption = None,
    data: DataOption = None,
    disabled: Annotated[bool, typer.Option("--disabled", help="Create it without running it.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Run a function at fixed times.

    Examples: `moorage schedules create nightly report --cron '0 6 * * *' --timezone Europe/Berlin`.
    """
    fields = given(timezone=timezone, params=_params(data), enabled=False if disabled else None)
    schedule = connect.client().schedules.create(name=name, function=function, cron_schedule=cron, **fields)
    _show(schedule, as_json=as_json)


@app.command()
def show(schedule: ScheduleArgument, as_json: JsonOption = False) -> None:
    """Show a schedule with its latest and its next run.

    Examples: `moorage schedules show nightly`.
    """
    _show(_find(schedule), as_json=as_json)


@app.command()
def update(
    schedule: ScheduleArgument,
    cron: CronOption = None,
    timezone: TimezoneOption = None,
    data: DataOption = None,
    enabled: Annotated[bool | None, typer.Option("--enable/--disable", help="Run it, or not.")] = None,
    as_json: JsonOption = False,
) -> None:
    """Change the times, the params or the state of a schedule; settings that are not given stay.

    Examples: `moorage schedules update nightly --cron '30 5 * * *'`, `moorage schedules update nightly --disable`.
    """
    fields = given(cron_schedule=cron, timezone=timezone, params=_params(data), enabled=enabled)
    if not fields:
        stop("nothing was given to change; see `moorage schedules update --help`")
    _show(connect.client().schedules.update(_find(schedule).id, **fields), as_json=as_json)


@app.command()
def run(schedule: ScheduleArgument, as_json: JsonOption = False) -> None:
    """Run a schedule now, also a disabled one, and print the result of its function.

    Examples: `moorage schedules run nightly`.
    """
    show_result(connect.client().schedules.run(_find(schedule).id), as_json)


@app.command()
def delete(schedule: ScheduleArgument, yes: YesOption = False) -> None:
    """Delete a schedule; its function stays.

    Examples: `moorage schedules delete nightly`.
    """
    schedule_item = _find(schedule)
    confirm(
        f"Delete the schedule {plain(schedule_item.name)} of {plain(schedule_item.function_name)}?", is_confirmed=yes
    )
    connect.client().schedules.delete(schedule_item.id)
    note(f"deleted {plain(schedule_item.name)}")


def _find(key: str) -> ScheduledFunction:
    return find(connect.client().schedules.list(), key, "schedule")


def _params(data: str | None) -> dict[str, Any] | None:
    params = None if data is None else read_data(data)
    if params is not None and not isinstance(params, dict):
        stop("--data should be a JSON object")
    return params


def _show(schedule: ScheduledFunction, *, as_json: bool) -> None:
    pairs = [
        ("name", schedule.name),
        ("number", schedule.id),
        ("function", schedule.function_name),
        ("cron", schedule.cron_schedule),
        ("timezone", schedule.timezone),
        ("enabled", schedule.enabled),
        ("params", json.dumps(schedule.params) if schedule.params else None),
        ("next run", schedule.next_run_at),
        ("last run", schedule.last_run_at),
        ("last status", schedule.last_status),
        ("last error", schedule.last_error),
        ("runs", schedule.total_runs),
    ]
    show_one(schedule, pairs, as_json=as_json)
