"""People and resources for tests of the console, made through the API."""

from __future__ import annotations

import json
from typing import Any

from tests.console.screenshots import archive, upload
from tests.console.support import Console, Visit


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
    visit.page.add_init_script(f"sessionStorage.setItem('moorage.session', {json.dumps(kept)})")
