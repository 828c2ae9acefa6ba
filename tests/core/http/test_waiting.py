"""`?wait=<seconds>`: a write that starts slow work is answered at the end of that work."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Mapping
from typing import Any

import pytest
from tests.client import Client, Reply
from tests.core.http.lab import ADA, Guest, LabCaller, lab_app, one_store
from tests.core.http.live_server import HEALTH, live_server, request

from moorage.core.db.store import Database
from moorage.core.db.tx import Tx
from moorage.core.http import waiting
from moorage.core.http.dispatch import Dispatcher
from moorage.core.http.idempotency.once import Write
from moorage.core.http.models import Output
from moorage.core.http.route import Router
from moorage.core.http.waiting import Progress
from moorage.errors import NotFound

pytestmark = [pytest.mark.anyio, pytest.mark.both_stores]

PATIENCE_S = 20
KEY = {"Idempotency-Key": "hull-7"}


class Hull(Output, frozen=True):
    name: str
    status: str


class Dock:
    """Hulls, built one at a time, whose state the test sets."""

    def __init__(self) -> None:
        self.status = "queued"
        self.started: list[str] = []
        self.looks = 0
        self.looked = asyncio.Event()

    def follow(self, tx: Tx, caller: LabCaller, answer: Hull, path: Mapping[str, Any]) -> Progress:
        assert (caller.actor, path["name"], answer.status) == ("ada", answer.name, "queued")
        if self.status == "sunk":
            raise NotFound("There is no such hull")
        self.looks += 1
        self.looked.set()
        return Progress(Hull(answer.name, self.status), self.status in ("done", "failed"))

    async def seen(self) -> None:
        """Wait until a request waits."""
        async with asyncio.timeout(PATIENCE_S):
            await self.looked.wait()


@pytest.fixture
def dock() -> Dock:
    return Dock()


@pytest.fixture
def asgi(db: Database, dock: Dock) -> Dispatcher:
    router = Router("Lab")

    @router.post("/sync/{name}", status=202, follow=dock.follow)
    def build_hull(tx: Tx, caller: LabCaller, name: str) -> Hull:
        tx.after_commit(lambda: dock.started.append(name))
        return Hull(name, "queued")

    @router.post("/async/{name}", status=202, follow=dock.follow)
    async def build_hull_later(caller: LabCaller, name: str, write: Write) -> Hull:
        def unit(tx: Tx) -> Hull:
            tx.after_commit(lambda: dock.started.append(name))
            return Hull(name, "queued")

        return await write(unit)

    @router.post("/refused/{name}", follow=dock.follow)
    def refuse(caller: LabCaller, name: str) -> Hull:
        raise NotFound("There is no such dock")

    @router.get("/hulls")
    def list_hulls() -> list[str]:
        return dock.started

    return lab_app(db, router)


@pytest.fixture
def api(asgi: Dispatcher) -> Client:
    return Client(asgi, token=ADA)


both_kinds = pytest.mark.parametrize("path", ["/v1/sync/argo", "/v1/async/argo"])


async def build(api: Client, dock: Dock, path: str, *, until: str, wait: int = 60, **options: Any) -> Reply:
    """Send a write that waits, and set the state of its work while it does."""
    request = asyncio.ensure_future(api.post(f"{path}?wait={wait}", **options))
    await dock.seen()
    dock.status = until
    async with asyncio.timeout(PATIENCE_S):
        return await request


@both_kinds
@pytest.mark.parametrize("ended", ["done", "failed"])
async def test_the_answer_has_the_state_at_the_end_of_the_work(api: Client, dock: Dock, path: str, ended: str) -> None:
    reply = await build(api, dock, path, until=ended)

    assert (reply.status, reply.data) == (202, {"name": "argo", "status": ended})
    assert dock.started == ["argo"]


@both_kinds
@pytest.mark.parametrize("query", ["", "?wait=0"])
async def test_without_a_wait_the_answer_comes_at_once(api: Client, dock: Dock, path: str, query: str) -> None:
    reply = await api.post(path + query)

    assert (reply.status, reply.data) == (202, {"name": "argo", "status": "queued"})
    assert dock.looks == 0


@both_kinds
async def test_when_the_time_is_up_the_answer_has_the_state_of_that_moment(api: Client, dock: Dock, path: str) -> None:
    reply = await build(api, dock, path, until="running", wait=1)

    assert (reply.status, reply.data["status"]) == (202, "running")


@both_kinds
@pytest.mark.parametrize("wait", ["-1", "61", "1.5", "soon", ""])
async def test_a_wait_out_of_range_is_refused_before_anything_starts(
    api: Client, dock: Dock, path: str, wait: str
) -> None:
    reply = await api.post(f"{path}?wait={wait}")

    assert (reply.status, set(reply.error["fields"])) == (400, {"wait"})
    assert dock.started == []


async def test_a_refused_write_does_not_wait(api: Client, dock: Dock) -> None:
    reply = await api.post("/v1/refused/argo?wait=60")

    assert (reply.status, dock.looks) == (404, 0)


async def test_a_route_that_starts_no_work_ignores_the_query(api: Client) -> None:
    assert (await api.get("/v1/hulls?wait=soon")).status == 200


async def test_work_whose_resource_is_deleted_ends_the_wait_with_the_last_state(api: Client, dock: Dock) -> None:
    reply = await build(api, dock, "/v1/sync/argo", until="sunk")

    assert (reply.status, reply.data["status"]) == (202, "queued")


@both_kinds
async def test_a_client_that_disconnects_ends_the_wait_and_the_work_goes_on(
    asgi: Dispatcher, dock: Dock, path: str
) -> None:
    guest = Guest(asgi, f"{path}?wait=60", authorization=f"Bearer {ADA}")
    guest.scope["method"] = "POST"
    await guest.come()
    await dock.seen()

    await guest.leaves()

    assert guest.sent.messages == []
    assert dock.started == ["argo"]


async def test_waiting_requests_are_answered_when_the_process_stops(asgi: Dispatcher, api: Client, dock: Dock) -> None:
    request = asyncio.ensure_future(api.post("/v1/sync/argo?wait=60"))
    await dock.seen()

    asgi.stop_waiting()
    async with asyncio.timeout(PATIENCE_S):
        reply = await request

    assert (reply.status, reply.data["status"]) == (202, "queued")


async def test_a_revoked_credential_ends_the_wait(
    api: Client, asgi: Dispatcher, dock: Dock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(waiting, "RECHECK_S", 0.01)

    def refuse(*_: object) -> None:
        raise NotFound("There is no such organization")

    monkeypatch.setattr(asgi.gate, "recheck", refuse)

    async with asyncio.timeout(PATIENCE_S):
        reply = await api.post("/v1/sync/argo?wait=60")

    assert (reply.status, reply.data["status"]) == (202, "queued")


async def test_others_are_served_while_a_request_waits(api: Client, dock: Dock) -> None:
    request = asyncio.ensure_future(api.post("/v1/sync/argo?wait=60"))
    await dock.seen()

    others = [(await api.get("/v1/hulls")).status for _ in range(20)]

    assert set(others) == {200}
    assert not request.done()
    dock.status = "done"
    assert (await request).data["status"] == "done"


@both_kinds
async def test_a_repeated_key_gets_the_answer_at_the_end_and_no_second_wait(api: Client, dock: Dock, path: str) -> None:
    first = await build(api, dock, path, until="done", headers=KEY)
    dock.status = "queued"

    again = await api.post(f"{path}?wait=60", headers=KEY)

    assert (again.status, again.body) == (first.status, first.body)
    assert again.headers["idempotency-replayed"] == "true"
    assert dock.started == ["argo"]


@both_kinds
async def test_a_key_is_at_work_while_its_request_waits(api: Client, dock: Dock, path: str) -> None:
    request = asyncio.ensure_future(api.post(f"{path}?wait=60", headers=KEY))
    await dock.seen()

    meanwhile = await api.post(f"{path}?wait=60", headers=KEY)
    dock.status = "done"

    assert (meanwhile.status, meanwhile.error["code"]) == (409, "conflict")
    assert (await request).data["status"] == "done"


@both_kinds
async def test_a_key_whose_client_disconnected_has_the_answer_without_the_wait(
    asgi: Dispatcher, api: Client, dock: Dock, path: str
) -> None:
    guest = Guest(asgi, f"{path}?wait=60", authorization=f"Bearer {ADA}", idempotency_key="hull-7")
    guest.scope["method"] = "POST"
    await guest.come()
    await dock.seen()
    await guest.leaves()

    again = await api.post(path, headers=KEY)

    assert (again.status, again.data["status"]) == (202, "queued")
    assert dock.started == ["argo"]


class Slip:
    """Work that never ends, and the waits of requests on real connections."""

    def __init__(self) -> None:
        self.looked = threading.Event()
        self.ended = threading.Event()

    def follow(self, tx: Tx, caller: LabCaller, answer: Hull, path: Mapping[str, Any]) -> Progress:
        self.looked.set()
        return Progress(Hull(answer.name, "running"), False)

    def app(self, db: Database, monkeypatch: pytest.MonkeyPatch) -> Dispatcher:
        router = Router("Lab")

        @router.post("/hulls/{name}", follow=self.follow)
        def build_hull(name: str) -> Hull:
            return Hull(name, "queued")

        dispatcher = lab_app(db, router)
        wait = dispatcher.waiter.wait

        async def watched(*arguments: Any) -> Any:
            try:
                return await wait(*arguments)
            finally:
                self.ended.set()

        monkeypatch.setattr(dispatcher.waiter, "wait", watched)
        return dispatcher


@one_store
@pytest.mark.parametrize("behind", [b"", HEALTH], ids=["alone", "with a request waiting behind it"])
async def test_a_closed_connection_ends_the_wait(db: Database, monkeypatch: pytest.MonkeyPatch, behind: bytes) -> None:
    slip = Slip()

    with live_server(slip.app(db, monkeypatch)) as server:
        with server.dial() as wire:
            wire.send(request("POST", "/v1/hulls/argo?wait=60", Authorization=f"Bearer {ADA}") + behind)
            assert await asyncio.to_thread(slip.looked.wait, PATIENCE_S)
        ended = await asyncio.to_thread(slip.ended.wait, PATIENCE_S)

        assert ended
        assert await asyncio.to_thread(server.is_serving)
        assert server.crashes == []


@one_store
async def test_a_stopping_server_answers_a_waiting_connection(db: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    slip = Slip()
    app = slip.app(db, monkeypatch)

    with live_server(app) as server, server.dial() as wire:
        wire.send(request("POST", "/v1/hulls/argo?wait=60", Authorization=f"Bearer {ADA}"))
        assert await asyncio.to_thread(slip.looked.wait, PATIENCE_S)
        server.loop.call_soon_threadsafe(app.stop_waiting)
        reply = await asyncio.to_thread(wire.reply)

    assert (reply.status, reply.data) == (200, {"name": "argo", "status": "running"})
