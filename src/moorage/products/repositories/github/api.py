"""Calls to GitHub: as the app, which signs with its key, and as a user who authorized the app."""

from __future__ import annotations

from typing import Any

from joserfc import jwt
from joserfc.errors import JoseError
from joserfc.jwk import RSAKey

from moorage.core.kit.clock import Clock
from moorage.errors import Internal
from moorage.settings import Settings

CALL_S = 15
PAGE = 100
MOST_PAGES = 50  # of installations that one user can see


class GithubUnavailable(Internal):
    """GitHub, or the operator's settings of its app, do not work now; the message is for the user."""


class GithubApi:
    def __init__(self, settings: Settings, clock: Clock) -> None:
        self._settings = settings
        self._clock = clock

    @property
    def is_configured(self) -> bool:
        """Whether there is an app that can read private repositories."""
        return bool(self._settings.github_app_id and self._settings.github_app_key.get_secret_value())

    @property
    def can_connect(self) -> bool:
        """Whether organizations can prove that an installation is theirs."""
        has_secret = bool(self._settings.github_client_secret.get_secret_value())
        return self.is_configured and bool(self._settings.github_client_id) and has_secret

    async def as_app(self, method: str, path: str, body: dict[str, Any] | None = None) -> tuple[int, Any]:
        """Return status and JSON of a call that the app itself makes; raises GithubUnavailable."""
        status, found = await self._call(method, self._api(path), token=self._signature(), json=body)
        if status in (401, 403):
            raise _refused(status)
        return status, found

    async def as_user(self, token: str, path: str) -> tuple[int, Any]:
        """Return status and JSON of a call in the name of a user; raises GithubUnavailable."""
        return await self._call("GET", self._api(path), token=token)

    async def exchange(self, code: str) -> str | None:
        """Return the user token that a code stands for, or None where GitHub does not accept it."""
        url = self._settings.codehost_url.rstrip("/") + "/login/oauth/access_token"
        fields = {
            "client_id": self._settings.github_client_id,
            "client_secret": self._settings.github_client_secret.get_secret_value(),
            "code": code,
        }
        status, found = await self._call("POST", url, json=fields)
        if status != 200:
            raise _refused(status)
        token = found.get("access_token") if isinstance(found, dict) else None
        return token if isinstance(token, str) and token else None

    async def installations(self, token: str) -> list[Any]:
        """Return every installation of the app that a user has access to; raises GithubUnavailable."""
        seen: list[Any] = []
        for page in range(1, MOST_PAGES + 1):
            status, found = await self.as_user(token, f"/user/installations?per_page={PAGE}&page={page}")
            some = found.get("installations") if isinstance(found, dict) else None
            if status != 200 or not isinstance(some, list):
                raise _refused(status)
            seen += some
            if len(some) < PAGE:
                break
        return seen

    async def _call(
        self, method: str, url: str, *, token: str | None = None, json: dict[str, Any] | None = None
    ) -> tuple[int, Any]:
        import aiohttp  # It takes 0.1 s to load, and most platforms have no such app.

        headers = {"Accept": "application/json", "User-Agent": "Moorage", "X-GitHub-Api-Version": "2022-11-28"}
        if token is not None:
            headers |= {"Accept": "application/vnd.github+json", "Authorization": f"Bearer {token}"}
        timeout = aiohttp.ClientTimeout(total=CALL_S)
        try:
            async with aiohttp.ClientSession(timeout=timeout) as session:
                async with session.request(method, url, json=json, headers=headers, allow_redirects=False) as answer:
                    status = answer.status
                    found = await answer.json(content_type=None) if status < 300 else None
        except (aiohttp.ClientError, TimeoutError, ValueError):
            raise GithubUnavailable("GitHub's API cannot be reached; try again") from None
        if status == 429 or status >= 500:
            raise _refused(status)
        return status, found

    def _api(self, path: str) -> str:
        return self._settings.codehost_api_url.rstrip("/") + path

    def _signature(self) -> str:
        """Sign who we are, for a few minutes; a minute back, because clocks differ."""
        now_s = self._clock.now() // 1000
        claims = {"iat": now_s - 60, "exp": now_s + 540, "iss": self._settings.github_app_id}
        # Written into a variable, the lines of the key are often joined by `\n`.
        pem = self._settings.github_app_key.get_secret_value().replace("\\n", "\n")
        try:
            return jwt.encode({"alg": "RS256"}, claims, RSAKey.import_key(pem), algorithms=["RS256"])
        except (JoseError, ValueError, TypeError):
            raise GithubUnavailable("the operator's MOORAGE_GITHUB_APP_KEY is no RSA key in PEM form") from None


def _refused(status: int) -> GithubUnavailable:
    return GithubUnavailable(f"GitHub's API refused with status {status}; try again, or ask your operator")
