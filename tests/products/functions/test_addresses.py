"""Public URLs of functions for different settings of the operator."""

from __future__ import annotations

from typing import Any

import pytest
from tests.products.functions.support import Team

from moorage.core.db.store import Database
from moorage.platform.doctor import function_origins
from moorage.platform.doctor.findings import State
from moorage.products.functions import addresses
from moorage.settings import Settings, load

KEYS = {"mode": "production", "master_key": bytes(range(32)).hex(), "session_secret": bytes(range(32, 64)).hex()}
APPS = {**KEYS, "apps_domain": "apps.example.net"}


@pytest.mark.parametrize(
    ("given", "url"),
    [
        ({}, "http://org-7.localhost:8082/default/hello"),
        ({"edge_port": 9000}, "http://org-7.localhost:9000/default/hello"),
        ({"functions_domain": "fn.test"}, "http://org-7.fn.test:8082/default/hello"),
        ({"edge_url": "http://127.0.0.1:9000"}, "http://org-7.localhost:9000/default/hello"),
        ({"edge_url": "http://192.0.2.7:9000/"}, "http://192.0.2.7:9000/api/v1/web/org_7/default/hello"),
        (APPS, "https://org-7.edge.apps.example.net/default/hello"),
        ({**APPS, "https_port": 8443}, "https://org-7.edge.apps.example.net:8443/default/hello"),
        ({**APPS, "edge_url": "https://fn.example.com"}, "https://org-7.fn.example.com/default/hello"),
        (
            {**APPS, "edge_url": "https://fn.example.com", "functions_domain": "pages.example.org"},
            "https://org-7.pages.example.org/default/hello",
        ),
    ],
)
def test_a_function_is_at_the_host_of_its_organization(given: dict[str, Any], url: str) -> None:
    assert addresses.url_of(load(**given), 7, "hello") == url


@pytest.mark.anyio
async def test_a_host_is_an_organization_s_once_it_has_a_function(db: Database, team: Team) -> None:
    async def owner(org_id: int) -> int | None:
        return await db.read(lambda tx: addresses.find_owner(tx, f"org-{org_id}.localhost"))

    before = await owner(team.org_id)
    await team.create("hello")

    assert (before, await owner(team.org_id), await owner(team.org_id + 1)) == (None, team.org_id, None)


@pytest.mark.parametrize(
    ("base_url", "domain", "state"),
    [
        ("https://moorage.example.com", "functions.example.com", State.OK),
        ("https://moorage.example.com", "example.com", State.WARN),
        ("https://moorage.example.com", "moorage.example.com", State.WARN),
        ("https://moorage.example.com", "fn.moorage.example.com", State.WARN),
        ("https://amoorage.example.com", "moorage.example.com", State.OK),
    ],
)
def test_the_doctor_warns_where_functions_share_cookies_with_the_api(base_url: str, domain: str, state: State) -> None:
    settings: Settings = load(**KEYS, base_url=base_url, functions_domain=domain)

    assert function_origins.check(settings).state is state
    assert (function_origins.problem(settings) is None) is (state is State.OK)
