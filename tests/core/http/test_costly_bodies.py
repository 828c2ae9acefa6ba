"""Bodies that are cheap to send and would be expensive to check."""

from __future__ import annotations

import threading
import time
from typing import Annotated, Any

import pytest
from pydantic import AfterValidator
from tests.client import Client
from tests.core.http.lab import lab, one_store

from moorage.core.db.store import Database
from moorage.core.db.tx import Tx
from moorage.core.http import strictjson
from moorage.core.http.envvars import Env, SecretSet
from moorage.core.http.models import MAX_REPORTED_FIELDS, Input, optional
from moorage.core.http.route import JSON_LIMIT, PUBLIC_JSON_LIMIT, Router, Scope
from moorage.errors import BadRequest

pytestmark = pytest.mark.anyio

THREADS: list[int] = []


def note_thread(text: str) -> str:
    THREADS.append(threading.get_ident())
    return text


class NoteInput(Input):
    text: Annotated[str, AfterValidator(note_thread)]


class AppInput(Input):
    env: Env = optional()
    secrets: SecretSet = optional()


@pytest.fixture
def client(db: Database) -> Client:
    router = Router("Lab")

    @router.post("/notes")
    async def note(body: NoteInput) -> None:
        return None

    @router.post("/auth/note", scope=Scope.PUBLIC)
    async def note_in_public(body: NoteInput) -> None:
        return None

    @router.post("/apps")
    def make(tx: Tx, body: AppInput) -> None:
        return None

    return lab(db, router)


def test_a_long_field_name_is_not_repeated_for_each_of_its_elements() -> None:
    body = b'{"' + b"k" * 450_000 + b'":[' + b'"",' * 180_000 + rb'"\u0041"]}'
    began = time.thread_time()

    strictjson.parse(body)

    assert time.thread_time() - began < 1  # 0.1 s; it was 4 s.


@pytest.mark.parametrize(
    ("body", "field"),
    [
        (rb'"\u0000"', "body"),
        (rb'["", "\u0000"]', "[1]"),
        (rb'{"a": [{"b": ""}, {"c": 1, "b": "\u0000"}]}', "a[1].b"),
        (rb'{"a": {"b": {"c": [[], ["", "\u0000"]]}}, "d": "\u0000"}', "a.b.c[1][1]"),
    ],
)
def test_an_unstorable_text_is_reported_with_its_location(body: bytes, field: str) -> None:
    with pytest.raises(BadRequest) as refused:
        strictjson.parse(body)

    assert refused.value.fields == {field: "must not contain a NUL character"}


@one_store
async def test_a_large_body_is_parsed_outside_of_the_event_loop(client: Client) -> None:
    THREADS.clear()

    await client.post("/v1/notes", json={"text": "short"})
    await client.post("/v1/notes", json={"text": "x" * 65_536})

    short, large = THREADS
    assert short == threading.get_ident() != large


@one_store
async def test_a_route_without_a_credential_takes_64_kilobytes(client: Client, api: Client) -> None:
    def body(size: int) -> bytes:
        return b'{"text":""}'.ljust(size)

    fitting = await client.post("/v1/auth/note", content=body(PUBLIC_JSON_LIMIT))
    refused = await client.post("/v1/auth/note", content=body(PUBLIC_JSON_LIMIT + 1))
    login = await api.post("/v1/auth/social", content=body(PUBLIC_JSON_LIMIT + 1))
    known = await client.post("/v1/notes", content=body(JSON_LIMIT))

    assert [each.status for each in (fitting, refused, login, known)] == [200, 400, 400, 200]
    assert refused.error["message"] == login.error["message"] == "The body is larger than 65536 bytes"


@one_store
@pytest.mark.parametrize("field", ["env", "secrets"])
async def test_a_list_of_variables_has_a_limited_length(client: Client, field: str) -> None:
    def entries(count: int) -> list[dict[str, str]]:
        return [{"name": f"N{number}", "value": ""} for number in range(count)]

    fitting = await client.post("/v1/apps", json={field: entries(1000)})
    refused = await client.post("/v1/apps", json={field: entries(1001)})
    many = await client.post("/v1/apps", content=b'{"%b":[%b{}]}' % (field.encode(), b"{}," * 300_000))

    assert fitting.status == 200
    for reply in (refused, many):
        assert reply.status == 400
        assert list(reply.error["fields"]) == [field]
        assert reply.error["fields"][field].startswith("should have at most 1000 items")


@one_store
async def test_only_the_first_invalid_fields_are_listed(client: Client) -> None:
    reply = await client.post("/v1/apps", json={"env": [{}] * 200})

    fields: dict[str, Any] = reply.error["fields"]
    assert list(fields)[:2] == ["env[0].name", "env[0].value"]
    assert len(fields) == MAX_REPORTED_FIELDS
    assert reply.error["message"] == "The request is not valid: 400 fields, the first 100 are listed"
