"""`moorage login`, `logout` and `whoami`."""

from __future__ import annotations

import sys
from typing import Annotated
from urllib.parse import urlsplit

import typer

from moorage import __version__
from moorage.cli.help import single
from moorage.cli.output.tables import JsonOption, show_one
from moorage.cli.output.terminal import is_terminal, note, say, stop
from moorage.cli.session import connect, contexts
from moorage.cli.session.contexts import Context
from moorage.client import DEFAULT_URL, Client

app = single()

NameOption = Annotated[str | None, typer.Option("--name", help="Name of the context; default: the platform's host.")]


@app.command("login")
def _login(
    url: Annotated[str | None, typer.Argument(help=f"Address of the platform; default: {DEFAULT_URL}.")] = None,
    demo: Annotated[bool, typer.Option("--demo", help="Sign in as the demo user, in development.")] = False,
    browser: Annotated[
        bool | None,
        typer.Option("--browser/--token", help="Sign in in the browser, or with an API token; default: see above."),
    ] = None,
    issuer: Annotated[str | None, typer.Option("--issuer", help="Identity provider, where there are several.")] = None,
    port: Annotated[int, typer.Option("--port", help="Loopback port for the browser; default: any.")] = 0,
    timeout: Annotated[int, typer.Option("--timeout", min=1, help="Seconds to wait for the browser.")] = 300,
    accept_terms: Annotated[bool, typer.Option("--accept-terms", help="Accept the terms at the first login.")] = False,
    name: NameOption = None,
) -> None:
    """Sign in to a platform and store the credential.

    On a terminal the browser opens where the platform has an identity provider. Otherwise the command asks for an API
    token, or reads it from standard input. The credential is stored in a file that only you can read, and becomes the
    current context.

    Examples: `moorage login --demo`, `moorage login https://moorage.example.com`, `moorage login
    https://moorage.example.com --token < token-file`.
    """
    address = normal_url(url or connect.selected().url)
    if demo:
        context = _demo(address)
    else:
        from moorage.cli.session import social

        provider = social.find_provider(address, issuer, is_wanted=browser)
        if provider is None:
            context = Context(address, _read_token(address))
        else:
            context = social.log_in(address, provider, port=port, timeout_s=timeout, accept_terms=accept_terms)
    _store(context, name or urlsplit(address).netloc)


def normal_url(text: str) -> str:
    """Return an address with a scheme and without a trailing slash; https unless it is this machine."""
    if "://" not in text:
        host = text.partition("/")[0].partition(":")[0]
        text = f"{'http' if host in ('localhost', '127.0.0.1') else 'https'}://{text}"
    return text.rstrip("/")


def _demo(url: str) -> Context:
    with Client(url, token="", organization="", retries=connect.RETRIES) as client:
        login = client.identity.demo_login()
    return Context(url, login.token, login.organization_id)


def _read_token(url: str) -> str:
    if is_terminal(sys.stdin):
        note(f"Create an API token in the console at {url}, or with `moorage admin token` on the platform's machine.")
        token: str = typer.prompt("API token", hide_input=True, err=True)
    else:
        token = sys.stdin.readline()
    if not token.strip():
        stop("no token was given")
    return token.strip()


def _store(context: Context, name: str) -> None:
    """Check a credential, store it and make it the current context."""
    with Client(context.url, token=context.token, organization=context.organization) as client:
        me = client.identity.whoami()
    known = _load()
    known.by_name[name] = context
    known.current = name
    path = contexts.save(known)
    say(f"signed in to {context.url}, organization {me.org_name} ({me.org_id}) as {me.role}")
    note(f"stored as context {name} in {path}", "dim")


def _load() -> contexts.Contexts:
    try:
        return contexts.load()
    except contexts.BadContextFile as error:
        stop(str(error))


@app.command("logout")
def _logout(
    name: Annotated[str | None, typer.Argument(help="Name of the context; default: the current one.")] = None,
) -> None:
    """Forget the credential of a context."""
    known = _load()
    name = name or known.current
    if name not in known.by_name:
        stop(f"there is no context {name}" if name else "not signed in")
    del known.by_name[name]
    if known.current == name:
        known.current = next(iter(known.by_name), "")
    contexts.save(known)
    say(f"forgot context {name}")


@app.command("whoami")
def _whoami(as_json: JsonOption = False) -> None:
    """Show the platform, the user, the organization and the role."""
    client = connect.client()
    me, health = client.identity.whoami(), client.platform.health()
    pairs = [
        ("platform", f"{client.transport.url}, version {health.version}"),
        ("client", __version__),
        ("user", me.user_id),
        ("organization", f"{me.org_name} ({me.org_id})"),
        ("role", me.role),
    ]
    show_one(me, pairs, as_json=as_json)
