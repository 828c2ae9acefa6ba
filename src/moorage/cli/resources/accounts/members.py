"""`moorage members`: members of the organization and invitations."""

from __future__ import annotations

from difflib import get_close_matches
from typing import Annotated

import typer
from msgspec import UNSET

from moorage.cli.help import GroupedCommands, group
from moorage.cli.output.asking import YesOption, confirm
from moorage.cli.output.tables import Column, JsonOption, show_json, show_list
from moorage.cli.output.terminal import plain, say, stop
from moorage.cli.output.words import ago, state_style
from moorage.cli.resources.accounts.tokens import Role
from moorage.cli.session import connect
from moorage.client import Client, models

app = group("Members of the organization, and invitations.")
invitations = typer.Typer(
    cls=GroupedCommands, no_args_is_help=True, help="Invitations: yours, and of the organization."
)
app.add_typer(invitations, name="invitations")

Member = Annotated[str, typer.Argument(metavar="MEMBER", help="Mail address or user id of the member.")]
Invitation = Annotated[int, typer.Argument(metavar="ID", help="Id, from `moorage members invitations list`.")]


@app.command("list")
def list_members(as_json: JsonOption = False) -> None:
    """List the members of the organization with their roles.

    Example: `moorage members list`.
    """
    client = connect.client()
    columns = [
        Column("USER", lambda row: row.user_id),
        Column("MAIL", lambda row: row.email),
        Column("NAME", lambda row: row.name),
        Column("ROLE", lambda row: row.role),
        Column("JOINED", lambda row: ago(row.joined_at)),
    ]
    show_list(client.organizations.list_members(_org(client)), columns, as_json=as_json, empty="There are no members.")


def _org(client: Client) -> str:
    return client.identity.whoami().org_id


@app.command("invite")
def invite(
    email: Annotated[str, typer.Argument(help="Mail address of the user.")],
    role: Annotated[Role | None, typer.Option("--role", help="Role of the new member; default: member.")] = None,
    as_json: JsonOption = False,
) -> None:
    """Invite a user by mail address; the invitation is valid for seven days.

    Example: `moorage members invite grace@example.com --role admin`.
    """
    client = connect.client()
    sent = client.organizations.create_invitation(_org(client), email=email, role=UNSET if role is None else role)
    if as_json:
        show_json(sent)
    else:
        say(f"invited {plain(sent.email)} as {sent.role} (invitation {sent.id}), expires {ago(sent.expires_at)}")


@app.command("role")
def change_role(
    member: Member, role: Annotated[Role, typer.Argument(help="The new role.")], as_json: JsonOption = False
) -> None:
    """Change the role of a member. Only an owner makes or unmakes owners.

    Example: `moorage members role grace@example.com admin`.
    """
    client = connect.client()
    org = _org(client)
    changed = client.organizations.change_member(org, find_member(client, org, member).user_id, role=role)
    if as_json:
        show_json(changed)
    else:
        say(f"{plain(changed.email)} is {changed.role} now")


@app.command("remove")
def remove_member(member: Member, yes: YesOption = False) -> None:
    """Remove a member from the organization.

    Example: `moorage members remove grace@example.com`.
    """
    client = connect.client()
    org = _org(client)
    user = find_member(client, org, member)
    confirm(f"Remove {plain(user.email)} from the organization?", is_confirmed=yes)
    client.organizations.remove_member(org, user.user_id)
    say(f"removed {plain(user.email)}")


def find_member(client: Client, org: str, text: str) -> models.MemberOut:
    """Return a member by mail address or user id; exits with the closest match."""
    known = client.organizations.list_members(org)
    member = next((each for each in known if text.lower() in (each.email.lower(), str(each.user_id))), None)
    if member is None:
        near = get_close_matches(text, [each.email for each in known], n=1)
        hint = f"did you mean {plain(near[0])}?" if near else "`moorage members list` shows them"
        stop(f"there is no member {plain(text)}; {hint}")
    return member


@invitations.command("list")
def list_invitations(
    mine: Annotated[bool, typer.Option("--mine", help="Invitations to you, of any organization.")] = False,
    as_json: JsonOption = False,
) -> None:
    """List the pending invitations of the organization, or those to you.

    Examples: `moorage members invitations list`, `moorage members invitations list --mine`.
    """
    client = connect.client()
    organizations = client.organizations
    rows = organizations.list_my_invitations() if mine else organizations.list_invitations(_org(client))
    columns = [
        Column("ID", lambda row: row.id),
        Column("MAIL", lambda row: row.email),
        Column("ORGANIZATION", lambda row: row.organization_name),
        Column("ROLE", lambda row: row.role),
        Column("STATUS", lambda row: row.status, lambda row: state_style(row.status)),
        Column("EXPIRES", lambda row: ago(row.expires_at)),
    ]
    show_list(rows, columns, as_json=as_json, empty="There are no pending invitations.")


@invitations.command("accept")
def accept(invitation_id: Invitation) -> None:
    """Accept an invitation to you. Needs a session, not an API token.

    Example: `moorage members invitations accept 4`.
    """
    accepted = connect.client().organizations.accept_invitation(invitation_id)
    say(f"you are {accepted.role} of {plain(accepted.organization_name)} now")


@invitations.command("decline")
def decline(invitation_id: Invitation) -> None:
    """Decline an invitation to you. Needs a session, not an API token.

    Example: `moorage members invitations decline 4`.
    """
    declined = connect.client().organizations.decline_invitation(invitation_id)
    say(f"declined the invitation of {plain(declined.organization_name)}")


@invitations.command("revoke")
def revoke(invitation_id: Invitation) -> None:
    """Take back an invitation of the organization.

    Example: `moorage members invitations revoke 4`.
    """
    client = connect.client()
    client.organizations.revoke_invitation(_org(client), invitation_id)
    say(f"revoked invitation {invitation_id}")
