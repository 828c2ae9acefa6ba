"""A running platform whose outside world is on loopback: a code host with a GitHub app, an OpenID issuer, webhooks."""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from joserfc import jwt
from joserfc.jwk import RSAKey
from tests.core.http.live_server import live_server
from tests.e2e.apps_life_support import SERVER
from tests.e2e.apps_support import end_shims
from tests.e2e.projects_support import Codehost
from tests.platform.running import Running, running
from tests.products.repositories.code_host import APP_ID, OAUTH, CodeHost

from moorage import app as application
from moorage.accounts.identity import logins
from moorage.core.audit import service as audit
from moorage.core.db.sqlite import SqliteDatabase
from moorage.core.env import Env
from moorage.core.kit.clock import SystemClock
from moorage.core.kit.crypto import KeyRing
from moorage.core.telemetry import Telemetry
from moorage.settings import Settings

AUDIENCE = "moorage"
STRIPE_SECRET, GITHUB_SECRET = "whsec_of_the_run", "between the code host and the run"
APP, FORK, JOB = "octo/anchor", "stranger/anchor", "octo/nightly"
CLOSED = "127.0.0.1:9"  # nothing listens there


@dataclass(frozen=True)
class Issuer:
    """An OpenID issuer that signs whatever a test asks for."""

    key: RSAKey
    url: str = ""

    async def __call__(self, scope: dict[str, Any], receive: Any, send: Any) -> None:
        host = dict(scope["headers"])[b"host"].decode()
        answer: dict[str, Any] = {"issuer": f"http://{host}", "jwks_uri": f"http://{host}/jwks"}
        if scope["path"] == "/jwks":
            answer = {"keys": [{**self.key.as_dict(private=False), "use": "sig", "alg": "RS256"}]}
        headers = [(b"content-type", b"application/json")]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": json.dumps(answer).encode()})

    def sign(self, name: str) -> str:
        """Return an ID token of a person."""
        now = int(time.time())
        claims: dict[str, Any] = {
            "iss": self.url,
            "aud": AUDIENCE,
            "sub": name,
            "email": f"{name}@example.com",
            "email_verified": True,
            "given_name": name,
            "family_name": "Moor",
            "iat": now,
            "exp": now + 600,
        }
        return jwt.encode({"alg": "RS256"}, claims, self.key)


@dataclass(frozen=True)
class World:
    """The platform, and what surrounds it."""

    platform: Running
    issuer: Issuer
    github: CodeHost
    codehost: Codehost


@contextlib.contextmanager
def running_world(folder: Path) -> Iterator[World]:
    """Start the platform with everything that its operations need, and end it with its apps and databases."""
    key = RSAKey.generate_key(2048, private=True)
    github = CodeHost(folder / "root", key)
    with live_server(github) as host, live_server(Issuer(key)) as issuer:
        codehost = Codehost(host.url, folder / "root", folder / "works")
        for name in (APP, FORK):
            codehost.repository(name, server_js=SERVER, release_txt="one", package_json='{"main": "server.js"}')
        codehost.repository(JOB, run_js="console.log('ran')\n")
        given = {
            "rate_limit": "1000000",
            "codehost_url": host.url,
            "codehost_api_url": f"{host.url}/api",
            "github_app_id": APP_ID,
            "github_app_key": key.as_pem(private=True).decode(),
            "github_client_id": OAUTH["client_id"],
            "github_client_secret": OAUTH["client_secret"],
            "github_webhook_secret": GITHUB_SECRET,
            "stripe_webhook_secret": STRIPE_SECRET,
            "oidc_issuers": issuer.url,
            "oidc_audience": AUDIENCE,
            "resolver": CLOSED,
        }
        env = {f"MOORAGE_{name.upper()}": value for name, value in given.items()}
        try:
            with running(folder / "data", env=env) as platform:
                yield World(platform, Issuer(key, issuer.url), github, codehost)
        finally:
            end_shims(folder / "data")


@contextlib.contextmanager
def unclaimed_api(folder: Path, template: Path) -> Iterator[tuple[str, str]]:
    """Serve the API of a platform in production that has no user yet; gives its address and its setup token."""
    keys = {"master_key": bytes(range(32)).hex(), "session_secret": bytes(range(32, 64)).hex()}
    settings = Settings(_env_file=None, data=folder / "data", mode="production", **keys)
    (folder / "moorage.db").write_bytes(template.read_bytes())
    env = Env.make(settings, SystemClock(), KeyRing((bytes(range(32)),)), bytes(range(32, 64)))
    db = SqliteDatabase(folder / "moorage.db", env)
    app = application.build(db, Telemetry(quiet=True))
    with live_server(app.asgi) as server:

        def finish(work: Any) -> Any:
            return asyncio.run_coroutine_threadsafe(work, server.loop).result(20)

        finish(db.write(audit.ensure_key))
        yield server.url, finish(db.write(logins.offer_setup))
        finish(app.close())
    db.close()
