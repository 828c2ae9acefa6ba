"""Private repositories of the code host, read through a GitHub app that the operator registered.

The app signs who it is (RS256), asks where it is installed, and gets a token that reads one repository for an hour.

An installation says nothing of who on this platform may use it. So it serves one organization: the one whose slug is
the account's name, else the first that asks for a private repository of it. Nobody else can read through it, until it
is uninstalled or that organization is deleted.
"""

from __future__ import annotations

import base64
import re
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import Any

from joserfc import jwt
from joserfc.errors import JoseError
from joserfc.jwk import RSAKey

from moorage.db.scope import across_organizations
from moorage.db.store import Database
from moorage.db.tx import Tx
from moorage.identity import orgs
from moorage.kit.clock import MINUTE_MS
from moorage.repositories import tables
from moorage.repositories.names import Name, parse_name
from moorage.repositories.tables import Installation
from moorage.webhooks.service import GithubEvent

CALL_S = 15
SPARE_MS = 5 * MINUTE_MS  # A fetch that starts with a token should also end with it.
_TOKEN = re.compile(r"[A-Za-z0-9_.-]{1,1000}")


class GithubUnavailable(Exception):
    """GitHub, or the operator's settings of its app, do not work now; the message is for the user."""


@dataclass(frozen=True, slots=True)
class _Token:
    value: str
    expires_at: int


class GithubApp:
    def __init__(self, db: Database) -> None:
        self._db = db
        self._settings = db.env.settings
        self._tokens: dict[tuple[int, Name], _Token] = {}

    @property
    def is_configured(self) -> bool:
        return bool(self._settings.github_app_id and self._settings.github_app_key.get_secret_value())

    async def find_token(self, org_id: int, name: Name) -> str | None:
        """Return a token that reads one repository, or None where the organization may not have one.

        Raises GithubUnavailable.
        """
        if not self.is_configured:
            return None
        known = await self._db.read(partial(find_installation, org_id=org_id, account=name.owner))
        if known is not None:
            token = await self._token(org_id, name, known)
            if token is not None:
                return token
        return await self._look_up(org_id, name, known)

    async def _look_up(self, org_id: int, name: Name, known: Installation | None) -> str | None:
        """Ask GitHub where the app is installed, for when no event told us."""
        status, found = await self._call("GET", f"/repos/{name}/installation")
        if status != 200:
            return None
        said = _read_installation(found)
        if said is None or (known is not None and said.number == known.installation_id):
            return None
        await self._db.write(partial(_put_installation, said=said))
        installed = await self._db.read(partial(find_installation, org_id=org_id, account=name.owner))
        return await self._token(org_id, name, installed) if installed is not None else None

    async def _token(self, org_id: int, name: Name, installed: Installation) -> str | None:
        if installed.suspended or not await self._db.write(partial(claim, org_id=org_id, account=name.owner)):
            return None
        place, now = (installed.installation_id, name.key), self._db.env.clock.now()
        kept = self._tokens.get(place)
        if kept is not None and kept.expires_at - SPARE_MS > now:
            return kept.value
        body = {"repositories": [name.name], "permissions": {"contents": "read"}}
        status, found = await self._call("POST", f"/app/installations/{installed.installation_id}/access_tokens", body)
        if status != 201:
            return None  # Uninstalled meanwhile, or not for this repository.
        token = _read_token(found)
        self._tokens = {key: each for key, each in self._tokens.items() if each.expires_at > now}
        self._tokens[place] = token
        return token.value

    async def _call(self, method: str, path: str, body: dict[str, Any] | None = None) -> tuple[int, Any]:
        import aiohttp  # It takes 0.1 s to load, and most platforms have no such app.

        headers = {
            "Accept": "application/vnd.github+json",
            "Authorization": f"Bearer {self._signature()}",
            "User-Agent": "Moorage",
            "X-GitHub-Api-Version": "2022-11-28",
        }
        url, timeout = self._settings.codehost_api_url.rstrip("/") + path, aiohttp.ClientTimeout(total=CALL_S)
        try:
            async with aiohttp.ClientSession(timeout=timeout) as session:
                async with session.request(method, url, json=body, headers=headers, allow_redirects=False) as answer:
                    status = answer.status
                    found = await answer.json(content_type=None) if status < 300 else None
        except (aiohttp.ClientError, TimeoutError, ValueError):
            raise GithubUnavailable("GitHub's API cannot be reached; try again") from None
        if status in (401, 403, 429) or status >= 500:
            raise GithubUnavailable(f"GitHub's API refused with status {status}; try again, or ask your operator")
        return status, found

    def _signature(self) -> str:
        """Sign who we are, for a few minutes; a minute back, because clocks differ."""
        now_s = self._db.env.clock.now() // 1000
        claims = {"iat": now_s - 60, "exp": now_s + 540, "iss": self._settings.github_app_id}
        # Written into a variable, the lines of the key are often joined by `\n`.
        pem = self._settings.github_app_key.get_secret_value().replace("\\n", "\n")
        try:
            return jwt.encode({"alg": "RS256"}, claims, RSAKey.import_key(pem), algorithms=["RS256"])
        except (JoseError, ValueError, TypeError):
            raise GithubUnavailable("the operator's MOORAGE_GITHUB_APP_KEY is no RSA key in PEM form") from None


def as_basic(token: str) -> str:
    """Return the credentials that git sends with an installation's token."""
    return base64.b64encode(f"x-access-token:{token}".encode()).decode()


@dataclass(frozen=True, slots=True)
class _Said:
    """What GitHub says of an installation."""

    login: str
    number: int
    suspended: bool


def find_installation(tx: Tx, org_id: int, account: str) -> Installation | None:
    """Return the installation for an account, unless it serves another organization."""
    found = tx.find(tables.FIND_INSTALLATION, login_key=account.lower())
    return found if found is not None and found.org_id in (None, org_id) else None


def claim(tx: Tx, org_id: int, account: str) -> bool:
    """Let an installation serve the organization from now on; False where it serves, or is due to, another one."""
    found = find_installation(tx, org_id, account)
    if found is None:
        return False
    if found.org_id is None:
        named = orgs.find_by_slug(tx, account.lower())
        if named is not None and named.id != org_id:
            return False
        tx.run(tables.CLAIM_INSTALLATION, login_key=account.lower(), org_id=org_id, now=tx.now)
    return True


@across_organizations("GitHub tells of accounts, not of organizations")
def on_installation(tx: Tx, event: GithubEvent) -> None:
    """Keep the table of installations; for the `installation` event."""
    said = _read_installation(event.payload.get("installation"))
    if said is None:
        return
    if event.action == "deleted":
        tx.run(tables.DELETE_INSTALLATION, login_key=said.login.lower(), number=said.number)
        return
    _put_installation(tx, said)


@across_organizations("whom an installation serves is decided when somebody needs it")
def _put_installation(tx: Tx, said: _Said) -> None:
    key = said.login.lower()
    added = tx.find(
        tables.ADD_INSTALLATION,
        login=said.login,
        login_key=key,
        installation_id=said.number,
        suspended=said.suspended,
        org_id=None,
        created_at=tx.now,
        updated_at=tx.now,
    )
    if added is None:
        values = {"shown": said.login, "number": said.number, "stopped": said.suspended}
        tx.run(tables.SET_INSTALLATION, login_key=key, now=tx.now, **values)


def _read_installation(value: Any) -> _Said | None:
    try:
        login, number, suspended_at = value["account"]["login"], value["id"], value.get("suspended_at")
    except (TypeError, KeyError, AttributeError):
        return None
    is_usable = isinstance(login, str) and parse_name(f"{login}/x") is not None and type(number) is int
    return _Said(login, number, suspended_at is not None) if is_usable and 0 < number < 2**63 else None


def _read_token(value: Any) -> _Token:
    try:
        token, expires = str(value["token"]), datetime.fromisoformat(str(value["expires_at"]))
    except (TypeError, KeyError, ValueError):
        raise GithubUnavailable("GitHub's API gave no token") from None
    if not _TOKEN.fullmatch(token) or expires.tzinfo is None:
        raise GithubUnavailable("GitHub's API gave no token")
    return _Token(token, int(expires.timestamp() * 1000))
