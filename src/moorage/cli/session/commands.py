"""`moorage context`: choose between several platforms and organizations."""

from __future__ import annotations

from typing import Annotated

import typer

from moorage.cli.help import group
from moorage.cli.output.tables import Column, JsonOption, show_json, show_list
from moorage.cli.output.terminal import say, stop
from moorage.cli.session import contexts

app = group("Platforms and organizations that you signed in to.")


@app.command("list")
def list_contexts(as_json: JsonOption = False) -> None:
    """List the contexts; a star marks the current one."""
    known = _load()
    if as_json:
        rows = [
            {"name": name, "url": each.url, "organization": each.organization, "isCurrent": name == known.current}
            for name, each in known.by_name.items()
        ]
        show_json(rows)
        return
    columns = [
        Column("", lambda row: "*" if row[0] == known.current else ""),
        Column("NAME", lambda row: row[0]),
        Column("PLATFORM", lambda row: row[1].url),
        Column("ORGANIZATION", lambda row: row[1].organization),
    ]
    show_list(
        known.by_name.items(), columns, as_json=False, empty="There are no contexts; sign in with `moorage login`."
    )


@app.command()
def use(
    name: Annotated[str, typer.Argument(help="Name of the context.")],
    org: Annotated[str | None, typer.Option("--org", help="Also change its organization to this id.")] = None,
) -> None:
    """Make a context the current one."""
    known = _load()
    if name not in known.by_name:
        stop(f"there is no context {name}; `moorage context list` shows those that exist")
    known.current = name
    if org is not None:
        known.by_name[name].organization = org
    contexts.save(known)
    say(f"the current context is {name}")


def _load() -> contexts.Contexts:
    try:
        return contexts.load()
    except contexts.BadContextFile as error:
        stop(str(error))
