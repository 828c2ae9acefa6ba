"""Test routes with idempotency keys: each kind of handler takes orders and counts its effects."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import Any

import pytest
from tests.client import Client, Reply
from tests.core.http.lab import LabCaller, lab

from moorage.core.db.store import Database
from moorage.core.db.tx import Tx
from moorage.core.http.answer import Answer, plain_json
from moorage.core.http.idempotency import keys as idempotency
from moorage.core.http.idempotency.once import Write
from moorage.core.http.models import Input, Output
from moorage.core.http.route import Router
from moorage.errors import BadRequest, Conflict, Internal, RateLimited

both_kinds = pytest.mark.parametrize("path", ["/v1/sync", "/v1/async", "/v1/outside"])
ERRORS = {"bad": BadRequest, "taken": Conflict, "busy": RateLimited, "broken": Internal, "crash": RuntimeError}


class OrderInput(Input):
    item: str
    trouble: str | None = None


class Order(Output, frozen=True):
    number: int
    item: str


class Secret(Output, frozen=True):
    secret: str


@dataclass
class Yard:
    """Counts effects, and can be paused within one."""

    router: Router
    client: Client
    orders: list[str] = field(default_factory=list)
    may_go_on: asyncio.Event = field(default_factory=asyncio.Event)
    started: asyncio.Event = field(default_factory=asyncio.Event)

    def take(self, body: OrderInput) -> Order:
        self.orders.append(body.item)
        if body.trouble:
            raise ERRORS[body.trouble]("There is trouble")
        return Order(len(self.orders), body.item)

    async def order(self, path: str, item: str = "rope", key: str = "order-7", **more: Any) -> Reply:
        options = {name: more.pop(name) for name in ("token", "headers") if name in more}
        headers = {"Idempotency-Key": key, **options.pop("headers", {})}
        return await self.client.post(path, json={"item": item, **more}, headers=headers, **options)


def make_yard(db: Database) -> Yard:
    """Return a yard with a route for each kind of handler."""
    router = Router("Lab")
    yard = Yard(router, lab(db, router))

    @router.post("/sync")
    def sync(tx: Tx, body: OrderInput) -> Order:
        return yard.take(body)

    @router.post("/async", status=202)
    async def later(body: OrderInput, write: Write) -> Order:
        return await write(lambda tx: yard.take(body))

    @router.post("/outside")
    async def outside(body: OrderInput) -> Order:
        return yard.take(body)

    @router.post("/berths/{name}")
    def moor(tx: Tx, name: str, body: OrderInput) -> Order:
        return yard.take(body)

    @router.post("/slow")
    async def slow(body: OrderInput, write: Write) -> Order:
        yard.started.set()
        await yard.may_go_on.wait()
        return await write(lambda tx: yard.take(body))

    @router.post("/slow-outside")
    async def slow_outside(body: OrderInput) -> Order:
        yard.started.set()
        await yard.may_go_on.wait()
        return yard.take(body)

    @router.post("/settles")
    async def settles(body: OrderInput, write: Write) -> Order:
        order = await write(lambda tx: yard.take(body))
        yard.started.set()
        await yard.may_go_on.wait()
        if body.item == "late trouble":
            raise Internal("The gateway is away")
        return Order(order.number, "settled") if body.item == "news" else order

    @router.post("/secret", secret=True)
    def secret(tx: Tx, body: OrderInput) -> Secret:
        yard.take(body)
        return Secret("psk_shown_only_once")

    @router.post("/secret-later", secret=True)
    async def secret_later(body: OrderInput, write: Write) -> Secret:
        await write(lambda tx: yard.take(body), answer=lambda _: Secret("psk_shown_only_once"))
        return Secret("psk_shown_only_once")

    @router.post("/long")
    def long(tx: Tx, body: OrderInput) -> Order:
        order = yard.take(body)
        return Order(order.number, "x" * idempotency.MAX_ANSWER_BYTES)

    @router.post("/long-outside")
    async def long_outside(body: OrderInput) -> Order:
        order = yard.take(body)
        return Order(order.number, "x" * idempotency.MAX_ANSWER_BYTES)

    @router.post("/unavailable")
    def unavailable(tx: Tx, body: OrderInput) -> Answer:
        yard.take(body)
        return plain_json({"success": False}, 503)

    @router.post("/bare")
    async def bare(caller: LabCaller) -> Order:
        return yard.take(OrderInput.model_validate({"item": caller.actor}))

    @router.delete("/sync")
    def clear(tx: Tx) -> None:
        yard.orders.append("cleared")

    # The routes refer to the yard, so its client is created after it.
    yard.client = lab(db, router)
    return yard
