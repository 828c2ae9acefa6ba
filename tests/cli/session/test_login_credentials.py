"""A login at another platform sends it no credential of the environment."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from tests import forked

from moorage.cli.session import social
from moorage.client import AsyncClient, Client

ANSWERS = {
    "/v1/auth/demo": {"token": "session", "email": "demo@example.com", "organizationId": "3"},
    "/v1/auth/methods": {"demo": True, "providers": [{"issuer": "https://id.example.com", "clientId": "moorage"}]},
    "/v1/whoami": {"userId": 1, "orgId": "3", "orgName": "Acme\x1b]0;owned\x07\x9b2J", "role": "owner"},
}


class Platform:
    """Another platform, which records the credentials that it gets."""

    def __init__(self) -> None:
        self.seen: list[tuple[str, str | None, str | None]] = []  # path, token and organization
        platform = self

        class Handler(BaseHTTPRequestHandler):
            def answer(self) -> None:
                self.rfile.read(int(self.headers.get("content-length") or 0))
                platform.seen.append((self.path, self.headers["authorization"], self.headers["x-organization-id"]))
                body = json.dumps({"data": ANSWERS.get(self.path)}).encode()
                self.send_response(200)
                self.send_header("content-length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            do_GET = do_POST = answer  # noqa: N815 - names of the base class

            def log_message(self, *_: Any) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}"


@pytest.fixture
def platform(monkeypatch: pytest.MonkeyPatch) -> Iterator[Platform]:
    monkeypatch.setenv("MOORAGE_TOKEN", "mrg_mine")
    monkeypatch.setenv("MOORAGE_ORG", "7")
    made = Platform()
    threading.Thread(target=made.server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
    yield made
    made.server.shutdown()
    made.server.server_close()


@pytest.mark.boundary("stranger-to-user", "A login at a platform sends it no credential of another one.")
def test_a_login_sends_only_the_credential_that_it_gets(platform: Platform, tmp_path: Path) -> None:
    done = forked.run(
        ["login", platform.url, "--demo"], cwd=tmp_path, env=dict(os.environ) | {"XDG_CONFIG_HOME": str(tmp_path)}
    )
    social.find_provider(platform.url, None, is_wanted=True)

    assert done.returncode == 0, done.stderr
    assert "organization Acme2J (3) as owner" in done.stdout  # no escape sequence of the platform
    assert platform.seen == [
        ("/v1/auth/demo", None, None),
        ("/v1/whoami", "Bearer session", "3"),
        ("/v1/auth/methods", None, None),
    ]


def test_the_environment_is_used_where_the_caller_gives_nothing(platform: Platform) -> None:
    for given, expected in (({}, ("Bearer mrg_mine", "7")), ({"token": "", "organization": ""}, (None, None))):
        with Client(platform.url, **given) as client:
            client.identity.read_sign_in_methods()

        assert platform.seen.pop()[1:] == expected


@pytest.mark.anyio
async def test_the_asynchronous_client_follows_the_same_rule(platform: Platform) -> None:
    async with AsyncClient(platform.url, token="", organization="") as client:
        await client.identity.read_sign_in_methods()

    assert platform.seen.pop()[1:] == (None, None)
