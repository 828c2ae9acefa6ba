"""`moorage logs`: lines of all sources of a project, coloured by source."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import Annotated, Final

import msgspec
import typer

from moorage.cli.help import single
from moorage.cli.output.tables import JsonOption
from moorage.cli.output.terminal import is_terminal, json_text, log_text, note, paint, plain, stop
from moorage.cli.output.words import parsed
from moorage.cli.overview.log_sources import Filter, Follower, Line, Notice, history
from moorage.cli.session import connect
from moorage.cli.session.names import ProjectArgument

app = single()

AGE: Final = re.compile(r"(\d{1,6})([smhd])")
UNITS: Final = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days"}
MAX_LINES: Final = 1000  # of the API
STYLES: Final = {"app": "cyan", "deployment": "yellow"}
CRONJOB_STYLES: Final = ("green", "blue")
SOURCE_WIDTH: Final = 19


@app.command("logs")
def _logs(
    name: ProjectArgument,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on with new lines until Ctrl-C.")] = False,
    since: Annotated[
        str | None, typer.Option("--since", help="Only lines since an age (`15m`, `2h`, `7d`) or a time.")
    ] = None,
    search: Annotated[str | None, typer.Option("--search", help="Only lines with this text, in any case.")] = None,
    tail: Annotated[
        int | None, typer.Option("--tail", min=0, max=MAX_LINES, help="Newest lines of the app; default: 100.")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Print the log lines of a project: its app, its deployments and its cronjobs.

    Without `--since` these are the newest lines of the app; with it also those of later deployments, and of runs of
    cronjobs that are built from the same repository. `--follow` goes on with all of them, also with deployments that
    begin later, and resumes after lost connections. `--json` prints one JSON object per line.

    Examples: `moorage logs api`, `moorage logs -f api`, `moorage logs api --since 2h --search error`.
    """
    wanted = Filter(moment(since), search)
    count = tail if tail is not None else 100 if since is None else MAX_LINES
    client = connect.client()
    project = client.projects.read(name)
    if not follow:
        start = wanted.since.isoformat() if wanted.since is not None else None
        for line in history(client, project, wanted, max(count, 1), start):
            _print(line, as_json=as_json)
        return
    follower = Follower(client, project, wanted, count)
    follower.start()
    while True:
        item = follower.items.get()
        if isinstance(item, Exception):
            raise item
        if isinstance(item, Notice):
            note(plain(item.text), "dim")
        elif wanted.accepts(item):
            _print(item, as_json=as_json)


def moment(text: str | None) -> datetime | None:
    """Return the moment of an age, a time or epoch milliseconds; exits if it is none of them."""
    if text is None:
        return None
    if match := AGE.fullmatch(text):
        return datetime.now(UTC) - timedelta(**{UNITS[match[2]]: int(match[1])})
    if text.isdecimal() and len(text) >= 12:
        return datetime.fromtimestamp(int(text[:14]) / 1000, UTC)
    timestamp = parsed(text)
    if timestamp is None:
        stop(f"--since {plain(text)}: expected an age such as 15m, 2h or 7d, or a time such as 2030-01-31T12:00:00Z", 2)
    return timestamp


def _print(line: Line, *, as_json: bool) -> None:
    if as_json:
        typer.echo(json_text(msgspec.json.encode(line).decode()))
    elif not is_terminal():
        typer.echo(f"{plain(line.timestamp)}\t{plain(line.source)}\t{log_text(line.message)}")
    else:
        at = parsed(line.timestamp)
        clock = at.astimezone().strftime("%H:%M:%S") if at is not None else " " * 8
        source = paint(plain(line.source)[:SOURCE_WIDTH].ljust(SOURCE_WIDTH), style_of(line.source))
        text = log_text(line.message)
        text = paint(text, "red") if line.stream == "stderr" and "\x1b" not in text else text
        typer.echo(f"{paint(clock, 'dim')} {source} {text}")


def style_of(source: str) -> str:
    """Return the colour of a source; each cronjob keeps its own."""
    kind, _, name = source.partition(" ")
    return STYLES.get(kind) or CRONJOB_STYLES[sum(name.encode()) % len(CRONJOB_STYLES)]
