"""Viewers read monitors without their credentials."""

from __future__ import annotations

import pytest
from sqlalchemy import select
from tests.products.monitors.support import URL, Team, make_monitor
from tests.products.monitors.test_monitors import GIVEN

from moorage.accounts.identity.roles import Role
from moorage.core.db.query import Query
from moorage.core.db.store import Database
from moorage.core.http.idempotency.tables import idempotency_key
from moorage.core.vault.tables import vault_secret

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


async def test_no_secret_of_a_monitor_is_in_clear_in_the_store(team: Team, db: Database) -> None:
    headers = {"Idempotency-Key": "once"}
    body = {"url": URL, **GIVEN, "httpBody": "body-secret"}

    first = await team.post("", json=body, headers=headers)
    again = await team.post("", json=body, headers=headers)
    rows = await db.read(lambda tx: tx.all(Query(select(idempotency_key.c.answer, vault_secret.c.ciphertext), str_of)))

    assert first.data == again.data
    assert "hush-hush" in str(again.data)
    assert rows
    assert not any(secret in row for row in rows for secret in ("hush-hush", "body-secret"))


def str_of(*columns: object) -> str:
    return repr(columns)


async def test_a_stored_url_that_cannot_be_parsed_is_masked_and_can_be_replaced(team: Team, db: Database) -> None:
    stored = await make_monitor(db, team, url="http://ada:url-pass@[1:2]/")

    listed = await team.get("", Role.VIEWER)
    changed = await team.patch(stored.id, url=URL)

    assert [each["url"] for each in listed.data] == ["****"]
    assert changed.data["url"] == URL


async def test_an_update_with_redacted_values_keeps_the_stored_ones(team: Team) -> None:
    made = (await team.create(**{**GIVEN, "url": "https://ada:url-pass@shop.example/"})).data
    seen = (await team.get(f"/{made['id']}", Role.VIEWER)).data
    new = [*seen["headers"], {"name": "X-New", "value": "****"}]

    same = (await team.patch(made["id"], url=seen["url"], headers=new, httpBody=seen["httpBody"])).data
    renamed = (await team.patch(made["id"], headers=[{"name": "x-key", "value": "****"}])).data

    assert same["headers"] == [*made["headers"], {"name": "X-New", "value": "****"}]
    assert (same["httpBody"], same["url"]) == (made["httpBody"], made["url"])
    assert renamed["headers"] == [{"name": "x-key", "value": "hush-hush"}]
