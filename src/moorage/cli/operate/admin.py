"""`moorage admin`: operator commands for the running platform."""

from __future__ import annotations

from typing import Annotated

import typer

from moorage.cli.help import group
from moorage.cli.operate.socket import DataOption, ask

app = group("Operator commands: they need a running platform.")

Email = Annotated[str, typer.Argument(help="Mail address of the user.")]
Org = Annotated[str, typer.Argument(help="Id or slug of the organization.")]


@app.command("create-user")
def create_user(email: Email, data: DataOption = None) -> None:
    """Create an approved user with an organization."""
    user = ask(data, "create-user", email=email)
    typer.echo(f"created user {user['email']} (id {user['userId']}) with organization {user['organizationId']}")


@app.command()
def approve(email: Email, data: DataOption = None) -> None:
    """Approve a user that awaits approval."""
    typer.echo(f"approved {ask(data, 'approve', email=email)}")


@app.command()
def suspend(email: Email, data: DataOption = None) -> None:
    """Suspend a user: all their requests are refused from now on."""
    typer.echo(f"suspended {ask(data, 'suspend', email=email)}")


@app.command()
def unsuspend(email: Email, data: DataOption = None) -> None:
    """Lift the suspension of a user."""
    typer.echo(f"unsuspended {ask(data, 'unsuspend', email=email)}")


@app.command("suspend-organization")
def suspend_organization(org: Org, data: DataOption = None) -> None:
    """Suspend an organization: all requests to it are refused; its apps and functions keep running."""
    typer.echo(f"suspended {ask(data, 'suspend-organization', org=org)}")


@app.command("unsuspend-organization")
def unsuspend_organization(org: Org, data: DataOption = None) -> None:
    """Lift the suspension of an organization."""
    typer.echo(f"unsuspended {ask(data, 'unsuspend-organization', org=org)}")


@app.command("grant-operator")
def grant_operator(email: Email, data: DataOption = None) -> None:
    """Make a user an operator of the platform: their sessions may call /v1/operator."""
    typer.echo(f"{ask(data, 'grant-operator', email=email)} is an operator of the platform")


@app.command("revoke-operator")
def revoke_operator(email: Email, data: DataOption = None) -> None:
    """Take the operator role from a user."""
    typer.echo(f"{ask(data, 'revoke-operator', email=email)} is no operator any more")


@app.command()
def operators(data: DataOption = None) -> None:
    """List the operators of the platform."""
    emails = ask(data, "operators")
    typer.echo("\n".join(emails) if emails else "there are no operators; see: moorage admin grant-operator")


@app.command("verify-card")
def verify_card(org: Org, data: DataOption = None) -> None:
    """Mark an organization's payment method as verified."""
    typer.echo(f"verified the card of {ask(data, 'verify-card', org=org)}")


@app.command("unverify-card")
def unverify_card(org: Org, data: DataOption = None) -> None:
    """Mark an organization's payment method as not verified."""
    typer.echo(f"unverified the card of {ask(data, 'unverify-card', org=org)}")


@app.command("set-plan")
def set_plan(org: Org, plan: Annotated[str, typer.Argument(help="free or pro.")], data: DataOption = None) -> None:
    """Put an organization on a plan."""
    typer.echo(f"{ask(data, 'set-plan', org=org, plan=plan)} is on the plan {plan}")


@app.command()
def token(
    email: Annotated[str | None, typer.Argument(help="User; default: the demo user, or the first one.")] = None,
    org: Annotated[str | None, typer.Option(help="Id or slug of the organization; default: the oldest.")] = None,
    role: Annotated[str | None, typer.Option(help="viewer, member, admin or owner; default: the user's.")] = None,
    name: Annotated[str, typer.Option(help="Name the token is listed under.")] = "operator",
    data: DataOption = None,
) -> None:
    """Create an API token and print it, alone, on standard output."""
    typer.echo(ask(data, "token", email=email, org=org, role=role, name=name))


@app.command()
def session(email: Email, data: DataOption = None) -> None:
    """Print a session token for a user."""
    typer.echo(ask(data, "session", email=email))


@app.command("github-claims")
def github_claims(data: DataOption = None) -> None:
    """List GitHub installations that organizations claimed without proof in an earlier release."""
    rows = ask(data, "github-claims")
    if not rows:
        typer.echo("there are no claims without proof")
    for row in rows:
        slug = f" ({row['slug']})" if row["slug"] else ""
        typer.echo(
            f"{row['account']}  installation {row['installationId']}  claimed by organization "
            f"{row['organization']}{slug}: gives no access until an admin of it connects the account"
        )
