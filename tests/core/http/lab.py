"""Test routes on the real dispatcher, behind a gate with tokens that contain the identity."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Any

import pytest
from sqlalchemy import select
from tests.client import Client

from moorage.core.db.query import Query
from moorage.core.db.schema import metadata
from moorage.core.db.store import Database
from moorage.core.db.tx import Tx
from moorage.core.http.dispatch import AccessRequest, Dispatcher
from moorage.core.http.route import Route, Router
from moorage.core.telemetry import Telemetry
from moorage.errors import Unauthorized

ADA = "1-ada"  # Ada, in organization 1

# For requests that never reach the database: a second dialect would add nothing.
one_store = pytest.mark.parametrize("db", ["sqlite"], indirect=True)


@dataclass(frozen=True)
class LabCaller:
    org_id: int
    actor: str
    user_id: int = 1
    is_first_use: bool = False


class LabGate:
    """Admits tokens of the form `<organization>-<name>`."""

    def admit(self, tx: Tx, route: Route, ask: AccessRequest) -> LabCaller:
        org, _, name = (ask.token or "").partition("-")
        is_valid = org.isdigit() and bool(name)
        ask.count_request(is_valid)
        if not is_valid:
            raise Unauthorized("The token is not valid")
        return LabCaller(int(org), name)

    def recheck(self, tx: Tx, route: Route, ask: AccessRequest, caller: LabCaller) -> None:
        self.admit(tx, route, ask)

    def record_use(self, db: Database, caller: LabCaller) -> None:
        raise AssertionError("nobody is here for the first time")


def lab(db: Database, router: Router) -> Client:
    """Return a client of an application with only these routes; it authenticates as Ada."""
    return Client(lab_app(db, router), token=ADA)


def lab_app(db: Database, router: Router) -> Dispatcher:
    return Dispatcher(router.routes, db, LabGate(), Telemetry(quiet=True))


@dataclass
class Sent:
    """The ASGI messages of an answer."""

    messages: list[dict[str, Any]]

    @property
    def text(self) -> str:
        return b"".join(message.get("body", b"") for message in self.messages).decode()


class Guest:
    """A client that reads an answer while it is sent, and disconnects."""

    def __init__(self, asgi: Any, path: str, **headers: str) -> None:
        target, _, query = path.partition("?")
        self.scope = {
            "type": "http",
            "method": "GET",
            "path": target,
            "query_string": query.encode(),
            "headers": [(name.replace("_", "-").encode(), value.encode()) for name, value in headers.items()],
            "client": ("127.0.0.1", 50000),
        }
        self.sent = Sent([])
        self._body = bytearray()
        self._asgi = asgi
        self._left = asyncio.Event()
        self._news = asyncio.Condition()
        self._call: asyncio.Task[None] | None = None

    async def come(self) -> None:
        self._call = asyncio.create_task(self._asgi(self.scope, self._receive, self._send))

    async def sees(self, text: str) -> str:
        """Wait until the received answer contains a text, and return the answer."""
        wanted, looked = text.encode(), 0

        def is_there() -> bool:
            # Answers may be long: only newly received bytes are searched.
            nonlocal looked
            begin, looked = max(looked - len(wanted), 0), len(self._body)
            return self._body.find(wanted, begin) >= 0

        async with asyncio.timeout(20), self._news:
            await self._news.wait_for(is_there)
        return self.sent.text

    async def leaves(self) -> None:
        """Disconnect, and wait until the application has handled it."""
        self._left.set()
        await self.ends()

    async def ends(self) -> str:
        assert self._call is not None
        async with asyncio.timeout(20):
            await self._call
        return self.sent.text

    async def _receive(self) -> dict[str, Any]:
        await self._left.wait()
        return {"type": "http.disconnect"}

    async def _send(self, message: dict[str, Any]) -> None:
        async with self._news:
            self.sent.messages.append(message)
            self._body += message.get("body", b"")
            self._news.notify_all()


async def texts_in_store(db: Database) -> str:
    """Return all stored values as text."""

    def unit(tx: Tx) -> str:
        tables = metadata.tables.values()
        return "\n".join(str(row) for table in tables for row in tx.all(Query(select(table), lambda *row: row)))

    return await db.read(unit)
