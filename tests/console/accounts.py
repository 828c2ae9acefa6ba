"""People and resources for tests of the console, made through the API."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

from tests.builders import make_user, session_for
from tests.console.screenshots import archive, upload
from tests.console.support import Console, Visit

from moorage.accounts.identity.organizations import members
from moorage.accounts.identity.roles import Role
from moorage.core.db.store import Database
from moorage.platform.opening import open_store
from moorage.settings import Settings

T = TypeVar("T")


def call(console: Console, method: str, path: str, body: Any = None) -> Any:
    """Send a request as the demo user, and return the data of the answer."""
    headers = {"Authorization": f"Bearer {console.running.token()}"}
    status, answer = console.running.call(method, path, headers=headers, json_body=body)
    assert status in (200, 202), answer
    return answer.get("data")


def make_site(console: Console, name: str) -> str:
    """Publish a site of one page and return its name."""
    page = f"<!doctype html><title>{name}</title><h1>{name}</h1>"
    fields: dict[str, str | bytes] = {"name": name, "staticFiles": archive({"index.html": page})}
    upload(console.running, "/v1/projects/static-upload?wait=30", fields)
    return name


def sign_in_as(visit: Visit, role: str) -> None:
    """Sign in with a new API token of a role, as a person who pastes it."""
    made = call(visit.console, "POST", "/v1/api-tokens", {"name": f"a {role}", "role": role})
    organization = call(visit.console, "GET", "/v1/orgs")[0]["organizationId"]
    kept = json.dumps({"token": made["token"], "kind": "token", "organizationId": organization})
    visit.run_first(f"sessionStorage.setItem('moorage.session', {json.dumps(kept)})")


def in_store(console: Console, work: Callable[[Database], Awaitable[T]]) -> T:
    """Work in the store of the running platform, for what no route makes; the browser has the loop of this thread."""

    async def run() -> T:
        opened = open_store(Settings(data=console.running.data), exclusive=False)
        try:
            return await work(opened.db)
        finally:
            opened.close()

    with ThreadPoolExecutor(1) as pool:
        return pool.submit(asyncio.run, run()).result()


def sign_in_as_member(visit: Visit, email: str, role: Role) -> None:
    """Sign in as another person, who is a member of the organization of the demo user."""
    organization = str(call(visit.console, "GET", "/v1/orgs")[0]["organizationId"])

    async def join(db: Database) -> str:
        user = await make_user(db, email)
        await db.write(lambda tx: members.add(tx, int(organization), user.id, role))
        return session_for(db, user)

    kept = json.dumps({"token": in_store(visit.console, join), "kind": "session", "organizationId": organization})
    visit.run_first(f"localStorage.setItem('moorage.session', {json.dumps(kept)})")
