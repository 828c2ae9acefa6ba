"""`moorage databases backup`, `backups` and `restore`."""

from __future__ import annotations

from typing import Annotated

import typer

from moorage.cli.output.asking import YesOption, confirm
from moorage.cli.output.progress import wait_for
from moorage.cli.output.tables import Column, JsonOption, show_json, show_list
from moorage.cli.output.terminal import is_terminal, note, plain, say, stop
from moorage.cli.output.words import ago, size, state_style
from moorage.cli.resources.databases.waiting import LIMIT_S, check_reason, until_running
from moorage.cli.resources.finding import given
from moorage.cli.session import connect
from moorage.cli.session.names import DatabaseArgument
from moorage.client import Client
from moorage.client.models import BackupItem

RUNNING = "running"
COMPLETED = "completed"


def backup(
    name: DatabaseArgument,
    waits: Annotated[
        bool, typer.Option("--wait/--no-wait", help="Wait until the backup is stored and checked.")
    ] = True,
    as_json: JsonOption = False,
) -> None:
    """Make a backup of a database now and print its name.

    Examples: `moorage databases backup orders`.
    """
    client = connect.client()
    made = client.databases.make_backup(name)
    if waits:
        made = _ended(client, name, made)
    if as_json:
        show_json(made)
    else:
        say(plain(made.name))
    if made.status == "failed":
        stop(f"the backup failed: {plain(made.reason)}")


def _ended(client: Client, name: str, made: BackupItem) -> BackupItem:
    def read() -> BackupItem:
        return next((each for each in client.databases.list_backups(name).items if each.name == made.name), made)

    return wait_for(
        f"backing up {name}", read, lambda each: each.status, lambda each: each.status != RUNNING, limit_s=LIMIT_S
    )


def backups(name: DatabaseArgument, as_json: JsonOption = False) -> None:
    """List the backups of a database, newest first.

    Examples: `moorage databases backups orders`.
    """
    page = connect.client().databases.list_backups(name)
    if as_json:
        show_json(page)
        return
    columns = [
        Column("BACKUP", lambda row: row.name),
        Column("STATUS", lambda row: row.status, lambda row: state_style(row.status)),
        Column("METHOD", lambda row: row.method),
        Column("SIZE", lambda row: size(row.total_size) if is_terminal() else row.total_size),
        Column("MADE", lambda row: ago(row.started_at) if is_terminal() else row.started_at),
        Column("TESTED", lambda row: ago(row.verified_at) if is_terminal() else row.verified_at),
        Column("CAUSE", lambda row: row.cause),
    ]
    empty = f"{name} has no backups; make one with `moorage databases backup {name}`."
    show_list(page.items, columns, as_json=False, empty=empty)
    policy = page.config
    if policy is None or not policy.enabled:
        note("automatic backups are off", "dim")
    else:
        note(
            f"automatic: {plain(policy.method)}, {plain(policy.cron_expression)} UTC, kept {policy.retention_period}",
            "dim",
        )


def restore(
    name: DatabaseArgument,
    backup_name: Annotated[
        str | None, typer.Argument(metavar="[BACKUP]", help="Name of the backup; default: the latest one.")
    ] = None,
    to_time: Annotated[
        str | None, typer.Option("--time", help="Point in time after a physical backup, such as 2030-01-31T09:30:00Z.")
    ] = None,
    yes: YesOption = False,
    as_json: JsonOption = False,
) -> None:
    """Replace the data of a database with a backup.

    Everything that was written after the backup is lost; a safety backup of the present data is made first.

    Examples: `moorage databases restore orders`, `moorage databases restore orders BACKUP --yes`.
    """
    client = connect.client()
    before = client.databases.read(name)
    chosen = _find(client, name, backup_name)
    moment = to_time or chosen.started_at
    confirm(
        f"Restore {name} from {plain(chosen.name)}? What was written since {plain(moment)} ({ago(moment)}) is lost; "
        "a safety backup of the present data is made first.",
        is_confirmed=yes,
    )
    client.databases.restore(name, backup_name=chosen.name, confirm=True, **given(target_time=to_time))
    after = until_running(client, name, f"restoring {name}")
    check_reason(before, after)
    if as_json:
        show_json(after)
    else:
        note(f"restored {name} from {plain(chosen.name)}", "green")


def _find(client: Client, name: str, backup_name: str | None) -> BackupItem:
    """Return a backup by its name, or the latest complete one."""
    listed = client.databases.list_backups(name).items
    if backup_name is None:
        complete = [each for each in listed if each.status == COMPLETED]
        if not complete:
            stop(f"{name} has no complete backup; make one with `moorage databases backup {name}`")
        return max(complete, key=lambda each: each.started_at)
    item = next((each for each in listed if each.name == backup_name), None)
    if item is not None:
        return item
    raise typer.Exit(_absent(name, backup_name))


def _absent(name: str, backup_name: str) -> int:
    note(f"moorage: {name} has no backup {plain(backup_name)}; `moorage databases backups {name}` lists them")
    return 1
