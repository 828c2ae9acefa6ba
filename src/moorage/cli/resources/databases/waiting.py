"""Waits for a database that is being created or changed."""

from __future__ import annotations

from typing import Annotated

import typer

from moorage.cli.output.progress import wait_for
from moorage.cli.output.terminal import plain, stop
from moorage.client import Client
from moorage.client.models import DatabaseDetail

CHANGING = frozenset(("pending", "queued", "deploying", "updating"))
LIMIT_S = 600
WaitOption = Annotated[bool, typer.Option("--wait/--no-wait", help="Wait until the database runs again.")]


def until_running(client: Client, name: str, what: str) -> DatabaseDetail:
    """Show the state until no job changes the database; exits with the reason if it does not run then."""
    database = wait_for(
        what,
        lambda: client.databases.read(name),
        lambda each: str(each.status),
        lambda each: each.status not in CHANGING,
        limit_s=LIMIT_S,
    )
    if database.status != "running":
        stop(f"{name} is {plain(database.status)}: {plain(database.status_reason or 'see `moorage databases show`')}")
    return database


def check_reason(before: DatabaseDetail, after: DatabaseDetail) -> None:
    """Exit if a job left the database as it was, with a new reason."""
    if after.status_reason and after.status_reason != before.status_reason:
        stop(f"{after.name} was not changed: {plain(after.status_reason)}")
