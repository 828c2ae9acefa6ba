"""`moorage orgs`: organizations of the user, and the one that commands act on."""

from __future__ import annotations

import os
from typing import Annotated

import typer
from msgspec import UNSET

from moorage.cli.help import group
from moorage.cli.output.tables import Column, JsonOption, show_json, show_list, show_one
from moorage.cli.output.terminal import note, plain, say, stop
from moorage.cli.output.words import ago
from moorage.cli.session import completion, connect, contexts
from moorage.client import Client, models

app = group("Organizations, and the one that commands act on.")

Which = Annotated[
    str | None,
    typer.Argument(
        metavar="ORG",
        help="Id, slug or name; default: the current one.",
        autocompletion=completion.of("organization"),
    ),
]


@app.command("list")
def list_orgs(as_json: JsonOption = False) -> None:
    """List your organizations; a star marks the current one.

    An API token belongs to one organization and sees only that one.

    Example: `moorage orgs list`.
    """
    client = connect.client()
    current = client.identity.whoami().org_id
    columns = [
        Column("", lambda row: "*" if row.organization_id == current else ""),
        Column("ID", lambda row: row.organization_id),
        Column("SLUG", lambda row: row.slug),
        Column("NAME", lambda row: row.name),
        Column("ROLE", lambda row: row.role),
        Column("PLAN", lambda row: row.plan),
    ]
    show_list(client.organizations.list(), columns, as_json=as_json, empty="You belong to no organization.")


@app.command("show")
def show_org(org: Which = None, as_json: JsonOption = False) -> None:
    """Show an organization with its plan.

    Examples: `moorage orgs show`, `moorage orgs show acme`.
    """
    _show(find_org(connect.client(), org), as_json=as_json)


def _show(org: models.OrganizationOut, *, as_json: bool) -> None:
    pairs = [
        ("id", org.organization_id),
        ("name", org.name),
        ("slug", org.slug),
        ("your role", org.role),
        ("plan", org.plan),
        ("card verified", org.card_verified),
        ("create on push", org.create_on_push),
        ("created", ago(org.created_at)),
    ]
    show_one(org, pairs, as_json=as_json)


def find_org(client: Client, text: str | None) -> models.OrganizationOut:
    """Return an organization of the user by id, slug or name, or the current one; exits if there is none."""
    if text is None:
        return client.organizations.read(client.identity.whoami().org_id)
    known = client.organizations.list()
    matches = [each for each in known if text in (each.organization_id, each.slug)]
    matches = matches or [each for each in known if each.name == text]
    if len(matches) != 1:
        names = ", ".join(f"{plain(each.slug)} ({each.organization_id})" for each in known) or "none"
        stop(f"you belong to no organization {plain(text)}; yours: {names}")
    return matches[0]


@app.command("create")
def create_org(
    name: Annotated[str, typer.Argument(help="Name of the organization.")],
    use: Annotated[bool, typer.Option("--use", help="Act on it from now on.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Create an organization that you own.

    Examples: `moorage orgs create "Acme Shop"`, `moorage orgs create Acme --use`.
    """
    created = connect.client().organizations.create(name=name)
    if as_json:
        show_json(created)
    else:
        say(f"created {plain(created.name)} ({created.organization_id})")
    if use:
        _use(created)


@app.command("rename")
def rename_org(
    name: Annotated[str | None, typer.Argument(metavar="NAME", help="The new name.")] = None,
    create_on_push: Annotated[
        bool | None,
        typer.Option("--create-on-push/--no-create-on-push", help="Create a project for each pushed repository."),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Rename the current organization, or change its settings. Its slug stays.

    Examples: `moorage orgs rename "Acme Store"`, `moorage orgs rename --no-create-on-push`.
    """
    if name is None and create_on_push is None:
        stop("give a new name, or a setting", 2)
    client = connect.client()
    changed = client.organizations.rename(
        client.identity.whoami().org_id,
        name=UNSET if name is None else name,
        create_on_push=UNSET if create_on_push is None else create_on_push,
    )
    _show(changed, as_json=as_json)


@app.command("use")
def use_org(
    org: Annotated[str, typer.Argument(help="Id, slug or name.", autocompletion=completion.of("organization"))],
) -> None:
    """Act on another organization from now on, in the current context.

    `--org ID` before a command does so once. An API token acts on its own organization only.

    Examples: `moorage orgs use acme`, `moorage --org 7 projects list`.
    """
    _use(find_org(connect.client(), org))


def _use(org: models.OrganizationOut) -> None:
    if os.environ.get("MOORAGE_TOKEN") or os.environ.get("MOORAGE_ORG"):
        stop("MOORAGE_TOKEN or MOORAGE_ORG selects the organization; set MOORAGE_ORG, or unset both")
    known = contexts.load()
    name, selected = contexts.selected(connect.options.context, None)
    if name not in known.by_name:
        stop("there is no context to change; sign in with `moorage login`")
    with Client(selected.url, token=selected.token, organization=org.organization_id) as client:
        acting = client.identity.whoami().org_id
    if acting != org.organization_id:
        stop(f"the API token of context {name} acts on organization {acting} only; sign in with a session instead")
    known.by_name[name].organization = org.organization_id
    contexts.save(known)
    note(f"context {name} acts on {plain(org.name)} ({org.organization_id}) as {org.role}")
