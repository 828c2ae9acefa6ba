"""`moorage alerts`: messages about monitors."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from moorage.cli.help import group
from moorage.cli.output.asking import YesOption, confirm, read_secret
from moorage.cli.output.tables import Column, JsonOption, show_list, show_one
from moorage.cli.output.terminal import is_terminal, note, plain, stop
from moorage.cli.output.words import ago, state_style
from moorage.cli.resources.finding import find, given
from moorage.cli.session import connect
from moorage.cli.session.names import argument
from moorage.client import Client
from moorage.client.models import AlertOut, NotificationsInput, SomeNotificationsInput

app = group("Alerts: messages about monitors.")

TEST_WAIT_S = 15
MonitorArgument = Annotated[str, argument("monitor", "Name or number of the monitor.")]
AlertArgument = Annotated[int, typer.Argument(help="Number of the alert, as `moorage alerts list` shows it.")]
ThresholdOption = Annotated[float | None, typer.Option("--threshold", help="Value that the metric is compared with.")]
ConditionOption = Annotated[str | None, typer.Option("--condition", help="gt, lt, eq or neq.")]
DurationOption = Annotated[int | None, typer.Option("--minutes", help="Minutes for which the condition has to hold.")]
SeverityOption = Annotated[str | None, typer.Option("--severity", help="info, warning, error or critical.")]
EmailOption = Annotated[bool | None, typer.Option("--email/--no-email", help="Send mail to the members.")]
SlackOption = Annotated[
    bool, typer.Option("--slack", help="Send to Slack; its address is asked for, or read from standard input.")
]
WebhookOption = Annotated[
    bool, typer.Option("--webhook", help="Send to a webhook; its address is asked for, or read from standard input.")
]


@app.command("list")
def list_alerts(
    monitor: Annotated[
        str | None,
        argument("monitor", "Name or number of a monitor; default: all monitors."),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """List the alerts of a monitor, or of all monitors.

    Examples: `moorage alerts list`, `moorage alerts list Shop`.
    """
    client = connect.client()
    monitors = client.monitors.list()
    chosen = monitors if monitor is None else [find(monitors, monitor, "monitor")]
    names = {each.id: each.name for each in chosen}
    columns = [
        Column("NUMBER", lambda row: row.id),
        Column("MONITOR", lambda row: names[row.monitor_id]),
        Column("WHEN", _rule),
        Column("SEVERITY", lambda row: row.severity),
        Column("STATUS", _state, lambda row: state_style(_state(row))),
        Column("CHANNELS", _channels),
        Column("TRIGGERED", lambda row: ago(row.last_triggered) if is_terminal() else row.last_triggered),
    ]
    rows = [alert for each in chosen for alert in client.monitors.list_alerts(each.id)]
    show_list(rows, columns, as_json=as_json, empty="There are no alerts; see `moorage alerts create --help`.")


def _rule(alert: AlertOut) -> str:
    hold = f" for {alert.duration} min" if alert.duration else ""
    return f"{alert.metric} {alert.condition} {alert.threshold:g}{hold}"


def _state(alert: AlertOut) -> str:
    return "disabled" if not alert.enabled else str(alert.status or "")


def _channels(alert: AlertOut) -> list[str]:
    sent = alert.notifications
    if sent is None:
        return []
    flags = {"email": sent.email, "slack": sent.slack, "webhook": sent.webhook}
    return [name for name, is_on in flags.items() if is_on]


@app.command()
def create(
    monitor: MonitorArgument,
    metric: Annotated[
        str, typer.Option("--metric", help="status, response_time, status_code, error_rate or ssl_expiry.")
    ] = "status",
    condition: ConditionOption = None,
    threshold: ThresholdOption = None,
    minutes: DurationOption = None,
    severity: SeverityOption = None,
    email: EmailOption = None,
    slack: SlackOption = False,
    webhook: WebhookOption = False,
    as_json: JsonOption = False,
) -> None:
    """Send messages when a metric of a monitor crosses a threshold.

    Without options the alert is about an address that is down. `status` is 1 while it is up and 0 while it is down,
    `response_time` is in milliseconds, `error_rate` in percent, `ssl_expiry` in days.

    Examples: `moorage alerts create Shop`,
    `moorage alerts create Shop --metric response_time --condition gt --threshold 2000 --minutes 5`.
    """
    if metric != "status" and (condition is None or threshold is None):
        stop(f"an alert about {plain(metric)} needs --condition and --threshold")
    client = connect.client()
    monitor_item = find(client.monitors.list(), monitor, "monitor")
    notifications = NotificationsInput(**given(email=email, slack=slack or None, webhook=webhook or None))
    fields = given(duration=minutes, severity=severity, **_addresses(slack, webhook))
    alert = client.monitors.create_alert(
        monitor_item.id,
        metric=metric,  # type: ignore[arg-type]  # checked by the API
        condition=condition or "eq",  # type: ignore[arg-type]
        threshold=0 if threshold is None else threshold,
        notifications=notifications,
        **fields,
    )
    _show(alert, as_json=as_json)


def _addresses(slack: bool, webhook: bool) -> dict[str, Any]:
    """Return the addresses of channels, which contain credentials: never arguments."""
    return given(
        slack_webhook=read_secret("the address of the Slack webhook") if slack else None,
        webhook_url=read_secret("the address of the webhook") if webhook else None,
    )


@app.command()
def update(
    alert: AlertArgument,
    condition: ConditionOption = None,
    threshold: ThresholdOption = None,
    minutes: DurationOption = None,
    severity: SeverityOption = None,
    email: EmailOption = None,
    slack: SlackOption = False,
    webhook: WebhookOption = False,
    enabled: Annotated[bool | None, typer.Option("--enable/--disable", help="Send messages, or not.")] = None,
    acknowledged: Annotated[
        bool | None, typer.Option("--acknowledge/--unacknowledge", help="Note that somebody works on it.")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Change settings of an alert; settings without an option keep their values.

    Examples: `moorage alerts update 4 --threshold 3000`, `moorage alerts update 4 --disable`.
    """
    channels = given(email=email, slack=slack or None, webhook=webhook or None)
    fields = given(
        condition=condition,
        threshold=threshold,
        duration=minutes,
        severity=severity,
        enabled=enabled,
        acknowledged=acknowledged,
        notifications=SomeNotificationsInput(**channels) if channels else None,
        **_addresses(slack, webhook),
    )
    if not fields:
        stop("nothing was given to change; see `moorage alerts update --help`")
    _show(connect.client().monitors.update_alert(alert, **fields), as_json=as_json)


@app.command("test")
def try_alert(alert: AlertArgument, as_json: JsonOption = False) -> None:
    """Send a test message to all channels of an alert, and show how each delivery ended.

    The exit code is 1 if a delivery failed.

    Examples: `moorage alerts test 4`.
    """
    deliveries = connect.client().monitors.try_alert(alert, wait=TEST_WAIT_S).deliveries
    columns = [
        Column("CHANNEL", lambda row: row.channel),
        Column("STATUS", lambda row: row.status, lambda row: state_style(row.status)),
        Column("ATTEMPTS", lambda row: row.attempts),
        Column("ERROR", lambda row: row.last_error),
    ]
    show_list(deliveries, columns, as_json=as_json, empty="The alert has no channels.")
    if any(each.status == "failed" for each in deliveries):
        raise typer.Exit(1)


@app.command()
def delete(alert: AlertArgument, yes: YesOption = False) -> None:
    """Delete an alert with its incidents.

    Examples: `moorage alerts delete 4`.
    """
    client = connect.client()
    rule = _rule(_find(client, alert))
    confirm(f"Delete the alert {alert} ({plain(rule)})?", is_confirmed=yes)
    client.monitors.delete_alert(alert)
    note(f"deleted alert {alert}")


def _find(client: Client, number: int) -> AlertOut:
    for monitor in client.monitors.list():
        for alert in client.monitors.list_alerts(monitor.id):
            if alert.id == number:
                return alert
    raise typer.Exit(_absent(number))


def _absent(number: int) -> int:
    note(f"moorage: there is no alert {number}; `moorage alerts list` shows those that exist")
    return 1


def _show(alert: AlertOut, *, as_json: bool) -> None:
    pairs = [
        ("number", alert.id),
        ("when", _rule(alert)),
        ("severity", alert.severity),
        ("status", _state(alert)),
        ("channels", _channels(alert)),
        ("acknowledged", alert.acknowledged),
        ("triggered", alert.last_triggered),
    ]
    show_one(alert, pairs, as_json=as_json)
