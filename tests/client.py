"""A small client that calls the real ASGI application in process."""

from __future__ import annotations

import asyncio
import json as jsonlib
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote


@dataclass(frozen=True)
class Reply:
    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return jsonlib.loads(self.body)

    @property
    def data(self) -> Any:
        assert self.status < 300, f"{self.status}: {self.body!r}"
        return self.json.get("data")

    @property
    def error(self) -> Any:
        assert self.status >= 400, f"{self.status}: {self.body!r}"
        return self.json["error"]


class Client:
    """Calls an ASGI application. `token` and `org` become the headers that carry them."""

    def __init__(self, asgi: Any, *, token: str | None = None, client: str = "127.0.0.1") -> None:
        self.asgi = asgi
        self.token = token
        self.client = client

    async def get(self, path: str, **options: Any) -> Reply:
        return await self.request("GET", path, **options)

    async def post(self, path: str, **options: Any) -> Reply:
        return await self.request("POST", path, **options)

    async def put(self, path: str, **options: Any) -> Reply:
        return await self.request("PUT", path, **options)

    async def patch(self, path: str, **options: Any) -> Reply:
        return await self.request("PATCH", path, **options)

    async def delete(self, path: str, **options: Any) -> Reply:
        return await self.request("DELETE", path, **options)

    async def request(
        self,
        method: str,
        path: str,
        *,
        json: Any = None,
        content: bytes | None = None,
        token: str | None = None,
        org: int | str | None = None,
        headers: dict[str, str] | None = None,
    ) -> Reply:
        sent = {name.lower(): value for name, value in (headers or {}).items()}
        token = token if token is not None else self.token
        if token:
            sent.setdefault("authorization", f"Bearer {token}")
        if org is not None:
            sent.setdefault("x-organization-id", str(org))
        if json is not None:
            content = jsonlib.dumps(json).encode()
            sent.setdefault("content-type", "application/json")
        if content is not None:
            sent.setdefault("content-length", str(len(content)))
        return await self._call(method, path, content or b"", sent)

    async def _call(self, method: str, path: str, body: bytes, headers: dict[str, str]) -> Reply:
        path, _, query = path.partition("?")
        scope = {
            "type": "http",
            "method": method,
            "path": unquote(path),
            "raw_path": path.encode(),
            "query_string": query.encode(),
            "headers": [(name.encode(), value.encode("latin-1")) for name, value in headers.items()],
            "client": (self.client, 50000),
        }
        waiting = [{"type": "http.request", "body": body, "more_body": False}]
        gone = asyncio.Event()
        parts: list[dict[str, Any]] = []

        async def receive() -> dict[str, Any]:
            if waiting:
                return waiting.pop()
            await gone.wait()
            return {"type": "http.disconnect"}

        async def send(message: dict[str, Any]) -> None:
            parts.append(message)

        await self.asgi(scope, receive, send)
        found = {name.decode(): value.decode("latin-1") for name, value in parts[0]["headers"]}
        return Reply(parts[0]["status"], found, b"".join(part.get("body", b"") for part in parts[1:]))
