"""`moorage tokens`: API tokens of the organization."""

from __future__ import annotations

import sys
from typing import Annotated, Literal

import typer
from msgspec import UNSET

from moorage.cli.help import group
from moorage.cli.output.asking import YesOption, confirm
from moorage.cli.output.tables import Column, JsonOption, show_json, show_list
from moorage.cli.output.terminal import note, plain, say, stop
from moorage.cli.output.words import ago
from moorage.cli.session import connect

app = group("API tokens of the organization.")

Role = Literal["viewer", "member", "admin", "owner"]


@app.command("list")
def list_tokens(as_json: JsonOption = False) -> None:
    """List the API tokens of the organization, masked.

    Example: `moorage tokens list`.
    """
    columns = [
        Column("ID", lambda row: row.id),
        Column("NAME", lambda row: row.name),
        Column("TOKEN", lambda row: row.preview),
        Column("ROLE", lambda row: row.role),
        Column("CREATED", lambda row: ago(row.created_at)),
        Column("LAST USED", lambda row: ago(row.last_used_at) or "never"),
        Column("EXPIRES", lambda row: ago(row.expires_at) or "never"),
    ]
    empty = "There are no tokens; create one with `moorage tokens create NAME`."
    show_list(connect.client().identity.list_tokens(), columns, as_json=as_json, empty=empty)


@app.command("create")
def create_token(
    name: Annotated[str, typer.Argument(help="Name that the token is listed under.")],
    role: Annotated[Role | None, typer.Option("--role", help="Role of the token; default: yours.")] = None,
    expires_days: Annotated[
        int | None, typer.Option("--expires-days", min=1, help="Days until it expires; default: never.")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Create an API token and print it, alone, on standard output. It is shown only once.

    Examples: `moorage tokens create ci --role member --expires-days 90`, `moorage tokens create ci > token-file`.
    """
    created = connect.client().identity.create_token(
        name=name,
        role=UNSET if role is None else role,
        expires_in_days=UNSET if expires_days is None else expires_days,
    )
    if as_json:
        show_json(created)
        return
    expiry = f", expires {ago(created.expires_at)}" if created.expires_at else ""
    note(f"token {plain(created.name)} (id {created.id}, role {created.role}{expiry}); it is not shown again", "dim")
    sys.stdout.write(f"{created.token}\n")


@app.command("revoke")
def revoke_token(
    token: Annotated[str, typer.Argument(help="Id or name of the token, from `moorage tokens list`.")],
    yes: YesOption = False,
) -> None:
    """Revoke an API token immediately.

    Example: `moorage tokens revoke ci`.
    """
    identity = connect.client().identity
    known = identity.list_tokens()
    matches = [each for each in known if token == str(each.id)] or [each for each in known if each.name == token]
    if not matches:
        stop(f"there is no token {plain(token)}; `moorage tokens list` shows those that exist")
    if len(matches) > 1:
        ids = ", ".join(str(each.id) for each in matches)
        stop(f"{len(matches)} tokens have the name {plain(token)}; use an id: {ids}")
    confirm(f"Revoke the token {plain(matches[0].name)} (id {matches[0].id})?", is_confirmed=yes)
    identity.revoke_token(matches[0].id)
    say(f"revoked {plain(matches[0].name)} (id {matches[0].id})")
