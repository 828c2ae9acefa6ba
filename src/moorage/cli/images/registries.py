"""`moorage registries`: credentials of private image registries."""

from __future__ import annotations

from typing import Annotated

import typer

from moorage.cli.help import group
from moorage.cli.output.asking import YesOption, confirm, read_secret
from moorage.cli.output.tables import Column, JsonOption, show_json, show_list
from moorage.cli.output.terminal import note, plain, say, stop
from moorage.cli.output.words import ago
from moorage.cli.session import connect

app = group("Registries: credentials of private image registries.")

HostArgument = Annotated[str, typer.Argument(help="Host of the registry, such as ghcr.io or docker.io.")]


@app.command("list")
def list_registries(as_json: JsonOption = False) -> None:
    """List the registries of the organization, without their secrets.

    Example: `moorage registries list`.
    """
    columns = [
        Column("HOST", lambda row: row.host),
        Column("USER", lambda row: row.username),
        Column("TOKEN HOST", lambda row: row.token_host),
        Column("UPDATED", lambda row: ago(row.updated_at)),
    ]
    empty = "There are no registries; add one with `moorage registries add HOST --username NAME`."
    show_list(connect.client().registries.list(), columns, as_json=as_json, empty=empty)


@app.command("add")
def add_registry(
    host: HostArgument,
    username: Annotated[str, typer.Option("--username", "-u", help="User name at the registry.")],
    token_host: Annotated[
        str, typer.Option("--token-host", help="A further host that may get the password, for a token.")
    ] = "",
    as_json: JsonOption = False,
) -> None:
    """Store the credentials of a registry, or replace the stored ones.

    The password or access token is read from a prompt, or from standard input.

    Examples: `moorage registries add ghcr.io -u ada`, `moorage registries add docker.io -u ada < token-file`,
    `moorage registries add registry.gitlab.com -u ada --token-host gitlab.com`.
    """
    secret = read_secret(f"the password of {plain(username)} at {plain(host)}")
    registries = connect.client().registries
    known = next((each for each in registries.list() if each.host == host.lower()), None)
    if known is None:
        stored = registries.create(host=host, username=username, secret=secret, token_host=token_host)
    else:
        stored = registries.update(known.id, username=username, secret=secret, token_host=token_host)
    if as_json:
        show_json(stored)
        return
    say(f"{'added' if known is None else 'changed'} {plain(stored.host)}")
    note("pulls of cronjobs, projects and Dockerfiles use it from now on", "dim")


@app.command("remove")
def remove_registry(host: HostArgument, yes: YesOption = False) -> None:
    """Delete the credentials of a registry.

    Example: `moorage registries remove ghcr.io`.
    """
    registries = connect.client().registries
    registry = next((each for each in registries.list() if each.host == host.lower()), None)
    if registry is None:
        stop(f"there is no registry {plain(host)}; `moorage registries list` shows those that exist")
    confirm(f"Delete the credentials of {plain(registry.host)}?", is_confirmed=yes)
    registries.delete(registry.id)
    say(f"removed {plain(registry.host)}")
