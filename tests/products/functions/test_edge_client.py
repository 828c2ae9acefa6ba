"""The client of the edge on a real socket, through restarts of the edge."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.products.functions.edge_stand_in import EdgeStandIn, Fate, running

from moorage.errors import Conflict, MoorageError, NotFound, RateLimited
from moorage.products.functions.edge_client import Call, EdgeClient, EdgeLost, EdgeRoute, EdgeUnreachable

pytestmark = pytest.mark.anyio

CALL = Call(7, "a" * 32, "schedule", {"x": 1}, 3)


@pytest.fixture
def socket(tmp_path: Path) -> Path:
    return tmp_path / "edge.sock"


@pytest.fixture
async def edge(socket: Path) -> AsyncIterator[EdgeStandIn]:
    async with running(EdgeStandIn(socket)) as stand_in:
        yield stand_in


@pytest.fixture
async def client(socket: Path) -> AsyncIterator[EdgeClient]:
    made = EdgeClient(socket)
    yield made
    await made.close()


def make_route(id_: int, revision: int = 1) -> EdgeRoute:
    return EdgeRoute(
        id=id_,
        org="12",
        name="hello",
        revision=revision,
        version=1,
        runtime="python:3.11",
        digest="0" * 64,
        main="main.py",
        timeout_ms=1000,
        memory_mb=128,
        env=[("A", "1")],
        network="internet",
        raw_http=False,
        own_options=False,
        secrets=[],
    )


async def test_a_call_goes_out_as_agreed_and_its_outcome_comes_back(edge: EdgeStandIn, client: EdgeClient) -> None:
    edge.fate = lambda call: Fate(result={"deep": [1, None, "é"]})

    outcome = await client.invoke(CALL)

    assert edge.calls == [
        {"function": 7, "activation": "a" * 32, "door": "schedule", "params": {"x": 1}, "schedule": 3}
    ]
    assert (outcome.status, outcome.error, outcome.version) == ("success", None, 1)
    assert (outcome.duration_ms, outcome.activation_id) == (5.0, "a" * 32)
    assert bytes(outcome.result) == b'{"deep": [1, null, "\\u00e9"]}'


async def test_a_function_that_fails_is_an_outcome_and_no_exception(edge: EdgeStandIn, client: EdgeClient) -> None:
    edge.fate = lambda call: Fate(error="it broke")

    outcome = await client.invoke(CALL)

    assert (outcome.status, outcome.error) == ("error", "it broke")


@pytest.mark.parametrize(("status", "error"), [(404, NotFound), (429, RateLimited), (409, Conflict), (500, EdgeLost)])
async def test_a_refusal_is_an_error_that_says_which(
    edge: EdgeStandIn, client: EdgeClient, status: int, error: type[MoorageError]
) -> None:
    edge.fate = lambda call: Fate(refusal=status)

    with pytest.raises(error):
        await client.invoke(CALL)


@pytest.mark.usefixtures("impatient")
async def test_a_gateway_that_is_not_there_was_sent_nothing(client: EdgeClient) -> None:
    with pytest.raises(EdgeUnreachable):
        await client.invoke(CALL)


async def test_a_call_waits_for_a_gateway_that_is_just_restarting(socket: Path, client: EdgeClient) -> None:
    edge = EdgeStandIn(socket)
    calling = asyncio.create_task(client.invoke(CALL))
    await asyncio.sleep(0.2)

    async with running(edge):
        outcome = await calling

    assert outcome.status == "success"
    assert len(edge.calls) == 1


async def test_a_gateway_that_breaks_off_may_have_run_the_call_so_it_is_not_sent_again(
    edge: EdgeStandIn, client: EdgeClient
) -> None:
    edge.fate = lambda call: Fate(answers=False)

    with pytest.raises(EdgeLost):
        await client.invoke(CALL)

    assert len(edge.calls) == 1


async def test_a_connection_that_a_restart_closed_is_not_used_again(edge: EdgeStandIn, client: EdgeClient) -> None:
    await client.invoke(CALL)
    await edge.stop()
    await edge.start()

    outcome = await client.invoke(CALL)

    assert outcome.status == "success"


async def test_hundreds_of_calls_are_in_flight_at_once(edge: EdgeStandIn, client: EdgeClient) -> None:
    release = asyncio.Event()
    edge.fate = lambda call: Fate(waits=release)

    calls = [asyncio.create_task(client.invoke(Call(1, f"{number:032x}", "api", None))) for number in range(300)]
    while len(edge.calls) < 300:
        await asyncio.sleep(0.01)
    release.set()
    outcomes = await asyncio.gather(*calls)

    assert [outcome.activation_id for outcome in outcomes] == [f"{number:032x}" for number in range(300)]


async def test_routes_are_replaced_changed_and_dropped(edge: EdgeStandIn, client: EdgeClient) -> None:
    await client.put_routes([make_route(1), make_route(2)])
    await client.change_routes([make_route(3), make_route(2, revision=5)], drop=[1])

    health = await client.health()

    assert health.routes == 2
    assert {id_: route["revision"] for id_, route in edge.routes.items()} == {2: 5, 3: 1}
    assert edge.routes[3] == {
        "id": 3,
        "org": "12",
        "name": "hello",
        "revision": 1,
        "version": 1,
        "runtime": "python:3.11",
        "digest": "0" * 64,
        "main": "main.py",
        "timeout_ms": 1000,
        "memory_mb": 128,
        "env": [["A", "1"]],
        "network": "internet",
        "raw_http": False,
        "own_options": False,
        "secrets": [],
    }


async def test_each_start_of_the_gateway_can_be_told_from_the_one_before(edge: EdgeStandIn, client: EdgeClient) -> None:
    before = await client.health()
    await edge.stop()
    await edge.start()

    after = await client.health()

    assert before.started != after.started
