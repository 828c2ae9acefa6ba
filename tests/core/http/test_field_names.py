"""Names in `error.fields`: as the client sent them, also in unions and in queries that are not UTF-8."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import pytest
from pydantic import Field, RootModel
from tests.client import Client, Reply
from tests.core.http.lab import lab, one_store

from moorage.core.db.store import Database
from moorage.core.db.tx import Tx
from moorage.core.http.models import Input, QueryInput, QueryInt, optional
from moorage.core.http.route import Router

pytestmark = [pytest.mark.anyio, one_store]


class Crew(Input):
    min_hands: Annotated[int, Field(ge=1, le=50)]


class BoatInput(Input):
    kind: Literal["boat"]
    name: str
    crew: Crew = optional()


class CraneInput(Input):
    kind: Literal["crane"]


class MachineInput(RootModel[BoatInput | CraneInput]):
    root: Annotated[BoatInput | CraneInput, Field(discriminator="kind")]


class FindQuery(QueryInput):
    text: str = ""
    limit: QueryInt = 0


@pytest.fixture
def machines(db: Database) -> Client:
    router = Router("Lab")

    @router.post("/machines")
    def make(tx: Tx, body: MachineInput) -> None:
        return None

    @router.get("/machines")
    def find(tx: Tx, query: FindQuery) -> None:
        return None

    return lab(db, router)


def fields_of(reply: Reply) -> Any:
    assert (reply.status, reply.error["code"]) == (400, "bad_request")
    return reply.error["fields"]


async def test_a_field_with_the_name_of_a_tag_does_not_change_the_names_of_others(machines: Client) -> None:
    async def problems(body: Any) -> Any:
        return fields_of(await machines.post("/v1/machines", json=body))

    assert await problems({"kind": "boat", "boat": 1}) == {"name": "is required"}
    assert await problems({"kind": "boat", "boat": {"name": 1}, "crew": {}}) == {
        "name": "is required",
        "crew.minHands": "is required",
    }
    assert await problems({"kind": "car", "car": 1}) == {"kind": "should be one of 'boat', 'crane'"}
    assert await problems({"boat": 1}) == {"kind": "is required"}
    assert await problems(["boat"]) == {"body": "should be an object"}


@pytest.mark.parametrize(
    ("query", "names"),
    [
        ("text=%ff", ["text"]),
        ("text=%ED%A0%80", ["text"]),
        ("limit=%ff", ["limit"]),
        ("text=caf%C3&limit=1&other=%ff", ["text", "other"]),
        ("%ff=1", ["%FF"]),
        ("%ff%00=1", ["%FF%00"]),
    ],
)
async def test_parameters_of_a_query_that_are_not_utf8_are_named(
    machines: Client, query: str, names: list[str]
) -> None:
    reply = await machines.get(f"/v1/machines?{query}")

    assert fields_of(reply) == dict.fromkeys(names, "should be UTF-8")
