"""Validation: strict JSON, all invalid fields at once under their names, no unstorable text."""

from __future__ import annotations

import json
from typing import Annotated, Any, Literal

import pytest
from pydantic import Field
from tests.builders import make_org, make_token, make_user, session_for
from tests.client import Client, Reply
from tests.core.http.lab import lab, one_store

from moorage.core.db.store import Database
from moorage.core.db.tx import Tx
from moorage.core.http.models import Input, QueryInput, QueryInt, SnakeInput, optional
from moorage.core.http.route import Router

pytestmark = pytest.mark.anyio

NUL = "must not contain a NUL character"
SURROGATE = "must not contain half of a surrogate pair"


class EnvVar(Input):
    name: Annotated[str, Field(min_length=1, max_length=10)]
    value: str


class Scaling(Input):
    min_replicas: Annotated[int, Field(ge=1, le=50)]
    max_replicas: Annotated[int, Field(ge=1, le=100)] = 1


class ThingInput(Input):
    display_name: Annotated[str, Field(min_length=1, max_length=20)]
    count: Annotated[int, Field(ge=0, le=1000)] = 0
    ratio: float = 0.0
    is_public: bool = True
    note: str | None = None
    kind: Literal["site", "app"] = "site"
    auto_scaling: Scaling = optional()
    env: Annotated[list[EnvVar], Field(max_length=5)] = optional()
    either: int | list[int] = optional()
    labels: dict[str, str] = optional()
    payload: Any = None


class HintInput(SnakeInput):
    commit_sha: str = optional()


class FindQuery(QueryInput):
    text: Annotated[str, Field(max_length=20)] = ""
    from_ms: Annotated[QueryInt, Field(ge=0)] = 0
    span: Literal["1h", "24h"] = "24h"


def thing_routes() -> Router:
    router = Router("Lab")

    @router.post("/things")
    def make(tx: Tx, body: ThingInput) -> dict[str, Any]:
        return body.model_dump()

    @router.put("/things")
    async def make_later(body: ThingInput) -> dict[str, Any]:
        return body.model_dump()

    @router.patch("/things")
    def change(tx: Tx, body: ThingInput) -> dict[str, Any]:
        return body.model_dump(exclude_unset=True)

    @router.post("/things/deploy", body_optional=True)
    def deploy(tx: Tx, body: HintInput) -> dict[str, Any]:
        return body.sent()

    @router.get("/things")
    def find(tx: Tx, query: FindQuery) -> dict[str, Any]:
        return query.model_dump()

    @router.delete("/things")
    def clear(tx: Tx) -> None:
        return None

    return router


@pytest.fixture
def things(db: Database) -> Client:
    return lab(db, thing_routes())


def check_fields(reply: Reply, **expected: str) -> None:
    assert reply.status == 400, reply.body
    assert reply.error["code"] == "bad_request"
    assert reply.error["fields"] == expected


def check_message(reply: Reply, part: str) -> None:
    assert reply.status == 400, reply.body
    assert reply.error["code"] == "bad_request"
    assert part in reply.error["message"]


@one_store
@pytest.mark.parametrize("method", ["POST", "PUT"])
async def test_all_bad_fields_are_named_at_once(things: Client, method: str) -> None:
    body = {"count": "60", "isPublic": 1, "kind": "boat", "ratio": "0.5", "note": 7}

    reply = await things.request(method, "/v1/things", json=body)

    assert reply.status == 400
    assert set(reply.error["fields"]) == {"displayName", "count", "isPublic", "kind", "ratio", "note"}
    assert reply.error["fields"]["displayName"] == "is required"
    assert reply.error["fields"]["count"] == "should be a whole number"
    assert reply.error["fields"]["isPublic"] == "should be true or false"


@one_store
async def test_a_nested_field_is_named_by_its_path(things: Client) -> None:
    env = [{"name": "A", "value": "1"}, {"name": "", "value": 2}, {"value": ""}, "x"]

    reply = await things.post(
        "/v1/things", json={"displayName": "x", "autoScaling": {"minReplicas": 0, "maxReplicas": 101}, "env": env}
    )

    assert set(reply.error["fields"]) == {
        "autoScaling.minReplicas",
        "autoScaling.maxReplicas",
        "env[1].name",
        "env[1].value",
        "env[2].name",
        "env[3]",
    }


@one_store
async def test_a_missing_nested_field_is_named_by_its_path(things: Client) -> None:
    reply = await things.post("/v1/things", json={"displayName": "x", "autoScaling": {}, "env": [{"value": "1"}]})

    check_fields(reply, **{"autoScaling.minReplicas": "is required", "env[0].name": "is required"})


@one_store
async def test_a_field_of_several_types_is_named_as_it_was_sent(things: Client) -> None:
    plain = await things.post("/v1/things", json={"displayName": "x", "either": "text"})
    nested = await things.post("/v1/things", json={"displayName": "x", "either": [1, "2"], "labels": {"a": 1}})

    assert set(plain.error["fields"]) == {"either"}
    assert set(nested.error["fields"]) == {"either", "either[1]", "labels.a"}


@one_store
async def test_the_python_name_of_a_field_is_not_its_name(things: Client) -> None:
    reply = await things.post("/v1/things", json={"display_name": "x"})

    check_fields(reply, displayName="is required")


@one_store
@pytest.mark.parametrize("value", ["60", 1.5, 1.0, True, None, [], {}, -1, 1001, 2**63, 10**400, "", "1e3"])
async def test_a_whole_number_is_a_whole_number_in_range(things: Client, value: Any) -> None:
    reply = await things.post("/v1/things", json={"displayName": "x", "count": value})

    assert set(reply.error["fields"]) == {"count"}


@one_store
@pytest.mark.parametrize("value", ["true", "false", 0, 1, "1", None, [], "yes"])
async def test_a_boolean_is_true_or_false(things: Client, value: Any) -> None:
    reply = await things.post("/v1/things", json={"displayName": "x", "isPublic": value})

    check_fields(reply, isPublic="should be true or false")


@one_store
@pytest.mark.parametrize("value", [0, 1.5, True, [], {}, ["x"], None])
async def test_a_text_is_a_text(things: Client, value: Any) -> None:
    reply = await things.post("/v1/things", json={"displayName": value})

    check_fields(reply, displayName="should be a string")


@one_store
@pytest.mark.parametrize("name", ["count", "ratio", "kind", "autoScaling", "env", "either", "labels"])
async def test_null_is_no_way_to_leave_a_field_out(things: Client, name: str) -> None:
    reply = await things.post("/v1/things", json={"displayName": "x", name: None})

    assert reply.status == 400
    assert {each.partition(".")[0] for each in reply.error["fields"]} == {name}


@one_store
async def test_null_is_taken_where_a_field_may_be_null(things: Client) -> None:
    reply = await things.patch("/v1/things", json={"displayName": "x", "note": None})

    assert reply.data == {"display_name": "x", "note": None}


@one_store
async def test_a_whole_number_is_also_a_number(things: Client) -> None:
    reply = await things.post("/v1/things", json={"displayName": "x", "ratio": 2})

    assert reply.data["ratio"] == 2


@one_store
async def test_unknown_fields_are_ignored(things: Client) -> None:
    body = {"displayName": "x", "colour": {"deep": [1, 2]}, "": 1, "autoScaling": {"minReplicas": 1, "speed": 9}}

    reply = await things.patch("/v1/things?colour=red", json=body)

    assert set(reply.data) == {"display_name", "auto_scaling"}


@one_store
@pytest.mark.parametrize("body", [b"[]", b'"x"', b"1", b"null", b"true", b"[{}]"])
async def test_a_body_that_is_no_object_is_named_body(things: Client, body: bytes) -> None:
    reply = await things.post("/v1/things", content=body, headers={"Content-Type": "application/json"})

    check_fields(reply, body="should be an object")


@one_store
@pytest.mark.parametrize(
    "body",
    [
        b"",
        b" ",
        b"{",
        b'{"displayName":}',
        b"{'displayName':'x'}",
        b'{"displayName":"x",}',
        b'{"displayName":"x"} {}',
        b"displayName=x",
        b"\xff\xfe",
        b'{"displayName":"\xff"}',
        b'{"displayName":"\xed\xa0\x80"}',
        b'\xef\xbb\xbf{"displayName":"x"}',
        '{"displayName":"x"}'.encode("utf-16"),
        b'{"displayName":"a\x00b"}',
        b'{"displayName":"a\nb"}',
        b'{"displayName":"\\x41"}',
        b'{"displayName":"x","count":01}',
        b'{"displayName":"x","count":+1}',
        b'{"displayName":"x","count":0x1}',
        b'{"displayName":"x","ratio":.5}',
        b'{"displayName":"x","ratio":NaN}',
        b'{"displayName":"x","ratio":Infinity}',
        b'{"displayName":"x","ratio":-Infinity}',
        b'{"displayName":"x","ratio":1e999}',
        b'{"displayName":"x","payload":[-1e999]}',
        b'{"displayName":"x","count":' + b"9" * 5000 + b"}",
    ],
)
async def test_what_is_not_strict_json_is_refused(things: Client, body: bytes) -> None:
    reply = await things.post("/v1/things", content=body, headers={"Content-Type": "application/json"})

    check_message(reply, "not valid JSON")


@one_store
@pytest.mark.parametrize(
    "body", [b'{"displayName":"x","displayName":"y"}', b'{"displayName":"x","payload":[{"a":1,"\\u0061":2}]}']
)
async def test_a_field_named_twice_is_refused(things: Client, body: bytes) -> None:
    reply = await things.post("/v1/things", content=body)

    check_message(reply, "names a field twice")


@one_store
@pytest.mark.parametrize("depth", [64, 100, 1_000, 100_000])
@pytest.mark.parametrize(("left", "right"), [(b"[", b"]"), (b'{"a":', b"}")])
async def test_a_body_that_is_nested_too_deeply_is_refused(
    things: Client, depth: int, left: bytes, right: bytes
) -> None:
    body = b'{"displayName":"x","payload":' + left * depth + b"1" + right * depth + b"}"

    reply = await things.post("/v1/things", content=body)

    check_message(reply, "nested too deeply")


@one_store
async def test_a_body_may_be_nested_as_deeply_as_anybody_needs(things: Client) -> None:
    body = b'{"displayName":"x","payload":' + b"[" * 63 + b"]" * 63 + b"}"

    reply = await things.post("/v1/things", content=body)

    assert reply.status == 200


@one_store
@pytest.mark.parametrize(
    ("body", "field", "problem"),
    [
        (r'{"displayName":"a\u0000b"}', "displayName", NUL),
        (r'{"displayName":"\ud800"}', "displayName", SURROGATE),
        (r'{"displayName":"\udc00\ud800"}', "displayName", SURROGATE),
        (r'{"displayName":"x","env":[{"name":"A","value":"\u0000"}]}', "env[0].value", NUL),
        (r'{"displayName":"x","payload":{"deep":[1,"\udfff"]}}', "payload.deep[1]", SURROGATE),
    ],
)
async def test_a_text_that_cannot_be_stored_is_refused_by_name(
    things: Client, body: str, field: str, problem: str
) -> None:
    reply = await things.post("/v1/things", content=body.encode())

    check_fields(reply, **{field: problem})


@one_store
@pytest.mark.parametrize("key", [r"\u0000", r"\ud800"])
async def test_a_field_name_that_cannot_be_stored_is_refused(things: Client, key: str) -> None:
    body = f'{{"displayName":"x","payload":{{"{key}":1}}}}'

    check_message(await things.post("/v1/things", content=body.encode()), "a field name must not contain")


@one_store
async def test_a_pair_of_surrogates_is_the_character_it_stands_for(things: Client) -> None:
    reply = await things.post("/v1/things", content=rb'{"displayName":"\ud83d\ude80"}')

    assert reply.data["display_name"] == "🚀"


@one_store
@pytest.mark.parametrize(
    "kind", ["application/json", "application/json; charset=utf-8", "APPLICATION/JSON", "application/merge-patch+json"]
)
async def test_json_by_any_of_its_names_is_taken(things: Client, kind: str) -> None:
    reply = await things.post("/v1/things", json={"displayName": "x"}, headers={"Content-Type": kind})

    assert reply.status == 200


@one_store
@pytest.mark.parametrize(
    "kind",
    [
        "text/plain",
        "text/json",
        "application/x-www-form-urlencoded",
        "multipart/form-data; boundary=x",
        "application/xml",
        "application/jsonx",
        "json",
        "image/svg+json",
        "\xff",
    ],
)
async def test_any_other_kind_of_body_is_refused(things: Client, kind: str) -> None:
    reply = await things.post("/v1/things", json={"displayName": "x"}, headers={"Content-Type": kind})

    check_message(reply, "should be JSON")


@one_store
async def test_an_optional_body_may_be_absent_empty_or_whole(things: Client) -> None:
    absent = await things.post("/v1/things/deploy")
    empty = await things.post("/v1/things/deploy", content=b"", headers={"Content-Type": "application/json"})
    whole = await things.post("/v1/things/deploy", json={"commit_sha": "abc"})

    assert (absent.data, empty.data, whole.data) == ({}, {}, {"commit_sha": "abc"})


@one_store
async def test_an_optional_body_that_is_there_must_be_valid(things: Client) -> None:
    check_message(await things.post("/v1/things/deploy", content=b"{"), "not valid JSON")
    check_fields(await things.post("/v1/things/deploy", json={"commit_sha": 7}), commit_sha="should be a string")
    check_fields(await things.post("/v1/things/deploy", content=b"null"), body="should be an object")


@one_store
async def test_a_body_that_no_route_asked_for_is_ignored(things: Client) -> None:
    reply = await things.delete("/v1/things", content=b"\xff not json", headers={"Content-Type": "text/plain"})

    assert reply.status == 200


@one_store
async def test_a_query_is_read_as_what_its_fields_say(things: Client) -> None:
    reply = await things.get("/v1/things?text=caf%C3%A9+%26&fromMs=15&fromMs=16&other=1&span=1h")

    assert reply.data == {"text": "café &", "from_ms": 16, "span": "1h"}


@one_store
async def test_every_bad_field_of_a_query_is_named(things: Client) -> None:
    reply = await things.get(f"/v1/things?text={'x' * 21}&fromMs=-1&span=2h")

    assert set(reply.error["fields"]) == {"text", "fromMs", "span"}


@one_store
@pytest.mark.parametrize("number", ["1.5", "1e3", "", "%20", "0x1", "+1", "1_000", "١", "9" * 16, "9" * 5000, "true"])
async def test_a_number_in_a_query_is_plain_digits(things: Client, number: str) -> None:
    check_fields(await things.get(f"/v1/things?fromMs={number}"), fromMs="should be a whole number")


@one_store
@pytest.mark.parametrize("query", ["text=a%00b", "text=%00", "other=%00", "a%00b=1"])
async def test_a_query_must_not_have_a_nul(things: Client, query: str) -> None:
    reply = await things.get(f"/v1/things?{query}")

    assert reply.status == 400
    assert list(reply.error["fields"].values()) == [NUL]


@one_store
async def test_a_query_with_too_many_fields_is_refused(things: Client) -> None:
    query = "&".join(f"a{n}=1" for n in range(101))

    check_message(await things.get(f"/v1/things?{query}"), "query is not valid")


@pytest.mark.parametrize(
    ("name", "status"),
    [
        ("Harbor", 200),
        ("🚀 Ünïcödé \u202e", 200),
        ("'; DROP TABLE account; --", 200),
        ("a" * 120, 200),
        ("%s %(x)s :x ?", 200),
        ("\\", 200),
        ("", 400),
        ("   ", 400),
        ("a" * 121, 400),
        ("a\x00b", 400),
        ("\ud800", 400),
    ],
)
async def test_both_stores_take_any_name_that_is_valid_and_no_other(
    api: Client, db: Database, name: str, status: int
) -> None:
    token = session_for(db, await make_user(db))

    reply = await api.post("/v1/orgs", content=json.dumps({"name": name}).encode(), token=token)

    assert reply.status == status
    if status == 200:
        assert reply.data["name"] == name
        assert (await api.get("/v1/orgs", token=token)).data[0]["name"] == name


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"X-Organization-Id": "a\x00b"}, 404),
        ({"X-Organization-Id": "\xff"}, 404),
        ({"X-Organization-Id": ""}, 200),
        ({"X-Organization-Id": "9" * 400}, 404),
        ({"X-Organization-Id": "1 OR 1=1"}, 404),
        ({"Authorization": "Bearer"}, 401),
        ({"Authorization": "Bearer a\x00b"}, 401),
        ({"Authorization": "Bearer \xff.\xff.\xff"}, 401),
        ({"Authorization": "Bearer " + "a" * 60_000}, 401),
        ({"Authorization": "Basic YTpi"}, 401),
        ({"Authorization": "\x00"}, 401),
        ({"Idempotency-Key": "a\x00b"}, 400),
        ({"Idempotency-Key": "\xff"}, 400),
    ],
)
async def test_no_header_that_strangers_write_breaks_a_store(
    api: Client, db: Database, headers: dict[str, str], status: int
) -> None:
    user = await make_user(db)
    token = await make_token(db, user, (await make_org(db, user)).id)

    reply = await api.post("/v1/api-tokens", json={"name": "ci"}, token=token, headers=headers)

    assert reply.status == status


@pytest.mark.parametrize(
    "query", ["organization_id=%00", "organization_id=%ff", f"organization_id={9**30}", "limit=%00"]
)
async def test_no_query_that_strangers_write_breaks_a_store(api: Client, db: Database, query: str) -> None:
    token = session_for(db, await make_user(db))

    reply = await api.get(f"/v1/activity?{query}", token=token)

    assert reply.status in (400, 404)


async def test_an_organization_that_cannot_be_read_is_no_leave_to_act_on_another(api: Client, db: Database) -> None:
    user = await make_user(db)
    await make_org(db, user)
    session = session_for(db, user)

    named = [await api.get(f"/v1/usage?organization_id={name}", token=session) for name in ("%00", "%ff", "x")]

    assert [reply.status for reply in named] == [404] * 3
    assert (await api.get("/v1/usage?organization_id=%ff")).status == 401
    assert (await api.get("/v1/usage", token=session)).status == 200
