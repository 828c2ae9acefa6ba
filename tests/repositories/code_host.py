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

from joserfc import jwt
from joserfc.jwk import RSAKey

APP_ID = "4711"
INSTALLATION = 99


@dataclass
class CodeHost:
    root: Path
    key: RSAKey
    token: str = "ghs_secret1"
    installed: bool = True
    lifetime_s: int = 3600
    made_tokens: list[dict[str, Any]] = field(default_factory=list)
    requests: list[str] = field(default_factory=list)

    async def __call__(self, scope: dict[str, Any], receive: Any, send: Any) -> None:
        body, more = b"", True
        while more:
            message = await receive()
            body, more = body + message.get("body", b""), message.get("more_body", False)
        headers = {name.decode(): value.decode() for name, value in scope["headers"]}
        self.requests.append(f"{scope['method']} {scope['path']}")
        if scope["path"].startswith("/api/"):
            status, given, answer = self._api(scope["path"].removeprefix("/api"), headers, body)
        else:
            status, given, answer = await self._git(scope, headers, body)
        pairs = [(name.encode(), value.encode()) for name, value in given]
        await send({"type": "http.response.start", "status": status, "headers": pairs})
        await send({"type": "http.response.body", "body": answer})

    def _api(self, path: str, headers: dict[str, str], body: bytes) -> tuple[int, list[tuple[str, str]], bytes]:
        signed = jwt.decode(headers["authorization"].removeprefix("Bearer "), self.key, algorithms=["RS256"])
        assert signed.claims["iss"] == APP_ID
        assert 0 < signed.claims["exp"] - signed.claims["iat"] <= 600
        status, answer = 404, {}
        if path.startswith("/repos/secret/") and path.endswith("/installation") and self.installed:
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
