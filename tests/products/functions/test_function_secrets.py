"""Variables and secrets of functions: use, visibility and encryption."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import update
from tests.accounts.identity.support import make_house
from tests.client import Client
from tests.core.http.lab import texts_in_store
from tests.products.functions.edge_stand_in import EdgeStandIn, running
from tests.products.functions.spool_writer import activation, invocations, log, make_logs, record, texts, write
from tests.products.functions.support import Team, make_team

from moorage.accounts.identity.roles import Role
from moorage.app import App
from moorage.core.db.query import Command, arg
from moorage.core.db.store import Database
from moorage.core.kit.masking import Masker
from moorage.core.telemetry import Telemetry
from moorage.core.vault import service as vault
from moorage.core.vault.tables import vault_secret
from moorage.products.functions.logs import hidden_values
from moorage.products.functions.logs.hidden_values import HiddenValues, mask_block
from moorage.products.functions.records.recorder import Recorder
from moorage.runtime.edge import spool
from moorage.runtime.edge.spool import LATE, STDOUT
from moorage.settings import Settings

pytestmark = pytest.mark.anyio

VALUE = "hunter2-of-the-harbor"


@pytest.fixture
async def edge(settings: Settings) -> AsyncIterator[EdgeStandIn]:
    async with running(EdgeStandIn(settings.folder("run") / "edge.sock")) as stand_in:
        yield stand_in


@pytest.fixture
async def team(app: App, db: Database, edge: EdgeStandIn) -> AsyncIterator[Team]:
    yield await make_team(app.asgi, db)
    await app.products.functions.edge.close()


def pairs(**values: str) -> list[dict[str, str]]:
    return [{"name": name, "value": value} for name, value in values.items()]


def env_at(edge: EdgeStandIn, function_id: int) -> dict[str, Any]:
    return dict(edge.routes[function_id]["env"])


async def test_secrets_reach_the_function_and_win_over_variables_and_are_not_shown(
    team: Team, edge: EdgeStandIn
) -> None:
    env, secrets = pairs(PLAIN="1", BOTH="variable"), pairs(TOKEN=VALUE, BOTH="secret")

    made = await team.create(env=json.dumps(env), secrets=json.dumps(secrets))
    shown = await team.api.get("/v1/functions/hello")
    names = await team.api.get("/v1/functions/hello/secrets")

    assert env_at(edge, made.data["id"]) == {"PLAIN": "1", "BOTH": "secret", "TOKEN": VALUE}
    for reply in (made, shown, names, await team.api.get("/v1/functions")):
        assert VALUE.encode() not in reply.body
    assert (made.data["env"], shown.data["env"], "secrets" in made.data) == (env, env, False)
    assert names.data == [{"name": "BOTH"}, {"name": "TOKEN"}]


async def test_secrets_sent_are_the_whole_new_set_and_a_bare_name_keeps_its_value(
    team: Team, edge: EdgeStandIn
) -> None:
    made = await team.create(secrets=json.dumps(pairs(KEEP="kept", DROP="dropped")))

    body = {"secrets": [{"name": "KEEP"}, {"name": "NEW", "value": "fresh"}]}
    changed = await team.api.patch("/v1/functions/hello", json=body)
    revision = edge.routes[made.data["id"]]["revision"]
    again = await team.api.patch("/v1/functions/hello", json=body)

    assert (changed.status, again.status) == (200, 200)
    assert env_at(edge, made.data["id"]) == {"KEEP": "kept", "NEW": "fresh"}
    assert edge.routes[made.data["id"]]["revision"] == revision  # Workers stay if nothing changed.
    assert (await team.api.get("/v1/functions/hello/secrets")).data == [{"name": "KEEP"}, {"name": "NEW"}]


@pytest.mark.parametrize(
    ("secrets", "field"),
    [
        ([{"name": "A", "value": "1"}, {"name": "B"}], "secrets[1].value"),
        ([{"name": "__OW_X", "value": "1"}], "secrets[0].name"),
        ([{"name": "A", "value": "1"}, {"name": "A", "value": "2"}], "secrets[1].name"),
        ({}, "secrets"),
    ],
)
async def test_bad_secrets_are_refused_by_their_field_and_nothing_changes(team: Team, secrets: Any, field: str) -> None:
    await team.create()

    changed = await team.api.patch("/v1/functions/hello", json={"secrets": secrets, "memory": 512})
    created = await team.create("other", secrets=json.dumps(secrets))

    assert (changed.status, changed.error["fields"].keys()) == (400, {field})
    assert (created.status, created.error["fields"].keys()) == (400, {field})
    assert (await team.api.get("/v1/functions/hello")).data["memory"] == 256
    assert (await team.api.get("/v1/functions/hello/secrets")).data == []


async def test_kept_values_count_towards_the_limit_of_secrets(team: Team) -> None:
    await team.create(secrets=json.dumps(pairs(KEEP="k" * 40_000)))

    reply = await team.api.patch(
        "/v1/functions/hello", json={"secrets": [{"name": "KEEP"}, {"name": "NEW", "value": "n" * 40_000}]}
    )

    assert (reply.status, reply.error["fields"].keys()) == (400, {"secrets"})
    assert (await team.api.get("/v1/functions/hello/secrets")).data == [{"name": "KEEP"}]


async def test_secrets_that_are_not_json_are_refused(team: Team) -> None:
    refused = await team.create(secrets="TOKEN=1")

    assert refused.error["fields"] == {"secrets": "should be JSON: a list of objects with a name and a value"}


async def test_a_reveal_shows_one_secret_and_is_recorded(team: Team) -> None:
    await team.create(secrets=json.dumps(pairs(TOKEN=VALUE)))
    url = "/v1/functions/hello/secrets/reveal"

    shown = await team.api.post(url, json={"name": "TOKEN"})
    missing = await team.api.post(url, json={"name": "OTHER"})
    feed = (await team.api.get("/v1/activity")).data["items"]

    assert (shown.data, shown.headers["cache-control"]) == ({"name": "TOKEN", "value": VALUE}, "no-store")
    assert missing.status == 404
    assert (feed[0]["action"], feed[0]["details"]) == ("function.secret_revealed", {"secret": "TOKEN"})
    assert VALUE not in json.dumps(feed)


@pytest.mark.boundary("role-to-role", "A viewer sees neither the names nor the values of a function's secrets.")
async def test_a_viewer_sees_no_secret(app: App, db: Database, team: Team) -> None:
    house = await make_house(db)
    owner = Team(house.org.id, Client(app.asgi, token=house.tokens[Role.OWNER]))
    await owner.create(secrets=json.dumps(pairs(TOKEN=VALUE)))

    viewer = Client(app.asgi, token=house.tokens[Role.VIEWER])
    names = await viewer.get("/v1/functions/hello/secrets")
    shown = await viewer.post("/v1/functions/hello/secrets/reveal", json={"name": "TOKEN"})
    stranger = await team.api.post("/v1/functions/hello/secrets/reveal", json={"name": "TOKEN"})

    assert (names.status, shown.status, stranger.status) == (403, 403, 404)


@pytest.mark.boundary("stranger-to-platform", "A copy of the store shows no variable and no secret of a function.")
async def test_the_store_has_no_value_in_clear_and_repeated_requests_work(team: Team, db: Database) -> None:
    key = {"Idempotency-Key": "once"}
    await team.create(env=json.dumps(pairs(PLAIN="variable-of-the-harbor")), secrets=json.dumps(pairs(TOKEN=VALUE)))

    body = {"env": pairs(PLAIN="another-of-the-harbor")}
    first = await team.api.patch("/v1/functions/hello", json=body, headers=key)
    again = await team.api.patch("/v1/functions/hello", json=body, headers=key)
    url = "/v1/functions/hello/secrets/reveal"
    shown = await team.api.post(url, json={"name": "TOKEN"}, headers=key)
    hidden = await team.api.post(url, json={"name": "TOKEN"}, headers=key)

    stored = await texts_in_store(db)
    assert "of-the-harbor" not in stored
    assert (again.headers["idempotency-replayed"], again.data) == ("true", first.data)
    assert (shown.status, hidden.status) == (200, 409)


async def test_variables_and_secrets_go_with_their_function(team: Team, db: Database) -> None:
    await team.create(env=json.dumps(pairs(PLAIN="1")), secrets=json.dumps(pairs(TOKEN=VALUE)))

    await team.api.delete("/v1/functions/hello")

    named = await db.read(
        lambda tx: [each for prefix in ("function:", "function-env:") for each in vault.all_below(tx, prefix)]
    )
    assert named == []


async def test_a_function_whose_secret_cannot_be_decrypted_is_not_published_without_it(
    team: Team, edge: EdgeStandIn, db: Database, app: App
) -> None:
    await team.create("broken", secrets=json.dumps(pairs(TOKEN=VALUE)))
    await team.create("fine", secrets=json.dumps(pairs(TOKEN=VALUE)))
    damage = Command(update(vault_secret).where(vault_secret.c.id == arg("id")).values(ciphertext="v1.0000.x.x"))
    first = (await team.api.get("/v1/functions/broken")).data["id"]
    resource = f"'function:{first}'"
    row = next(line for line in (await texts_in_store(db)).splitlines() if resource in line)
    await db.write(lambda tx: tx.run(damage, id=int(row[1:].partition(",")[0])))
    edge.routes.clear()

    await app.products.functions.publisher._push_all("a new start")

    assert [route["name"] for route in edge.routes.values()] == ["fine"]


# Logs.


@pytest.fixture
async def function_id(team: Team) -> int:
    made = await team.create(secrets=json.dumps(pairs(TOKEN=VALUE)))
    return int(made.data["id"])


async def recorded(
    db: Database, folder: Path, *records: bytes, hidden: HiddenValues | None = None
) -> tuple[str, str, str | None]:
    """Return the stored streams and the error of the newest call."""
    recorder = Recorder(db, Telemetry(quiet=True), folder, make_logs(folder), hidden=hidden)
    write(folder, *records)
    try:
        await recorder.catch_up()
    finally:
        recorder.close()
    stored = (await texts(db, recorder.logs))[-1]
    return stored.stdout, stored.stderr, (await invocations(db))[-1]["error"]


@pytest.mark.boundary("role-to-role", "Logs and errors of a function do not show its secrets.")
async def test_secrets_are_masked_in_logs_late_lines_and_errors(
    team: Team, db: Database, tmp_path: Path, function_id: int
) -> None:
    failed = record(
        1, function_id, org_id=team.org_id, ok=False, error=f"bad {VALUE}".encode(), log=log(f"a {VALUE} b", "!other")
    )
    late = record(
        2, function_id, org_id=team.org_id, kind=LATE, activation=activation(1).encode(), log=log(f"late {VALUE}")
    )

    stored = await recorded(db, tmp_path / "spool", failed, late)

    assert stored == ("a **** b\nlate ****\n", "!other\n", "bad ****")


async def test_a_value_that_was_replaced_is_masked_for_a_while(
    team: Team, db: Database, tmp_path: Path, function_id: int, app: App
) -> None:
    hidden = app.products.functions.publisher.hidden
    await team.api.patch("/v1/functions/hello", json={"secrets": pairs(TOKEN="another-value")})

    text = log(f"{VALUE} another-value")
    printed = record(1, function_id, org_id=team.org_id, log=text)
    stored = await recorded(db, tmp_path / "spool", printed, hidden=hidden)

    assert stored == ("**** ****\n", "", None)


def block_of(*texts: bytes) -> bytes:
    return b"".join(spool.log_entry(STDOUT, 1, text) for text in texts)


def test_a_value_that_spans_entries_is_masked() -> None:
    masked = mask_block(Masker([VALUE]), block_of(b"a hunter2-of", b"-the-harbor b\n"))

    assert spool.log_texts(masked) == ("a **** b\n", "")


def test_entries_keep_their_moments_and_blocks_without_values_stay_as_they_are() -> None:
    plain = block_of(b"one\n", b"two\n")
    mixed = spool.log_entry(STDOUT, 1, b"one\n") + spool.log_entry(STDOUT, 2, VALUE.encode() + b"\n")

    assert mask_block(Masker([VALUE]), plain) is plain
    entries = list(spool.log_entries(mask_block(Masker([VALUE]), mixed)))
    assert [(each.at_ms, each.text) for each in entries] == [(1, "one\n"), (2, "****\n")]


def test_text_that_would_take_too_long_to_mask_is_not_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hidden_values, "MAX_WORK", 10)

    masked = mask_block(Masker([VALUE]), block_of(VALUE.encode()))

    assert VALUE.encode() not in masked
    assert "not shown" in spool.log_texts(masked)[1]
