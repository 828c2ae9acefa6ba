"""`moorage domains`: custom domains of a project, with the DNS records to set."""

from __future__ import annotations

from typing import Annotated

import typer

from moorage.cli.help import group
from moorage.cli.output.asking import YesOption, confirm
from moorage.cli.output.progress import wait_for
from moorage.cli.output.tables import Column, JsonOption, show_json, show_list
from moorage.cli.output.terminal import is_terminal, note, paint, plain, say, stop
from moorage.cli.output.words import ago, state_style
from moorage.cli.session import completion, connect
from moorage.cli.session.names import ProjectArgument
from moorage.client import Client, models

app = group("Custom domains of a project.")

Domain = Annotated[
    str,
    typer.Argument(
        help="The domain, such as www.example.com.", autocompletion=completion.of_project("domains", "domain")
    ),
]


@app.command("list")
def list_domains(name: ProjectArgument, as_json: JsonOption = False) -> None:
    """List the custom domains of a project.

    Example: `moorage domains list shop`.
    """
    columns = [
        Column("DOMAIN", lambda row: row.domain),
        Column("STATUS", lambda row: row.status, lambda row: state_style(row.status)),
        Column("CERTIFICATE", lambda row: row.certificate_status, lambda row: state_style(row.certificate_status)),
        Column("VERIFIED", lambda row: ago(row.verified_at)),
        Column("PROBLEM", lambda row: row.last_error),
    ]
    empty = f"There are no domains; add one with `moorage domains add {name} www.example.com`."
    show_list(connect.client().domains.list(name), columns, as_json=as_json, empty=empty)


@app.command("add")
def add_domain(
    name: ProjectArgument,
    domain: Annotated[str, typer.Argument(help="The domain, such as www.example.com.")],
    as_json: JsonOption = False,
) -> None:
    """Add a domain to a project, and print the DNS records to set.

    The records are on standard output, one per line in the form of a zone file. The domain is served after
    `moorage domains verify` finds one of them.

    Example: `moorage domains add shop www.example.com`.
    """
    added = connect.client().domains.add(name, domain=domain)
    if as_json:
        show_json(added)
        return
    show_records(added)
    note(f"then run `moorage domains verify {plain(name)} {plain(added.domain)} --wait`", "dim")


@app.command("records")
def print_records(name: ProjectArgument, domain: Domain, as_json: JsonOption = False) -> None:
    """Print the DNS records of a domain again.

    Example: `moorage domains records shop www.example.com`.
    """
    custom_domain = find_domain(connect.client(), name, domain)
    if as_json:
        show_json(custom_domain.records)
    else:
        show_records(custom_domain)


def show_records(domain: models.CustomDomain) -> None:
    """Print the records of a domain as lines of a zone file."""
    if is_terminal():
        note(f"Set one of these records in the DNS of {plain(domain.domain)}:", "bold")
    for record in domain.records:
        value = f'"{plain(record.value)}"' if record.type == "TXT" else plain(record.value)
        value += "." if record.type == "CNAME" and not value.endswith(".") else ""
        say(f"{plain(record.name)}. 300 IN {paint(plain(record.type), 'cyan')} {value}")


def find_domain(client: Client, name: str, domain: str) -> models.CustomDomain:
    """Return a domain of a project; exits with those that exist."""
    known = client.domains.list(name)
    wanted = domain.lower().rstrip(".")
    custom_domain = next((each for each in known if wanted in (each.domain, str(each.id))), None)
    if custom_domain is None:
        names = ", ".join(each.domain for each in known) or "none"
        stop(f"{plain(name)} has no domain {plain(domain)}; its domains: {plain(names)}")
    return custom_domain


@app.command("verify")
def verify_domain(
    name: ProjectArgument,
    domain: Domain,
    wait: Annotated[bool, typer.Option("--wait", help="Check again until it is verified.")] = False,
    timeout: Annotated[int, typer.Option("--timeout", min=1, help="Seconds to wait.")] = 600,
    as_json: JsonOption = False,
) -> None:
    """Check the DNS records of a domain now; exits with code 1 if none is found.

    Examples: `moorage domains verify shop www.example.com`, `moorage domains verify shop www.example.com --wait`.
    """
    client = connect.client()
    custom_domain = find_domain(client, name, domain)

    def check() -> models.CustomDomain:
        return client.domains.verify(custom_domain.id)

    if wait:
        checked = wait_for(
            f"verifying {custom_domain.domain}",
            check,
            _progress_of,
            lambda each: each.status == "verified",
            limit_s=timeout,
        )
    else:
        checked = check()
    if as_json:
        show_json(checked)
    if checked.status != "verified":
        note(f"moorage: {plain(checked.domain)} is {plain(checked.status)}: {plain(checked.last_error or 'no record')}")
        note(f"  next: `moorage domains records {plain(name)} {plain(domain)}` prints the records to set")
        raise typer.Exit(1)
    if not as_json:
        say(f"{plain(checked.domain)} is verified")


def _progress_of(domain: models.CustomDomain) -> str:
    return f"{domain.status}, {domain.last_error}" if domain.last_error else domain.status


@app.command("remove")
def remove_domain(name: ProjectArgument, domain: Domain, yes: YesOption = False) -> None:
    """Release a domain: it is no longer served.

    Example: `moorage domains remove shop www.example.com`.
    """
    client = connect.client()
    custom_domain = find_domain(client, name, domain)
    confirm(f"Release {custom_domain.domain}? It is no longer served.", is_confirmed=yes)
    client.domains.delete(custom_domain.id)
    say(f"removed {plain(custom_domain.domain)}")
