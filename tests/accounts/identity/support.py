"""Helpers of the identity tests: an organization with all roles, and generated calls of all routes."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pytest
from sqlalchemy import Table, select
from tests.builders import make_member, make_org, make_token, make_user, session_for

from moorage.accounts.identity.organizations.service import Organization
from moorage.accounts.identity.roles import Role
from moorage.accounts.identity.users import User
from moorage.core.db.query import Command, Query
from moorage.core.db.schema import metadata
from moorage.core.db.store import Database
from moorage.core.db.tx import Tx
from moorage.core.http.route import Route, Scope
from moorage.core.kit.ids import parse_id, parse_uuid

# Production does not generate keys, so a test in that mode sets them.
IN_PRODUCTION: pytest.MarkDecorator = pytest.mark.settings(
    mode="production", master_key=bytes(range(32)).hex(), session_secret=bytes(range(32, 64)).hex()
)
NOBODY = 999_999_999


@dataclass(frozen=True)
class House:
    """An organization with one user per role, and an API token of each."""

    org: Organization
    people: dict[Role, User]
    tokens: dict[Role, str]
    sessions: dict[Role, str]


async def make_house(db: Database, *, name: str = "Harbor", **options: Any) -> House:
    owner = await make_user(db)
    org = await make_org(db, owner, name=name, **options)
    people = {Role.OWNER: owner}
    for role in (Role.VIEWER, Role.MEMBER, Role.ADMIN):
        people[role] = await make_member(db, org, role)
    tokens = {role: await make_token(db, user, org.id) for role, user in people.items()}
    return House(org, people, tokens, {role: session_for(db, user) for role, user in people.items()})


def path_of(route: Route, values: Mapping[str, Any]) -> str:
    """Return a path of a route; missing parameters name resources that do not exist."""
    path = route.path
    for name, parse in route.params:
        path = path.replace(f"{{{name}}}", str(values.get(name, _nothing(parse))))
    return path


def _nothing(parse: Any) -> str:
    if parse is parse_uuid:
        return str(uuid.uuid4())
    return str(NOBODY) if parse is parse_id else "nothing-here"


def guarded(routes: tuple[Route, ...]) -> list[Route]:
    """Return the routes that require a credential."""
    return [route for route in routes if route.scope is not Scope.PUBLIC]


def in_organization(routes: tuple[Route, ...]) -> list[Route]:
    return [route for route in routes if route.scope in (Scope.ORG, Scope.PATH_ORG)]


class HangsUp:
    """The application, with a client that disconnects when the response starts, which ends streams."""

    def __init__(self, asgi: Any) -> None:
        self.asgi = asgi

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        begun = asyncio.Event()

        async def receive_until_begun() -> Any:
            coming, answered = asyncio.ensure_future(receive()), asyncio.ensure_future(begun.wait())
            done, late = await asyncio.wait({coming, answered}, return_when=asyncio.FIRST_COMPLETED)
            for task in late:
                task.cancel()
            return coming.result() if coming in done else {"type": "http.disconnect"}

        async def send_and_note(message: Any) -> None:
            begun.set()
            await send(message)

        await self.asgi(scope, receive_until_begun, send_and_note)


def rows_of(tx: Tx, table: Table) -> list[dict[str, Any]]:
    """Return all rows of a table, without scoping."""
    names = [column.name for column in table.c]
    return tx.all(Query(select(table).order_by(table.c.id), lambda *row: dict(zip(names, row, strict=True))))


async def whole_store(db: Database) -> dict[str, list[dict[str, Any]]]:
    return await db.read(lambda tx: {name: rows_of(tx, table) for name, table in metadata.tables.items()})


async def behind_the_back(db: Database, statement: Any) -> int:
    """Change the database directly, without the keys of the platform."""
    return await db.write(lambda tx: tx.run(Command(statement)))
