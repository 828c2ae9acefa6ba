"""A code host on loopback: git's own HTTP server behind ASGI, with private repositories and GitHub's API beside it.

octo/…      for everybody
secret/…    for who brings the token of an installation
old/…       for everybody, by the first version of the protocol, which gives out no commit that no branch ends in
away/…      answers 503
moved/…     is octo/… now
"""

from __future__ import annotations

import asyncio
import base64
import json
import os
import subprocess
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl

from joserfc import jwt
from joserfc.jwk import RSAKey

APP_ID = "4711"
INSTALLATION = 99
OAUTH = {"client_id": "Iv1.quay", "client_secret": "the app's secret"}
SECRET_ACCOUNT = {"id": 7000, "login": "Secret", "type": "Organization"}


@dataclass
class GithubUser:
    """A user at the code host, with access rights and a role in the organization `Secret`."""

    login: str
    id: int = 1
    installations: list[dict[str, Any]] = field(default_factory=list)
    role: str | None = None


def installation(
    number: int = INSTALLATION, account: dict[str, Any] = SECRET_ACCOUNT, *, suspended: bool = False
) -> dict[str, Any]:
    return {"id": number, "account": account, "suspended_at": "2026-01-01T00:00:00Z" if suspended else None}


@dataclass
class CodeHost:
    root: Path
    key: RSAKey
    token: str = "ghs_secret1"
    installed: bool = True
    lifetime_s: int = 3600
    made_tokens: list[dict[str, Any]] = field(default_factory=list)
    requests: list[str] = field(default_factory=list)
    codes: dict[str, GithubUser] = field(default_factory=dict)  # each works once
    signed_in: dict[str, GithubUser] = field(default_factory=dict)  # by user token

    async def __call__(self, scope: dict[str, Any], receive: Any, send: Any) -> None:
        body, more = b"", True
        while more:
            message = await receive()
            body, more = body + message.get("body", b""), message.get("more_body", False)
        headers = {name.decode(): value.decode() for name, value in scope["headers"]}
        self.requests.append(f"{scope['method']} {scope['path']}")
        if scope["path"] == "/login/oauth/access_token":
            status, given, answer = 200, [("content-type", "application/json")], self._exchange(json.loads(body))
        elif scope["path"].startswith("/api/user"):
            query = dict(parse_qsl(scope["query_string"].decode()))
            status, given, answer = self._of_user(scope["path"].removeprefix("/api"), headers, query)
        elif scope["path"].startswith("/api/"):
            status, given, answer = self._api(scope["path"].removeprefix("/api"), headers, body)
        else:
            status, given, answer = await self._git(scope, headers, body)
        pairs = [(name.encode(), value.encode()) for name, value in given]
        await send({"type": "http.response.start", "status": status, "headers": pairs})
        await send({"type": "http.response.body", "body": answer})

    def _exchange(self, sent: dict[str, str]) -> bytes:
        code = sent.pop("code")
        user = self.codes.pop(code, None) if sent == OAUTH else None
        if user is None:
            return json.dumps({"error": "bad_verification_code"}).encode()
        self.signed_in[f"ghu_{code}"] = user
        return json.dumps({"access_token": f"ghu_{code}", "token_type": "bearer"}).encode()

    def _of_user(
        self, path: str, headers: dict[str, str], query: dict[str, str]
    ) -> tuple[int, list[tuple[str, str]], bytes]:
        user = self.signed_in.get(headers.get("authorization", "").removeprefix("Bearer "))
        status: int = 404
        answer: dict[str, Any] = {}
        if user is None:
            status = 401
        elif path == "/user":
            status, answer = 200, {"login": user.login, "id": user.id}
        elif path == "/user/installations":
            size, page = int(query["per_page"]), int(query["page"])
            seen = user.installations[(page - 1) * size : page * size]
            status, answer = 200, {"total_count": len(user.installations), "installations": seen}
        elif path == "/user/memberships/orgs/Secret" and user.role is not None:
            status, answer = 200, {"state": "active", "role": user.role}
        return status, [("content-type", "application/json")], json.dumps(answer).encode()

    def _api(self, path: str, headers: dict[str, str], body: bytes) -> tuple[int, list[tuple[str, str]], bytes]:
        signed = jwt.decode(headers["authorization"].removeprefix("Bearer "), self.key, algorithms=["RS256"])
        assert signed.claims["iss"] == APP_ID
        assert 0 < signed.claims["exp"] - signed.claims["iat"] <= 600
        status: int = 404
        answer: dict[str, Any] = {}
        if path == "/app":
            status, answer = 200, {"slug": "quay", "html_url": "https://host.example/apps/quay"}
        elif path.startswith("/repos/secret/") and path.endswith("/installation") and self.installed:
            status, answer = 200, {"id": INSTALLATION, "account": {"login": "Secret"}, "suspended_at": None}
        elif path == f"/app/installations/{INSTALLATION}/access_tokens" and self.installed:
            self.made_tokens.append(json.loads(body))
            ends = datetime.fromtimestamp(signed.claims["iat"], UTC) + timedelta(seconds=self.lifetime_s)
            status, answer = 201, {"token": self.token, "expires_at": f"{ends:%Y-%m-%dT%H:%M:%SZ}"}
        return status, [("content-type", "application/json")], json.dumps(answer).encode()

    async def _git(
        self, scope: dict[str, Any], headers: dict[str, str], body: bytes
    ) -> tuple[int, list[tuple[str, str]], bytes]:
        path, query = scope["path"], scope["query_string"].decode()
        owner = path.split("/")[1]
        if owner == "away":
            return 503, [], b"later"
        if owner == "moved":
            return 302, [("location", f"{path.replace('/moved/', '/octo/')}?{query}")], b""
        expected = base64.b64encode(f"x-access-token:{self.token}".encode()).decode()
        if owner == "secret" and headers.get("authorization") != f"Basic {expected}":
            return 401, [("www-authenticate", 'Basic realm="host"')], b"no"
        environment = {
            "PATH": os.environ["PATH"],
            "GIT_PROJECT_ROOT": str(self.root),
            "GIT_HTTP_EXPORT_ALL": "1",
            "PATH_INFO": path,
            "QUERY_STRING": query,
            "REQUEST_METHOD": scope["method"],
            "CONTENT_TYPE": headers.get("content-type", ""),
            "CONTENT_LENGTH": str(len(body)),
            "HTTP_CONTENT_ENCODING": headers.get("content-encoding", ""),
        }
        if owner != "old":
            environment["GIT_PROTOCOL"] = headers.get("git-protocol", "")
        return await asyncio.to_thread(_http_backend, environment, body)


def _http_backend(environment: dict[str, str], body: bytes) -> tuple[int, list[tuple[str, str]], bytes]:
    done = subprocess.run(["git", "http-backend"], input=body, env=environment, capture_output=True, check=False)
    head, _, answer = done.stdout.partition(b"\r\n\r\n")
    pairs = [tuple(line.split(": ", 1)) for line in head.decode().split("\r\n") if ": " in line]
    status = next((int(value.split()[0]) for name, value in pairs if name == "Status"), 200)
    return status, [(name, value) for name, value in pairs if name != "Status"], answer
