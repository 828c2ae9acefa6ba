"""Routes that connect GitHub accounts: begin, authorize at GitHub, finish."""

from __future__ import annotations

import re
from functools import partial
from html import escape
from urllib.parse import urlencode

from moorage.accounts.identity.caller import Caller
from moorage.accounts.identity.roles import Role
from moorage.core.db.store import Database
from moorage.core.db.tx import Tx
from moorage.core.env import Env
from moorage.core.http.answer import Answer
from moorage.core.http.idempotency.once import Write
from moorage.core.http.pages import style
from moorage.core.http.route import Router, Scope
from moorage.core.kit.clock import to_wire
from moorage.errors import Conflict
from moorage.products.repositories.github import bindings, setup_state
from moorage.products.repositories.github.api import GithubApi, GithubUnavailable
from moorage.products.repositories.github.schemas import (
    ConnectInstallationInput,
    InstallationOut,
    SetupBegun,
    SetupQuery,
)

CALLBACK = "/v1/github/callback"
# The page shows these texts inside a shell command, so shell metacharacters are rejected.
_WORD = re.compile(r"[A-Za-z0-9_.-]{1,1024}")
_NUMBER = re.compile(r"[0-9]{0,19}")
_PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<title>Moorage: connect a GitHub account</title>
<style>{style}</style></head>
<body><main class="card"><h1>Connect a GitHub account</h1>{body}</main></body></html>
"""
_FINISH = """<p>To finish, run this within ten minutes with the credential that began:</p><pre>{command}</pre>
<p>Do not send this command to anybody: with it, their organization could read your private repositories. If you
did not begin this yourself, close this page; nothing was changed.</p>"""
_INCOMPLETE = """<p>This address is not complete or has expired. Begin again with
<code>POST /v1/github/installations/begin</code>; nothing was changed.</p>"""


def make_router(db: Database) -> Router:
    router = Router("GitHub")
    env = db.env
    api = GithubApi(env.settings, env.clock)

    @router.get("/github/installations")
    def list_installations(tx: Tx, caller: Caller) -> list[InstallationOut]:
        """List the connected GitHub accounts, which give access to private repositories."""
        return [InstallationOut.of(binding) for binding in bindings.all_of(tx, caller.org_id)]

    @router.post("/github/installations/begin", min_role=Role.ADMIN, secret=True)
    async def begin_installation(caller: Caller) -> SetupBegun:
        """Begin to connect a GitHub account: open the returned URL within 15 minutes.

        `url` installs the app; `authorizeUrl` is for an account that has installed it. The page after GitHub's redirect
        shows the command that finishes, which works only for the user and organization that began.
        """
        _check_configured(api)
        page = await _app_page(api)
        return _begun(env, page, *setup_state.make(env, caller.org_id, caller.user_id))

    @router.get("/github/callback", scope=Scope.PUBLIC, is_page=True)
    def show_callback(query: SetupQuery) -> Answer:
        """Show how to finish connecting a GitHub account; target of GitHub's redirect.

        It changes nothing.
        """
        sheet = style.sheet("moorage.products.repositories.github", "callback.css")
        return style.answer(_PAGE.format(style=sheet, body=_callback(env, query)), sheet)

    @router.post("/github/installations", min_role=Role.ADMIN)
    async def connect_installation(caller: Caller, body: ConnectInstallationInput, write: Write) -> InstallationOut:
        """Finish connecting a GitHub account with the state and code of GitHub's redirect.

        The same user must begin and finish, and the GitHub user must own the account.
        """
        _check_configured(api)
        redeem = partial(bindings.redeem, org_id=caller.org_id, user_id=caller.user_id, text=body.state)
        await db.write(redeem)
        proof = await bindings.prove(api, body.code, body.installation_id)
        return await write(lambda tx: InstallationOut.of(bindings.bind(tx, caller.org_id, caller.as_actor, proof)))

    @router.delete("/github/installations/{installation_id}", min_role=Role.ADMIN)
    def disconnect_installation(tx: Tx, caller: Caller, installation_id: int) -> None:
        """Disconnect a GitHub account; its private repositories cannot be read any more."""
        bindings.unbind(tx, caller.org_id, caller.as_actor, installation_id)

    return router


def _check_configured(api: GithubApi) -> None:
    if not api.can_connect:
        raise Conflict(
            "GitHub accounts cannot be connected: the operator has not set MOORAGE_GITHUB_APP_ID, "
            "MOORAGE_GITHUB_APP_KEY, MOORAGE_GITHUB_CLIENT_ID and MOORAGE_GITHUB_CLIENT_SECRET"
        )


async def _app_page(api: GithubApi) -> str:
    status, app = await api.as_app("GET", "/app")
    page = app.get("html_url") if status == 200 and isinstance(app, dict) else None
    if not isinstance(page, str) or not page.startswith(("https://", "http://")):
        raise GithubUnavailable("GitHub's API did not return the app's installation page; ask your operator")
    return page.rstrip("/")


def _begun(env: Env, page: str, state: str, expires_at: int) -> SetupBegun:
    settings = env.settings
    fields = {"client_id": settings.github_client_id, "redirect_uri": settings.api_url + CALLBACK, "state": state}
    authorize = f"{settings.codehost_url.rstrip('/')}/login/oauth/authorize?{urlencode(fields)}"
    return SetupBegun(f"{page}/installations/new?{urlencode({'state': state})}", authorize, to_wire(expires_at))


def _callback(env: Env, query: SetupQuery) -> str:
    is_valid = _WORD.fullmatch(query.state) and _WORD.fullmatch(query.code) and _NUMBER.fullmatch(query.installation_id)
    state = setup_state.read(env, query.state) if is_valid else None
    if state is None or not state.is_current(env.clock.now()):
        return _INCOMPLETE
    number = f', "installationId": {int(query.installation_id)}' if query.installation_id else ""
    body = f'{{"state": "{query.state}", "code": "{query.code}"{number}}}'
    command = (
        f'curl -X POST {env.settings.api_url}/v1/github/installations -H "Authorization: Bearer $TOKEN" '
        f"-H 'X-Organization-Id: {state.org_id}' -H 'Content-Type: application/json' -d '{body}'"
    )
    return _FINISH.format(command=escape(command))
