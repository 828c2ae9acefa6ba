"""`moorage monitors`: checks of web addresses."""

from __future__ import annotations

from typing import Annotated

import typer

from moorage.cli.help import group
from moorage.cli.output import charts
from moorage.cli.output.asking import YesOption, confirm
from moorage.cli.output.tables import Column, JsonOption, show_list, show_one
from moorage.cli.output.terminal import is_terminal, note, paint, plain, say, stop
from moorage.cli.output.words import ago, duration, state_style
from moorage.cli.resources.finding import find, given
from moorage.cli.resources.series import clock
from moorage.cli.session import connect
from moorage.cli.session.names import argument
from moorage.client.models import BucketOut, MonitorOut

app = group("Monitors: checks of web addresses.")

HOURS = 24
PAUSED = "pause"
CHECK_WAIT_S = 15
CHART_WIDTH = 72
MonitorArgument = Annotated[str, argument("monitor", "Name or number of the monitor.")]
IntervalOption = Annotated[int | None, typer.Option("--interval", help="Seconds between two checks.")]
TimeoutOption = Annotated[int | None, typer.Option("--timeout", help="Milliseconds of each try.")]
RetriesOption = Annotated[int | None, typer.Option("--retries", help="Further tries within one check.")]
MethodOption = Annotated[str | None, typer.Option("--method", help="GET, HEAD or POST.")]
StatusOption = Annotated[
    list[str] | None, typer.Option("--status", metavar="CODE", help="Accepted: 200, 200-299, 2xx; repeatable.")
]
KeywordOption = Annotated[str | None, typer.Option("--keyword", help="Text that the response has to contain.")]
PublicOption = Annotated[bool | None, typer.Option("--public/--private", help="Show it on the public status page.")]
NameOption = Annotated[str | None, typer.Option("--name", help="Name of the monitor.")]


@app.command("list")
def list_monitors(as_json: JsonOption = False) -> None:
    """List the monitors with their last 24 hours.

    Each bar is one hour: green without failed checks, yellow with some, red with failed checks only.

    Examples: `moorage monitors list`.
    """
    client = connect.client()
    rows = client.monitors.list()
    columns = [
        Column("NUMBER", lambda row: row.id),
        Column("NAME", lambda row: row.name),
        Column("STATUS", _state, lambda row: state_style(_state(row))),
        Column("UPTIME", lambda row: _percent(row.uptime_percent)),
        Column("RESPONSE", lambda row: duration(row.last_heartbeat.response_time) if row.last_heartbeat else ""),
        Column("ADDRESS", lambda row: row.url),
    ]
    if as_json or not is_terminal():
        show_list(rows, columns, as_json=as_json, empty="")
        return
    if not rows:
        note("There are no monitors; create one with `moorage monitors create NAME URL`.")
    for row in rows:
        _show_row(row, client.monitors.read_aggregate(row.id, hours=HOURS).buckets)


def _show_row(monitor: MonitorOut, buckets: list[BucketOut]) -> None:
    state = paint(_state(monitor).ljust(7), *state_style(_state(monitor)))
    last = duration(monitor.last_heartbeat.response_time) if monitor.last_heartbeat else ""
    name = plain(monitor.name)[:28].ljust(28)
    say(f"{monitor.id:>4}  {name}  {state}  {hours_bar(buckets)}  {_percent(monitor.uptime_percent):>8}  {last}")


def _state(monitor: MonitorOut) -> str:
    """Return the result of the latest check, or why there is none."""
    if monitor.status == PAUSED:
        return "paused"
    return plain(monitor.last_heartbeat.status.lower()) if monitor.last_heartbeat else "waiting"


def hours_bar(buckets: list[BucketOut]) -> str:
    """Return one character per hour: the height is the response time, the colour the share of failed checks."""
    times = [each.avg_response_time for each in buckets]
    marks = charts.sparkline(times)
    return "".join(paint(mark, _style(each)) for mark, each in zip(marks, buckets, strict=True))


def _style(bucket: BucketOut) -> str:
    if not bucket.up_count and not bucket.down_count:
        return "dim"
    return "red" if not bucket.up_count else "yellow" if bucket.down_count else "green"


def _percent(value: float | None) -> str:
    return "" if value is None else f"{value:.2f} %"


@app.command()
def create(
    name: Annotated[str, typer.Argument(help="Name of the monitor.")],
    url: Annotated[str, typer.Argument(help="Address to check.")],
    interval: IntervalOption = None,
    timeout: TimeoutOption = None,
    retries: RetriesOption = None,
    method: MethodOption = None,
    status: StatusOption = None,
    keyword: KeywordOption = None,
    public: PublicOption = None,
    as_json: JsonOption = False,
) -> None:
    """Check a web address at regular intervals.

    Examples: `moorage monitors create Shop https://shop.example.com/health --interval 30 --keyword 'in order'`.
    """
    fields = given(
        interval=interval,
        timeout=timeout,
        retries=retries,
        http_method=method,
        status_codes=status,
        keyword=keyword,
        public=public,
    )
    monitor = connect.client().monitors.create(name=name, url=url, **fields)
    _show(monitor, as_json=as_json)


@app.command()
def show(
    monitor: MonitorArgument,
    hours: Annotated[int, typer.Option("--hours", min=1, max=24 * 90, help="Length of the chart.")] = HOURS,
    as_json: JsonOption = False,
) -> None:
    """Show a monitor with its settings, its latest check and a chart of response times.

    Examples: `moorage monitors show Shop`, `moorage monitors show Shop --hours 168`.
    """
    client = connect.client()
    detail = client.monitors.read(_find(monitor).id)
    _show(detail, as_json=as_json)
    if as_json or not is_terminal():
        return
    aggregate = client.monitors.read_aggregate(detail.id, hours=hours)
    buckets = aggregate.buckets
    say()
    say(f"{hours} h, uptime {_percent(aggregate.uptime_percent) or 'unknown'}, response time in ms", "bold")
    labels = (clock(buckets[0].bucket), clock(buckets[-1].bucket)) if buckets else None
    for line in charts.chart([each.avg_response_time for each in buckets], 5, CHART_WIDTH, labels=labels):
        say(line)


@app.command()
def update(
    monitor: MonitorArgument,
    name: NameOption = None,
    url: Annotated[str | None, typer.Option("--url", help="Address to check.")] = None,
    interval: IntervalOption = None,
    timeout: TimeoutOption = None,
    retries: RetriesOption = None,
    method: MethodOption = None,
    status: StatusOption = None,
    keyword: KeywordOption = None,
    public: PublicOption = None,
    as_json: JsonOption = False,
) -> None:
    """Change settings of a monitor; settings without an option keep their values.

    Examples: `moorage monitors update Shop --interval 60 --status 2xx --status 301`.
    """
    fields = given(
        name=name,
        url=url,
        interval=interval,
        timeout=timeout,
        retries=retries,
        http_method=method,
        status_codes=status or None,
        keyword=keyword,
        public=public,
    )
    if not fields:
        stop("nothing was given to change; see `moorage monitors update --help`")
    _show(connect.client().monitors.update(_find(monitor).id, **fields), as_json=as_json)


@app.command()
def pause(monitor: MonitorArgument) -> None:
    """Stop the checks of a monitor, until `moorage monitors resume`.

    Examples: `moorage monitors pause Shop`.
    """
    paused = connect.client().monitors.pause(_find(monitor).id)
    note(f"paused {plain(paused.name)}")


@app.command()
def resume(
    monitor: MonitorArgument,
    waits: Annotated[bool, typer.Option("--wait/--no-wait", help="Wait for the first check.")] = False,
) -> None:
    """Check a paused monitor again.

    Examples: `moorage monitors resume Shop --wait`.
    """
    resumed = connect.client().monitors.resume(_find(monitor).id, wait=CHECK_WAIT_S if waits else None)
    note(f"resumed {plain(resumed.name)}: {_state(resumed)}")


@app.command()
def incidents(
    monitor: MonitorArgument,
    count: Annotated[int, typer.Option("--count", "-n", min=1, max=100, help="Number of incidents.")] = 20,
    as_json: JsonOption = False,
) -> None:
    """List the incidents of a monitor's alerts, newest first.

    Examples: `moorage monitors incidents Shop`.
    """
    columns = [
        Column("ALERT", lambda row: row.alert_id),
        Column("BEGAN", lambda row: ago(row.started_at) if is_terminal() else row.started_at),
        Column("ENDED", lambda row: (ago(row.resolved_at) if is_terminal() else row.resolved_at) or "open"),
        Column("OBSERVED", lambda row: row.observed.value),
        Column("MESSAGE", lambda row: row.observed.message),
    ]
    rows = connect.client().monitors.list_incidents(_find(monitor).id, limit=count)
    show_list(rows, columns, as_json=as_json, empty="There were no incidents.")


@app.command()
def delete(monitor: MonitorArgument, yes: YesOption = False) -> None:
    """Delete a monitor with its checks and alerts.

    Examples: `moorage monitors delete Shop`.
    """
    monitor_item = _find(monitor)
    confirm(f"Delete the monitor {plain(monitor_item.name)} with its checks and alerts?", is_confirmed=yes)
    connect.client().monitors.delete(monitor_item.id)
    note(f"deleted {plain(monitor_item.name)}")


def _find(key: str) -> MonitorOut:
    return find(connect.client().monitors.list(), key, "monitor")


def _show(monitor: MonitorOut, *, as_json: bool) -> None:
    last = monitor.last_heartbeat
    pairs = [
        ("name", monitor.name),
        ("number", monitor.id),
        ("address", monitor.url),
        ("status", _state(monitor)),
        ("uptime", _percent(monitor.uptime_percent)),
        ("last check", f"{last.status}, {duration(last.response_time)} {last.message}" if last else None),
        ("checked", last.time if last else None),
        ("interval", f"{monitor.interval} s"),
        ("timeout", f"{monitor.timeout} ms"),
        ("retries", monitor.retries),
        ("method", monitor.http_method),
        ("accepted", monitor.status_codes or None),
        ("keyword", monitor.keyword),
        ("public", monitor.public),
        ("certificate", f"valid until {monitor.ssl.valid_to}" if monitor.ssl else None),
    ]
    show_one(monitor, pairs, as_json=as_json)
