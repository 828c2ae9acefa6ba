"""Login with an identity provider: which ones a platform has, the session, and the terms of the first login."""

from __future__ import annotations

import sys

import typer

from moorage.cli.output.terminal import is_terminal, note, plain, stop
from moorage.cli.session import connect
from moorage.cli.session.browser import Provider, sign_in
from moorage.cli.session.contexts import Context
from moorage.client import BadRequest, Client, ClientError, models


def find_provider(url: str, issuer: str | None, *, is_wanted: bool | None) -> Provider | None:
    """Return the identity provider to sign in at, or None for a login with a token.

    Without `--browser` it is used on a terminal only, and a platform that does not list providers has none.
    """
    is_wanted = True if issuer is not None and is_wanted is None else is_wanted
    if is_wanted is False or (is_wanted is None and not is_terminal(sys.stdin)):
        return None
    try:
        with Client(url, token="", organization="", retries=connect.RETRIES) as client:
            listed = client.identity.read_sign_in_methods().providers
    except ClientError:
        if is_wanted:
            raise
        return None
    known = [Provider(each.issuer, each.client_id) for each in listed]
    if issuer is not None:
        known = [each for each in known if each.issuer.rstrip("/") == issuer.rstrip("/")]
    if not known:
        if is_wanted:
            others = ", ".join(plain(each.issuer) for each in listed) or "none"
            stop(f"{url} has no such identity provider (it has: {others}); use an API token: moorage login --token")
        return None
    return known[0] if len(known) == 1 or not is_terminal(sys.stdin) else _choose(known)


def _choose(providers: list[Provider]) -> Provider:
    for number, each in enumerate(providers, start=1):
        note(f"  {number}  {plain(each.issuer)}")
    chosen: int = typer.prompt("Identity provider", type=int, default=1, err=True)
    if not 1 <= chosen <= len(providers):
        stop(f"there is no provider {chosen}", 2)
    return providers[chosen - 1]


def log_in(url: str, provider: Provider, *, port: int, timeout_s: float, accept_terms: bool) -> Context:
    """Sign in in the browser, and return the context of the session."""
    id_token = sign_in(provider, port=port, timeout_s=timeout_s)
    with Client(url, token="", organization="", retries=connect.RETRIES) as client:
        login = _log_in(client, id_token, accept_terms=accept_terms)
    if login.user.approval_status != "approved":
        note(
            f"your account is {plain(login.user.approval_status)}: an operator has to approve it before you can use it"
        )
    with Client(url, token=login.access_token, organization="", retries=connect.RETRIES) as client:
        mine = client.identity.me().organizations
    if len(mine) > 1:
        note("you belong to several organizations; `moorage orgs use` chooses another one", "dim")
    return Context(url, login.access_token, mine[0].organization_id if mine else "")


def _log_in(client: Client, id_token: str, *, accept_terms: bool) -> models.LoginResult:
    """Log in; a first login asks for the terms, unless they were accepted by an option."""
    try:
        return client.identity.social_login(auth_secret=id_token, terms_accepted=accept_terms)
    except BadRequest as error:
        if "terms_accepted" not in error.fields or accept_terms:
            raise
        if not is_terminal(sys.stdin):
            stop("the first login has to accept the terms of the platform; add --accept-terms")
    if not typer.confirm("Do you accept the terms of the platform?", err=True):
        stop("not signed in: the first login has to accept the terms")
    return client.identity.social_login(auth_secret=id_token, terms_accepted=True)
