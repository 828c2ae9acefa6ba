"""Calls to edges elsewhere: real connections on loopback, with real certificates."""

from __future__ import annotations

import asyncio
import itertools
import json
import ssl
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from tests.ports import free_port
from tests.products.functions.edge_stand_in import EdgeStandIn, Fate, running
from tests.relays import relaying

from moorage.core.kit.crypto import KeyRing
from moorage.errors import Conflict, RateLimited
from moorage.products.functions.edge_client import Call, EdgeLost, EdgeUnreachable
from moorage.products.functions.logs.log_files import FunctionLogs, LogLimits, Text
from moorage.products.functions.remote import client as remote_client
from moorage.products.functions.remote.client import RemoteEdge
from moorage.products.functions.remote.listener import EdgeListener
from moorage.runtime.machines.certificates import host_of, make_contexts

pytestmark = pytest.mark.anyio

KEY, OTHER_KEY = bytes(range(32)), bytes(range(1, 33))
MB = 2**20
NOW_MS = 1_700_000_000_000


@dataclass
class Place:
    """An edge stand-in with the listener beside it, as on another machine."""

    folder: Path
    key: bytes = KEY
    port: int = 0
    published: list[tuple[int, int]] = field(default_factory=list)
    is_caught_up: bool = True

    def __post_init__(self) -> None:
        self.folder.mkdir()
        self.edge = EdgeStandIn(self.folder / "edge.sock")
        self.logs = FunctionLogs(self.folder / "logs", LogLimits(8 * MB, 16 * MB, 0))
        self.listener = EdgeListener(KeyRing((self.key,)), self.edge.socket, self._catch_up, self._publish, self.logs)

    async def _catch_up(self) -> bool:
        return self.is_caught_up

    async def _publish(self, org_id: int, function_id: int) -> None:
        self.published.append((org_id, function_id))

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"


@asynccontextmanager
async def placed(folder: Path, key: bytes = KEY) -> AsyncIterator[Place]:
    place = Place(folder, key)
    async with running(place.edge):
        place.port = await place.listener.open("127.0.0.1", 0)
        try:
            yield place
        finally:
            await place.listener.close()


@asynccontextmanager
async def client_of(*addresses: str, key: bytes = KEY) -> AsyncIterator[RemoteEdge]:
    client = RemoteEdge(addresses, KeyRing((key,)))
    try:
        yield client
    finally:
        await client.close()


@pytest.fixture
async def places(tmp_path: Path) -> AsyncIterator[list[Place]]:
    async with AsyncExitStack() as stack:
        yield [await stack.enter_async_context(placed(tmp_path / name)) for name in ("north", "south")]


@pytest.fixture(autouse=True)
def short_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remote_client, "WAIT_S", 0.5)


def api_call(number: int = 0) -> Call:
    return Call(7, f"{number:032d}", "api", {"x": 1})


def scheduled(number: int = 0) -> Call:
    return Call(7, f"{number:032d}", "schedule", {"x": 1}, 3)


async def test_calls_go_to_all_edges_and_their_outcomes_come_back(places: list[Place]) -> None:
    for place in places:
        place.edge.fate = lambda call: Fate(result={"deep": [1, None, "é"]})
    async with client_of(*(place.address for place in places)) as client:
        outcomes = await asyncio.gather(*(client.invoke(api_call(number)) for number in range(20)))

    assert [outcome.activation_id for outcome in outcomes] == [f"{number:032d}" for number in range(20)]
    assert [json.loads(bytes(outcome.result)) for outcome in outcomes] == [{"deep": [1, None, "é"]}] * 20
    assert [len(place.edge.calls) for place in places] == [10, 10]


async def test_connections_are_kept(places: list[Place]) -> None:
    with relaying(places[0].port) as relay:
        async with client_of(f"127.0.0.1:{relay.port}") as client:
            for number in range(10):
                await client.invoke(api_call(number))
        assert relay.count == 1


@pytest.mark.boundary("stranger-to-platform", "Only processes with the master key call functions at the link port.")
async def test_a_client_without_the_master_key_is_sent_away(places: list[Place]) -> None:
    async with client_of(places[0].address, key=OTHER_KEY) as client:
        with pytest.raises(EdgeUnreachable):
            await client.invoke(api_call())
        assert await client.catch_up() is False
    assert places[0].edge.calls == []


async def test_a_server_without_the_master_key_gets_no_call(tmp_path: Path) -> None:
    async with placed(tmp_path / "false", OTHER_KEY) as place, client_of(place.address) as client:
        with pytest.raises(EdgeUnreachable):
            await client.invoke(api_call())
    assert place.edge.calls == []


@pytest.mark.boundary("stranger-to-platform", "Only processes with the master key call functions at the link port.")
async def test_a_client_without_a_certificate_is_sent_away(places: list[Place]) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    reader, writer = await asyncio.open_connection("127.0.0.1", places[0].port, ssl=context)
    writer.write(b"records\n")
    with pytest.raises((OSError, asyncio.IncompleteReadError)):
        await reader.readexactly(1)
    writer.close()


async def test_a_machine_cannot_pose_as_an_edge() -> None:
    """Its certificate has the right authority, and another name."""
    received = asyncio.Event()

    async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if await reader.read(1):
            received.set()
        writer.close()

    context = make_contexts(KeyRing((KEY,)), host_of(1)).server
    server = await asyncio.start_server(accept, "127.0.0.1", 0, ssl=context)
    async with server, client_of(f"127.0.0.1:{server.sockets[0].getsockname()[1]}") as client:
        with pytest.raises(EdgeUnreachable):
            await client.invoke(api_call())
    assert not received.is_set()


async def test_a_key_of_a_rotation_is_accepted(places: list[Place]) -> None:
    both = EdgeListener(
        KeyRing((KEY, OTHER_KEY)), places[0].edge.socket, places[0]._catch_up, places[0]._publish, places[0].logs
    )
    port = await both.open("127.0.0.1", 0)
    client = RemoteEdge([f"127.0.0.1:{port}"], KeyRing((OTHER_KEY, KEY)))
    try:
        assert (await client.invoke(api_call())).status == "success"
    finally:
        await client.close()
        await both.close()


async def test_an_unknown_request_ends_the_connection(places: list[Place]) -> None:
    context = make_contexts(KeyRing((KEY,)), host_of(0)).client
    for line in (b"reboot\n", b"publish one two\n", b"x" * 10_000 + b"\n", b"log 1\n"):
        reader, writer = await asyncio.open_connection(
            "127.0.0.1", places[0].port, ssl=context, server_hostname="edge.moorage.internal"
        )
        writer.write(line)
        assert await reader.read() == b""
        writer.close()
    assert places[0].published == []


async def test_an_edge_that_is_away_is_passed_over_and_comes_back(places: list[Place]) -> None:
    north, south = places
    await north.edge.stop()
    async with client_of(north.address, south.address) as client:
        for number in range(6):
            await client.invoke(api_call(number))
        assert len(south.edge.calls) == 6
        assert await client.catch_up() is True  # The process that stores its records is there.
        await north.edge.start()
        for number in itertools.count(6):
            await client.invoke(api_call(number))
            if north.edge.calls:
                break
            await asyncio.sleep(0.05)


async def test_a_call_waits_for_an_edge_that_restarts(places: list[Place], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remote_client, "WAIT_S", 20.0)
    place = places[0]
    async with client_of(place.address) as client:
        await client.invoke(api_call(1))
        await place.edge.stop()
        while client.hosts[0]._open:  # A call on a connection that is about to close may have been received.
            await asyncio.sleep(0.01)
        called = asyncio.create_task(client.invoke(api_call(2)))
        await asyncio.sleep(0.3)
        await place.edge.start()
        assert (await called).status == "success"


async def test_no_edge_at_all_means_that_nothing_was_sent() -> None:
    async with client_of(f"127.0.0.1:{free_port()}") as client:
        with pytest.raises(EdgeUnreachable):
            await client.invoke(api_call())
        with pytest.raises(EdgeUnreachable):
            await client.health()
        assert await client.catch_up() is False
        assert await client.read_log(1, 2, "1700000000000-north_abc:0:10") is None
        await client.publish(1, 2)


async def test_an_edge_that_ends_during_a_call_is_not_asked_twice(places: list[Place]) -> None:
    for place in places:
        place.edge.fate = lambda call: Fate(answers=False)
    async with client_of(*(place.address for place in places)) as client:
        with pytest.raises(EdgeLost):
            await client.invoke(api_call())
    assert sum(len(place.edge.calls) for place in places) == 1


async def test_a_network_that_breaks_during_a_call_is_not_a_second_call(places: list[Place]) -> None:
    going = asyncio.Event()
    places[0].edge.fate = lambda call: Fate(waits=going)
    with relaying(places[0].port) as relay:
        async with client_of(f"127.0.0.1:{relay.port}", places[1].address) as client:
            calls = [asyncio.create_task(client.invoke(api_call(number))) for number in range(2)]
            while not places[0].edge.calls:
                await asyncio.sleep(0.01)
            relay.cut()
            results = await asyncio.gather(*calls, return_exceptions=True)
            going.set()
    assert sum(isinstance(each, EdgeLost) for each in results) == 1
    assert [len(place.edge.calls) for place in places] == [1, 1]


async def test_a_slow_network_only_delays(places: list[Place]) -> None:
    with relaying(places[0].port) as relay:
        relay.delay_s = 0.25
        async with client_of(f"127.0.0.1:{relay.port}") as client:
            outcomes = await asyncio.gather(*(client.invoke(api_call(number)) for number in range(5)))
            assert await client.catch_up() is True
            await client.publish(1, 2)
    assert {outcome.status for outcome in outcomes} == {"success"}
    assert len(places[0].edge.calls) == 5
    assert places[0].published == [(1, 2)]


async def test_an_edge_whose_queue_is_full_passes_the_call_on(places: list[Place]) -> None:
    places[0].edge.fate = lambda call: Fate(refusal=429)
    async with client_of(*(place.address for place in places)) as client:
        for number in range(4):
            assert (await client.invoke(api_call(number))).status == "success"
        places[1].edge.fate = lambda call: Fate(refusal=429)
        with pytest.raises(RateLimited):
            await client.invoke(api_call(9))


async def test_the_edge_of_a_run_depends_on_its_id_alone(places: list[Place]) -> None:
    addresses = [place.address for place in places]
    for order in (addresses, addresses[::-1]):
        async with client_of(*order) as client:
            for number in range(12):
                await client.invoke(scheduled(number))
    first, second = ({call["activation"] for call in place.edge.calls} for place in places)
    assert first
    assert second
    assert not first & second


async def test_a_run_that_may_be_known_waits_for_every_edge(places: list[Place]) -> None:
    places[1].edge.known.add(scheduled(1).activation_id)
    async with client_of(*(place.address for place in places)) as client:
        with pytest.raises(Conflict):
            await client.invoke(scheduled(1), is_repeated=True)
        assert (await client.invoke(scheduled(2), is_repeated=True)).status == "success"
        await places[0].listener.close()
        await client.close()
        with pytest.raises(EdgeUnreachable):
            await client.invoke(scheduled(3), is_repeated=True)
    assert sum(len(place.edge.calls) for place in places) == 1


async def test_records_are_stored_only_if_every_edge_says_so(places: list[Place]) -> None:
    async with client_of(*(place.address for place in places)) as client:
        assert await client.catch_up() is True
        places[1].is_caught_up = False
        assert await client.catch_up() is False
        await client.publish(3, 4)
    assert [place.published for place in places] == [[(3, 4)], [(3, 4)]]


async def test_the_oldest_start_is_that_of_all_edges(places: list[Place]) -> None:
    async with client_of(*(place.address for place in places)) as client:
        starts = [place.edge._started for place in places]
        assert (await client.health()).started == min(starts)


async def test_logs_are_read_where_they_are(places: list[Place]) -> None:
    texts = [Text(1, 2, b"first " * 1000), Text(1, 2, b"second")]
    references = places[1].logs.put(texts, NOW_MS)
    async with client_of(*(place.address for place in places)) as client:
        found = [await client.read_log(1, 2, reference) for reference in references]
        assert found == [text.packed for text in texts]
        assert await client.read_log(1, 3, references[0]) is None
        assert await client.read_log(1, 2, references[0].replace("-", "-x", 1)) is None
