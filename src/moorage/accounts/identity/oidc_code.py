"""Sign-in of the console at an identity provider: authorization code with PKCE.

The platform reads the provider's addresses and exchanges the code, so that the console connects to no other host. The
console then logs in with the ID token, like any application. A client secret, which some providers want, stays here.
"""

from __future__ import annotations

import base64
from typing import Any
from urllib.parse import quote, urlencode, urlsplit

from moorage.accounts.identity.oidc import FETCH_TIMEOUT_S, MAX_RESPONSE_BYTES, discover
from moorage.core.net.calls import OutboundError
from moorage.core.net.client import GuardedClient
from moorage.core.net.targets import OPERATOR_TARGETS, TargetRefused
from moorage.errors import BadRequest, Unauthorized
from moorage.settings import Settings, is_loopback

SCOPE = "openid email profile"
RETURN_PATH = "/sign-in/return"
_UNREACHABLE = "The identity provider cannot be reached; try again"


class CodeFlow:
    def __init__(self, settings: Settings) -> None:
        self._issuers = settings.oidc_issuers
        self._client_id = settings.oidc_audience[0] if settings.oidc_audience else ""
        self._secret = settings.oidc_client_secret.get_secret_value()
        self._own = frozenset((settings.api_url.rstrip("/"), *settings.console_origins))
        self._is_production = settings.is_production

    @property
    def providers(self) -> list[tuple[str, str]]:
        """Issuers with the client id of the console."""
        return [(issuer, self._client_id) for issuer in self._issuers]

    async def begin(self, issuer: str, redirect_uri: str, state: str, code_challenge: str) -> str:
        """Return the provider's address at which the user signs in."""
        self._check(issuer, redirect_uri)
        endpoint = _address(await self._discovered(issuer), "authorization_endpoint")
        query = {
            "response_type": "code",
            "client_id": self._client_id,
            "redirect_uri": redirect_uri,
            "scope": SCOPE,
            "state": state,
            "code_challenge": code_challenge,
            "code_challenge_method": "S256",
        }
        return f"{endpoint}{'&' if '?' in endpoint else '?'}{urlencode(query)}"

    async def exchange(self, issuer: str, code: str, code_verifier: str, redirect_uri: str) -> str:
        """Return the ID token for a code."""
        self._check(issuer, redirect_uri)
        provider = await self._discovered(issuer)
        form = {
            "grant_type": "authorization_code",
            "code": code,
            "code_verifier": code_verifier,
            "redirect_uri": redirect_uri,
        }
        answer: dict[str, Any] = {}
        for headers, credentials in self._credentials(provider):
            answer = await self._post(_address(provider, "token_endpoint"), headers, form | credentials)
            if answer.get("error") != "invalid_client":  # A code outlives a refused client.
                break
        token = answer.get("id_token")
        if not isinstance(token, str):
            raise Unauthorized("The identity provider refused the sign-in; start again")
        return token

    def _check(self, issuer: str, redirect_uri: str) -> None:
        if issuer not in self._issuers:
            raise BadRequest("Unknown identity provider", fields={"issuer": "is not configured"})
        origin, _, path = redirect_uri.partition(RETURN_PATH)
        is_local = not self._is_production and is_loopback(_host(origin))
        if path or not redirect_uri.endswith(RETURN_PATH) or not (origin in self._own or is_local):
            problem = {"redirect_uri": "is not an address of this platform"}
            raise BadRequest("Unknown address of the console", fields=problem)

    def _credentials(self, provider: dict[str, Any]) -> list[tuple[dict[str, str], dict[str, str]]]:
        """Return headers and form fields that identify the client, one pair for each method to try."""
        if not self._secret:
            return [({}, {"client_id": self._client_id})]
        pair = f"{quote(self._client_id, safe='')}:{quote(self._secret, safe='')}"
        methods = {
            "client_secret_basic": ({"Authorization": f"Basic {base64.b64encode(pair.encode()).decode()}"}, {}),
            "client_secret_post": ({}, {"client_id": self._client_id, "client_secret": self._secret}),
        }
        supported = provider.get("token_endpoint_auth_methods_supported")
        listed = supported if isinstance(supported, list) else ["client_secret_basic"]  # the default of OpenID
        return [sent for name, sent in methods.items() if name in listed]

    async def _discovered(self, issuer: str) -> dict[str, Any]:
        try:
            async with GuardedClient(OPERATOR_TARGETS) as client:
                return await discover(client, issuer)
        except (OutboundError, TargetRefused, ValueError, KeyError) as error:
            raise Unauthorized(_UNREACHABLE) from error

    async def _post(self, address: str, headers: dict[str, str], form: dict[str, str]) -> dict[str, Any]:
        headers = {"Content-Type": "application/x-www-form-urlencoded", "Accept": "application/json", **headers}
        try:
            async with GuardedClient(OPERATOR_TARGETS) as client:
                response = await client.request(
                    "POST",
                    address,
                    headers=headers,
                    body=urlencode(form).encode(),
                    timeout_s=FETCH_TIMEOUT_S,
                    max_body_bytes=MAX_RESPONSE_BYTES,
                    follow=0,
                )
            answer = response.json()
        except (OutboundError, TargetRefused) as error:
            raise Unauthorized(_UNREACHABLE) from error
        except ValueError:
            answer = None
        return answer if isinstance(answer, dict) else {}


def _address(provider: dict[str, Any], name: str) -> str:
    """Return an address of a discovery document."""
    address = str(provider.get(name))
    try:
        url = urlsplit(address)
    except ValueError as error:
        raise Unauthorized(_UNREACHABLE) from error
    if not (url.scheme == "https" or (url.scheme == "http" and is_loopback(url.hostname or ""))):
        raise Unauthorized(_UNREACHABLE)
    return url.geturl()


def _host(origin: str) -> str:
    """Return the host of an origin, "" if it is missing or malformed."""
    try:
        return urlsplit(origin).hostname or ""
    except ValueError:
        return ""
