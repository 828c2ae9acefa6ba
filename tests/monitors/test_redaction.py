"""Viewers read monitors without their credentials."""

from __future__ import annotations

import pytest
from tests.monitors.support import Team
from tests.monitors.test_monitors import GIVEN

from moorage.identity.roles import Role

pytestmark = pytest.mark.anyio


@pytest.mark.boundary("role-to-role", "Viewers never read header values, bodies or URL passwords of monitors.")
async def test_viewers_see_no_header_value_body_or_url_password(team: Team) -> None:
    url = "https://ada:url-pass@shop.example/ping"
    made = (await team.create(**{**GIVEN, "url": url, "httpBody": "body-secret"})).data
    token = (await team.create(url="https://url-token@shop.example/")).data

    detail = await team.get(f"/{made['id']}", Role.VIEWER)
    listed = await team.get("", Role.VIEWER)
    by_member = await team.get(f"/{made['id']}", Role.MEMBER)

    for secret in (b"hush-hush", b"body-secret", b"url-pass", b"url-token"):
        assert secret not in detail.body + listed.body
    assert detail.data["headers"] == [{"name": "X-Key", "value": "****"}, {"name": "Host", "value": "****"}]
    assert (detail.data["httpBody"], detail.data["url"]) == ("****", "https://ada:****@shop.example/ping")
    assert {each["id"]: each["url"] for each in listed.data}[token["id"]] == "https://****@shop.example/"
    assert by_member.data == made
    assert made in (await team.get("", Role.MEMBER)).data


async def test_an_update_with_redacted_values_keeps_the_stored_ones(team: Team) -> None:
    made = (await team.create(**{**GIVEN, "url": "https://ada:url-pass@shop.example/"})).data
    seen = (await team.get(f"/{made['id']}", Role.VIEWER)).data
    new = [*seen["headers"], {"name": "X-New", "value": "****"}]

    same = (await team.patch(made["id"], url=seen["url"], headers=new, httpBody=seen["httpBody"])).data
    renamed = (await team.patch(made["id"], headers=[{"name": "x-key", "value": "****"}])).data

    assert same["headers"] == [*made["headers"], {"name": "X-New", "value": "****"}]
    assert (same["httpBody"], same["url"]) == (made["httpBody"], made["url"])
    assert renamed["headers"] == [{"name": "x-key", "value": "hush-hush"}]
