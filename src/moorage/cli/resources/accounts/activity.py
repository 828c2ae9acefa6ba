"""`moorage activity`, `sessions` and `notifications`."""

from __future__ import annotations

import queue
import threading
from collections.abc import Iterator
from itertools import islice
from typing import Annotated, Any, Final

import msgspec
import typer

from moorage.cli.help import GroupedCommands
from moorage.cli.output.asking import YesOption, confirm
from moorage.cli.output.tables import Column, JsonOption, show_json, show_list, text_of
from moorage.cli.output.terminal import is_terminal, json_text, paint, plain, say
from moorage.cli.output.words import ago, parsed
from moorage.cli.session import connect
from moorage.client import Client, ClientError, Event, models
from moorage.core.kit.decoding import convert

CONNECT_S: Final = 1.5  # within which the stream is usually connected

app = typer.Typer(add_completion=False, rich_markup_mode=None)
sessions = typer.Typer(cls=GroupedCommands, no_args_is_help=True, help="Your sessions: where you are signed in.")
notifications = typer.Typer(cls=GroupedCommands, no_args_is_help=True, help="Your notifications.")
app.add_typer(sessions, name="sessions")
app.add_typer(notifications, name="notifications")


def _details(row: models.ActivityOut) -> str:
    return ", ".join(f"{name}={text_of(value)}" for name, value in row.details.items())


def _actor(row: models.ActivityOut) -> str:
    return f"{row.actor.name} (token {row.actor.token.name})" if row.actor.token else row.actor.name


COLUMNS = [
    Column("TIME", lambda row: _time(row.created_at)),
    Column("WHO", _actor),
    Column("ACTION", lambda row: row.action),
    Column("TARGET", lambda row: f"{row.target.kind} {row.target.name}".strip()),
    Column("DETAILS", _details),
]


def _time(text: str) -> str:
    """Return a time in local time on a terminal, and as the API has it in a pipe."""
    moment = parsed(text) if is_terminal() else None
    return moment.astimezone().strftime("%Y-%m-%d %H:%M:%S") if moment is not None else text


@app.command("activity")
def _activity(
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on with new entries until Ctrl-C.")] = False,
    limit: Annotated[int, typer.Option("--limit", min=0, help="Newest entries to show.")] = 30,
    as_json: JsonOption = False,
) -> None:
    """Show the changes of the organization: who did what and when.

    The newest entry is first; with `--follow` it is last, and new entries are appended. `--json --follow` prints one
    JSON object per line.

    Examples: `moorage activity`, `moorage activity -f`, `moorage activity --limit 500 --json`.
    """
    client = connect.client()
    rows = list(islice(client.organizations.iterate_activity(limit=min(max(limit, 1), 100)), max(limit, 1)))
    shown = rows[:limit]
    if not follow:
        show_list(shown, COLUMNS, as_json=as_json, empty="There is no activity.")
        return
    for row in reversed(shown):
        _print_entry(row, as_json=as_json)
    for row in _new_entries(client, rows[0].id if rows else 0):
        _print_entry(row, as_json=as_json)


def _new_entries(client: Client, last: int) -> Iterator[models.ActivityOut]:
    """Yield entries after an id as they are made.

    The stream begins when it is connected. Entries between the list and that moment are read from the list: once after
    a pause, and once with the first event.
    """
    events: queue.Queue[Event | ClientError] = queue.Queue()
    threading.Thread(target=_collect, args=(client, events), daemon=True).start()
    has_event, has_paused = False, False
    while True:
        try:
            item = events.get(timeout=None if has_event or has_paused else CONNECT_S)
        except queue.Empty:
            item, has_paused = None, True
        if isinstance(item, Exception):
            raise item
        if not has_event:
            newest = client.organizations.list_activity(limit=100).items
            rows = [row for row in reversed(newest) if row.id > last]
        else:
            rows = []
        has_event = has_event or item is not None
        if item is not None:
            rows.append(convert(item.data, models.ActivityOut))
        for row in rows:
            if row.id > last:
                last = row.id
                yield row


def _collect(client: Client, events: queue.Queue[Event | ClientError]) -> None:
    try:
        for event in client.organizations.follow_activity():
            events.put(event)
    except ClientError as error:
        events.put(error)


def _print_entry(row: models.ActivityOut, *, as_json: bool) -> None:
    if as_json:
        typer.echo(json_text(msgspec.json.encode(row).decode()))
        return
    cells = [text_of(column.cell(row)) for column in COLUMNS]
    if not is_terminal():
        typer.echo("\t".join(cells))
        return
    styles = ("dim", "cyan", "bold", "green", "dim")
    typer.echo("  ".join(paint(cell, style) for cell, style in zip(cells, styles, strict=True) if cell))


@sessions.command("list")
def list_sessions(as_json: JsonOption = False) -> None:
    """List your sessions, the most recently seen first; a star marks the one of this command.

    Needs a session: sign in with `moorage login --browser` or `--demo`, not with an API token.

    Example: `moorage sessions list`.
    """
    columns = [
        Column("", lambda row: "*" if row.current else ""),
        Column("ID", lambda row: row.id),
        Column("DEVICE", lambda row: row.device),
        Column("ADDRESS", lambda row: row.address),
        Column("SEEN", lambda row: ago(row.last_seen_at)),
        Column("CREATED", lambda row: ago(row.created_at)),
        Column("EXPIRES", lambda row: ago(row.expires_at)),
    ]
    show_list(connect.client().identity.list_sessions(), columns, as_json=as_json, empty="There are no sessions.")


@sessions.command("revoke")
def revoke_session(
    session_id: Annotated[int, typer.Argument(help="Id of the session, from `moorage sessions list`.")],
    yes: YesOption = False,
) -> None:
    """End a session immediately.

    Example: `moorage sessions revoke 12`.
    """
    confirm(f"End the session {session_id}?", is_confirmed=yes)
    connect.client().identity.revoke_session(session_id)
    say(f"ended session {session_id}")


@notifications.command("list")
def list_notifications(
    unread: Annotated[bool, typer.Option("--unread", help="Only those that are not marked as read.")] = False,
    as_json: JsonOption = False,
) -> None:
    """List your newest notifications; a dot marks unread ones.

    Examples: `moorage notifications list`, `moorage notifications list --unread --json`.
    """
    columns = [
        Column("", lambda row: "" if row.read else "•", lambda row: ("cyan",)),
        Column("ID", lambda row: row.id),
        Column("TITLE", lambda row: row.title),
        Column("TEXT", lambda row: row.body),
        Column("CREATED", lambda row: ago(row.created_at)),
    ]
    rows = [row for row in connect.client().identity.list_notifications() if not (unread and row.read)]
    show_list(rows, columns, as_json=as_json, empty="There are no notifications.")


@notifications.command("read")
def mark_read(
    notification_id: Annotated[int | None, typer.Argument(metavar="ID", help="Its id; default: all.")] = None,
    as_json: JsonOption = False,
) -> None:
    """Mark one notification, or all, as read.

    Examples: `moorage notifications read`, `moorage notifications read 31`.
    """
    identity = connect.client().identity
    result: Any
    if notification_id is None:
        result = identity.read_all_notifications()
        text = f"marked {result.marked} notifications as read"
    else:
        result = identity.read_notification(notification_id)
        text = f"marked as read: {plain(result.title)}"
    if as_json:
        show_json(result)
    else:
        say(text)
