"""Access to private repositories through the operator's GitHub app.

The app authenticates with a JWT (RS256), looks up its installation, and gets a token that reads one repository for an
hour. An installation serves only organizations that proved to be administrator of its account: see `bindings.py`.
Neither a slug nor being the first to ask gives access.
"""

from __future__ import annotations

import base64
import re
from datetime import datetime
from functools import partial
from typing import Any

from moorage.accounts.webhooks.service import GithubEvent
from moorage.core.db.scope import across_organizations
from moorage.core.db.store import Database
from moorage.core.db.tx import Tx
from moorage.core.kit.clock import MINUTE_MS
from moorage.core.kit.records import dataclass
from moorage.products.repositories import tables
from moorage.products.repositories.github import bindings
from moorage.products.repositories.github.api import GithubApi, GithubUnavailable
from moorage.products.repositories.github.bindings import Installed, read_installation
from moorage.products.repositories.names import Name
from moorage.products.repositories.tables import Binding

MIN_TOKEN_LIFETIME_MS = 5 * MINUTE_MS  # A token must stay valid until the end of a fetch.
_TOKEN = re.compile(r"[A-Za-z0-9_.-]{1,1000}")


@dataclass(frozen=True, slots=True)
class _Token:
    value: str
    expires_at: int


class GithubApp:
    def __init__(self, db: Database) -> None:
        self._db = db
        self._api = GithubApi(db.env.settings, db.env.clock)
        self._tokens: dict[tuple[int, Name], _Token] = {}

    async def find_token(self, org_id: int, name: Name) -> str | None:
        """Return a token that reads one repository; None without access.

        Raises GithubUnavailable.
        """
        if not self._api.is_configured:
            return None
        binding = await self._db.read(partial(bindings.find_of_account, org_id=org_id, account=name.owner))
        token = await self._token(binding, name) if binding is not None else None
        return token if token is not None else await self._look_up(org_id, name, binding)

    async def _look_up(self, org_id: int, name: Name, tried: Binding | None) -> str | None:
        """Return a token through a bound installation of an account that was renamed."""
        status, value = await self._api.as_app("GET", f"/repos/{name}/installation")
        installed = read_installation(value) if status == 200 else None
        if installed is None or (tried is not None and installed.number == tried.installation_id):
            return None
        binding = await self._db.read(partial(bindings.find, org_id=org_id, number=installed.number))
        return await self._token(binding, name) if binding is not None else None

    async def _token(self, binding: Binding, name: Name) -> str | None:
        key, now = (binding.installation_id, name.key), self._db.env.clock.now()
        cached = self._tokens.get(key)
        if cached is not None and cached.expires_at - MIN_TOKEN_LIFETIME_MS > now:
            return cached.value
        body = {"repositories": [name.name], "permissions": {"contents": "read"}}
        path = f"/app/installations/{binding.installation_id}/access_tokens"
        status, value = await self._api.as_app("POST", path, body)
        if status != 201:
            return None  # The app was uninstalled, or has no access to this repository.
        token = _read_token(value)
        self._tokens = {each: cached for each, cached in self._tokens.items() if cached.expires_at > now}
        self._tokens[key] = token
        return token.value


def as_basic(token: str) -> str:
    """Return the basic credentials of an installation's token for git."""
    return base64.b64encode(f"x-access-token:{token}".encode()).decode()


@across_organizations("the event names a GitHub account, not an organization")
def on_installation(tx: Tx, event: GithubEvent) -> None:
    """Update the installations; end bindings of a removed one (`installation` event)."""
    installed = read_installation(event.payload.get("installation"))
    if installed is None:
        return
    if event.action == "deleted" or installed.is_suspended:
        bindings.end_all(tx, installed, "uninstalled" if event.action == "deleted" else "suspended")
    if event.action == "deleted":
        tx.run(tables.DELETE_INSTALLATION, login_key=installed.login.lower(), number=installed.number)
        return
    _put_installation(tx, installed)


@across_organizations("an installation belongs to a GitHub account, not to an organization")
def _put_installation(tx: Tx, installed: Installed) -> None:
    key = installed.login.lower()
    added = tx.find(
        tables.ADD_INSTALLATION,
        login=installed.login,
        login_key=key,
        installation_id=installed.number,
        suspended=installed.is_suspended,
        org_id=None,
        created_at=tx.now,
        updated_at=tx.now,
    )
    if added is None:
        values = {"shown": installed.login, "number": installed.number, "stopped": installed.is_suspended}
        tx.run(tables.SET_INSTALLATION, login_key=key, now=tx.now, **values)


def _read_token(value: Any) -> _Token:
    try:
        token, expires = str(value["token"]), datetime.fromisoformat(str(value["expires_at"]))
    except (TypeError, KeyError, ValueError):
        raise GithubUnavailable("GitHub's API gave no token") from None
    if not _TOKEN.fullmatch(token) or expires.tzinfo is None:
        raise GithubUnavailable("GitHub's API gave no token")
    return _Token(token, int(expires.timestamp() * 1000))
