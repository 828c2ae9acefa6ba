"""Invocation by the API: the request to the edge, and its responses."""

from __future__ import annotations

import json
from typing import Any

import pytest
from tests.core.http.lab import one_store
from tests.products.functions.edge_stand_in import EdgeStandIn, Fate
from tests.products.functions.support import Team

pytestmark = [pytest.mark.anyio, one_store]

MB = 2**20
INVOKE = "/v1/functions/hello/invoke"
JSON = {"content-type": "application/json"}


async def test_an_invocation_shows_what_the_function_returned(team: Team, gateway: EdgeStandIn) -> None:
    made = (await team.create()).data
    gateway.fate = lambda call: Fate(result={"deep": [1, None, "é"]})

    reply = await team.api.post(INVOKE, json={"name": "Ada"})

    (call,) = gateway.calls
    assert reply.data == {
        "status": "success",
        "result": {"deep": [1, None, "é"]},
        "error": None,
        "durationMs": 5.0,
        "version": 1,
        "activationId": call["activation"],
    }
    assert (call["function"], call["door"], call["schedule"]) == (made["id"], "api", None)
    assert len(call["activation"]) == 32
    assert set(call["activation"]) <= set("0123456789abcdef")


@pytest.mark.parametrize(
    ("body", "params"),
    [
        ({"a": 1}, {"a": 1}),
        ({}, {}),
        ({"params": {"a": 1}}, {"a": 1}),
        ({"params": {}}, {}),
        ({"params": {"params": {"a": 1}}}, {"params": {"a": 1}}),
        ({"params": {"a": 1}, "other": 2}, {"params": {"a": 1}, "other": 2}),
        ({"params": [1]}, {"params": [1]}),
        ({"params": None}, {"params": None}),
        ([1, "two", None], [1, "two", None]),
        ("text", "text"),
        (7, 7),
        (2**70, 2**70),
        (1.5, 1.5),
        (True, True),
    ],
)
async def test_any_json_value_reaches_the_function_and_an_envelope_is_opened(
    team: Team, gateway: EdgeStandIn, body: Any, params: Any
) -> None:
    await team.create()

    assert (await team.api.post(INVOKE, json=body)).status == 200

    assert gateway.calls[0]["params"] == params


@pytest.mark.parametrize(("content", "params"), [(b"", {}), (b"null", None), (b" [] ", [])])
async def test_no_body_is_an_empty_object_and_null_is_null(
    team: Team, gateway: EdgeStandIn, content: bytes, params: Any
) -> None:
    await team.create()

    assert (await team.api.post(INVOKE, content=content, headers=JSON)).status == 200

    assert gateway.calls[0]["params"] == params


@pytest.mark.parametrize("content", [b"{", b"NaN", b'{"a": 1, "a": 2}', b"\xff", b"[" * 100 + b"]" * 100])
async def test_a_body_that_is_not_plain_json_is_refused_and_nothing_runs(
    team: Team, gateway: EdgeStandIn, content: bytes
) -> None:
    await team.create()

    assert (await team.api.post(INVOKE, content=content, headers=JSON)).status == 400

    assert gateway.calls == []


async def test_a_megabyte_is_taken_and_a_byte_more_is_refused(team: Team, gateway: EdgeStandIn) -> None:
    await team.create()
    body = b'{"a": 1}'.ljust(MB)

    assert (await team.api.post(INVOKE, content=body, headers=JSON)).status == 200
    assert (await team.api.post(INVOKE, content=body + b" ", headers=JSON)).status == 400

    assert len(gateway.calls) == 1


async def test_a_function_that_fails_is_a_success_that_says_so(team: Team, gateway: EdgeStandIn) -> None:
    await team.create()
    gateway.fate = lambda call: Fate(error="the function ran past its 1000 ms timeout")

    reply = await team.api.post(INVOKE)

    assert (reply.status, reply.data["status"], reply.data["result"]) == (200, "error", None)
    assert reply.data["error"] == "the function ran past its 1000 ms timeout"


async def test_a_full_queue_is_told_with_the_time_to_come_back(team: Team, gateway: EdgeStandIn) -> None:
    await team.create()
    gateway.fate = lambda call: Fate(refusal=429)

    reply = await team.api.post(INVOKE)

    assert (reply.status, reply.error["code"], reply.headers["retry-after"]) == (429, "rate_limited", "1")
    assert reply.error["traceId"] == reply.headers["x-request-id"]


async def test_a_gateway_that_has_just_started_is_told_of_the_function_first(team: Team, gateway: EdgeStandIn) -> None:
    made = (await team.create()).data["id"]
    gateway.routes.clear()
    gateway.fate = lambda call: Fate() if made in gateway.routes else Fate(refusal=404)

    assert (await team.api.post(INVOKE)).status == 200


@pytest.mark.usefixtures("impatient")
async def test_without_a_gateway_the_caller_is_told_that_nothing_ran(team: Team, gateway: EdgeStandIn) -> None:
    await team.create()
    await gateway.stop()

    reply = await team.api.post(INVOKE)

    assert (reply.status, reply.error["code"]) == (500, "internal")
    assert "the function was not called" in reply.error["message"]


async def test_a_gateway_that_dies_on_the_way_is_not_asked_again(team: Team, gateway: EdgeStandIn) -> None:
    await team.create()
    gateway.fate = lambda call: Fate(answers=False)

    reply = await team.api.post(INVOKE)

    assert (reply.status, reply.error["code"], len(gateway.calls)) == (500, "internal", 1)


async def test_an_unknown_function_is_not_found_and_nothing_is_asked(team: Team, gateway: EdgeStandIn) -> None:
    assert (await team.api.post(INVOKE)).status == 404
    assert gateway.calls == []


async def test_a_key_makes_a_repeated_invocation_run_once(team: Team, gateway: EdgeStandIn) -> None:
    await team.create()
    headers = {**JSON, "Idempotency-Key": "one"}
    body = json.dumps({"a": 1}).encode()

    first = await team.api.post(INVOKE, content=body, headers=headers)
    again = await team.api.post(INVOKE, content=body, headers=headers)

    assert (first.body, len(gateway.calls)) == (again.body, 1)
