"""Client of GitHub's API, as the app and as an authorized user."""

from __future__ import annotations

import json
from typing import Any

from joserfc import errors, jwk, jwt

from moorage.core.kit.clock import Clock
from moorage.core.net.calls import OutboundError
from moorage.core.net.client import GuardedClient
from moorage.core.net.targets import OPERATOR_TARGETS, TargetRefused
from moorage.errors import Internal
from moorage.settings import Settings

REQUEST_TIMEOUT_S = 15
PAGE_SIZE = 100
MAX_RESPONSE_BYTES = 16 * 2**20
MAX_PAGES = 50  # of the installations of one user


class GithubUnavailable(Internal):
    """GitHub's API or the configuration of the app fails; the message is for the user."""


class GithubApi:
    def __init__(self, settings: Settings, clock: Clock) -> None:
        self._settings = settings
        self._clock = clock

    @property
    def is_configured(self) -> bool:
        """The operator configured an app that can read private repositories."""
        return bool(self._settings.github_app_id and self._settings.github_app_key.get_secret_value())

    @property
    def can_connect(self) -> bool:
        """The configuration allows organizations to prove ownership of an installation."""
        has_secret = bool(self._settings.github_client_secret.get_secret_value())
        return self.is_configured and bool(self._settings.github_client_id) and has_secret

    async def as_app(self, method: str, path: str, body: dict[str, Any] | None = None) -> tuple[int, Any]:
        """Return status and JSON of a call as the app; raises GithubUnavailable."""
        status, value = await self._call(method, self._api(path), token=self._signature(), fields=body)
        if status in (401, 403):
            raise _refused(status)
        return status, value

    async def as_user(self, token: str, path: str) -> tuple[int, Any]:
        """Return status and JSON of a call as a user; raises GithubUnavailable."""
        return await self._call("GET", self._api(path), token=token)

    async def exchange(self, code: str) -> str | None:
        """Exchange an OAuth code for a user token; None if GitHub rejects the code."""
        url = self._settings.codehost_url.rstrip("/") + "/login/oauth/access_token"
        fields = {
            "client_id": self._settings.github_client_id,
            "client_secret": self._settings.github_client_secret.get_secret_value(),
            "code": code,
        }
        status, value = await self._call("POST", url, fields=fields)
        if status != 200:
            raise _refused(status)
        token = value.get("access_token") if isinstance(value, dict) else None
        return token if isinstance(token, str) and token else None

    async def installations(self, token: str) -> list[Any]:
        """Return the installations that a user has access to; raises GithubUnavailable."""
        installations: list[Any] = []
        for page in range(1, MAX_PAGES + 1):
            status, value = await self.as_user(token, f"/user/installations?per_page={PAGE_SIZE}&page={page}")
            items = value.get("installations") if isinstance(value, dict) else None
            if status != 200 or not isinstance(items, list):
                raise _refused(status)
            installations += items
            if len(items) < PAGE_SIZE:
                break
        return installations

    async def _call(
        self, method: str, url: str, *, token: str | None = None, fields: dict[str, Any] | None = None
    ) -> tuple[int, Any]:
        headers = {"Accept": "application/json", "X-GitHub-Api-Version": "2022-11-28"}
        if token is not None:
            headers |= {"Accept": "application/vnd.github+json", "Authorization": f"Bearer {token}"}
        body = None
        if fields is not None:
            headers["Content-Type"], body = "application/json", json.dumps(fields).encode()
        limits: dict[str, Any] = {"timeout_s": REQUEST_TIMEOUT_S, "max_body_bytes": MAX_RESPONSE_BYTES}
        try:
            async with GuardedClient(OPERATOR_TARGETS, user_agent="Moorage") as client:
                response = await client.request(method, url, headers=headers, body=body, follow=0, **limits)
            status = response.status
            value = response.json() if status < 300 and response.body.strip() else None
        except (OutboundError, TargetRefused, ValueError):
            raise GithubUnavailable("GitHub's API cannot be reached; try again") from None
        if status == 429 or status >= 500:
            raise _refused(status)
        return status, value

    def _api(self, path: str) -> str:
        return self._settings.codehost_api_url.rstrip("/") + path

    def _signature(self) -> str:
        """Return the app's JWT, valid from a minute ago (clock skew) for ten minutes."""
        now_s = self._clock.now() // 1000
        claims = {"iat": now_s - 60, "exp": now_s + 540, "iss": self._settings.github_app_id}
        # In an environment variable, the lines of the key are often joined by a literal `\n`.
        pem = self._settings.github_app_key.get_secret_value().replace("\\n", "\n")
        try:
            return jwt.encode({"alg": "RS256"}, claims, jwk.RSAKey.import_key(pem), algorithms=["RS256"])
        except (errors.JoseError, ValueError, TypeError):
            raise GithubUnavailable("the operator's MOORAGE_GITHUB_APP_KEY is not an RSA key in PEM format") from None


def _refused(status: int) -> GithubUnavailable:
    return GithubUnavailable(f"GitHub's API refused with status {status}; try again, or ask your operator")
