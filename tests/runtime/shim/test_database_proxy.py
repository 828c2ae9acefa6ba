"""The proxy of a public database: detection of TLS requests, admission of clients, forwarding."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest
from tests.runtime.sandbox.sandbox_support import outside_address

from moorage.runtime.shim.proxy import proxy as proxy_module
from moorage.runtime.shim.proxy.proxy import DatabaseProxy, _Client
from moorage.runtime.shim.proxy.wire import TOO_MANY, TOO_MANY_OF_ADDRESS, MySQLWire, PostgreSQLWire, Verdict

pytestmark = pytest.mark.anyio

SSL, GSS, CANCEL = (struct.pack("!II", 8, code) for code in (80877103, 80877104, 80877102))
STARTUP = struct.pack("!II", 20, 3 << 16) + b"user\0ada\0\0\0"


def mysql(flags: int, length: int = 32, sequence: int = 1) -> bytes:
    return length.to_bytes(3, "little") + bytes([sequence]) + struct.pack("<I", flags) + bytes(length - 4)


@pytest.mark.parametrize(
    ("data", "verdict"),
    [
        (b"", Verdict.WAIT),
        (SSL[:7], Verdict.WAIT),
        (SSL, Verdict.TLS),
        (SSL + STARTUP, Verdict.INVALID),
        (GSS, Verdict.DECLINE),
        (CANCEL, Verdict.FORWARD),
        (b"\x16\x03\x01", Verdict.FORWARD),
        (STARTUP, Verdict.NO_TLS),
        (b"GET / HTTP/1.1", Verdict.INVALID),
    ],
)
def test_what_a_client_of_postgresql_asks_for_is_recognised(data: bytes, verdict: Verdict) -> None:
    assert PostgreSQLWire().judge(data) is verdict


@pytest.mark.parametrize(
    ("data", "verdict"),
    [
        (b"", Verdict.WAIT),
        (mysql(0xA00)[:20], Verdict.WAIT),
        (mysql(0xA00), Verdict.TLS),
        (mysql(0xA00) + b"\x16\x03\x01", Verdict.TLS),
        (mysql(0x200, 80), Verdict.NO_TLS),
        (mysql(0xA00, 80), Verdict.NO_TLS),
        (mysql(0xA00, sequence=0), Verdict.INVALID),
        (mysql(0x800), Verdict.INVALID),
    ],
)
def test_what_a_client_of_mysql_asks_for_is_recognised(data: bytes, verdict: Verdict) -> None:
    assert MySQLWire().judge(data) is verdict


def admit(proxy: DatabaseProxy, address: str, *, heard: bool) -> str | None:
    client = _Client(proxy)
    client.address = address
    why = proxy.admit(client)
    if heard and why is None:
        proxy.mark_active(client)
    return why


@pytest.mark.boundary("stranger-to-platform", "One address cannot take all connections of a public database.")
def test_one_address_never_has_all_connections_and_silent_ones_make_room() -> None:
    with socket.socket() as unused:
        proxy = DatabaseProxy(unused, ("127.0.0.1", 1), "postgresql", 100)

        stalled = [admit(proxy, "203.0.113.7", heard=True) for _ in range(200)]
        other = admit(proxy, "203.0.113.8", heard=True)
        silent = [admit(proxy, "203.0.113.9", heard=False) for _ in range(200)]
        after = [admit(proxy, "203.0.113.10", heard=True) for _ in range(20)]

    assert stalled == [None] * 75 + [TOO_MANY_OF_ADDRESS] * 125
    assert other is None
    assert silent == [None] * 200
    assert after == [None] * 14 + [TOO_MANY] * 6


Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@asynccontextmanager
async def proxied(serve: Serve, protocol: str = "postgresql", most: int = 100) -> AsyncIterator[tuple[str, int]]:
    """Yield the address of a proxy in front of a server, as another machine connects to it."""
    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    listener = socket.socket()
    listener.bind((outside_address(), 0))
    proxy = DatabaseProxy(listener, server.sockets[0].getsockname(), protocol, most)
    await proxy.open()
    try:
        yield listener.getsockname()
    finally:
        proxy.close()
        server.close()


async def test_a_server_that_declines_tls_gets_nothing_in_clear() -> None:
    got = bytearray()

    async def declining(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        got.extend(await reader.readexactly(8))
        writer.write(b"N")
        got.extend(await reader.read(1000))

    async with proxied(declining) as address:
        reader, writer = await asyncio.open_connection(*address)
        writer.write(GSS)
        declined = await reader.readexactly(1)
        writer.write(SSL)
        with pytest.raises((ConnectionError, asyncio.IncompleteReadError)):
            await reader.readexactly(1)
        writer.close()

    assert (declined, bytes(got)) == (b"N", SSL)


async def test_a_large_answer_passes_whole_and_waits_at_the_server_for_a_slow_client() -> None:
    pieces, written = 64, 0

    async def generous(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal written
        await reader.readexactly(8)
        writer.write(b"S")
        await reader.readexactly(1)
        for _ in range(pieces):
            writer.write(bytes(1 << 20))
            await writer.drain()
            written += 1
        writer.close()

    async with proxied(generous) as address:
        reader, writer = await asyncio.open_connection(*address)
        writer.write(SSL)
        agreed = await reader.readexactly(1)
        writer.write(b"!")
        before = -1
        while before != written:
            before = written
            await asyncio.sleep(0.3)
        got = 0
        while piece := await reader.read(1 << 20):
            got += len(piece)
        writer.close()

    assert before < pieces
    assert (agreed, got) == (b"S", pieces << 20)


@pytest.mark.boundary(
    "stranger-to-platform", "Clients of a public database that come and go leave connections of its server to others."
)
async def test_connections_that_the_server_has_not_closed_yet_count() -> None:
    opened, most_open, may_close = 0, 0, asyncio.Event()

    async def slow(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal opened, most_open
        opened += 1
        most_open = max(most_open, opened)
        writer.write(b"greeting")
        await reader.read()
        await may_close.wait()
        opened -= 1
        writer.close()

    async with proxied(slow, "mysql", most=10) as address:
        for _ in range(40):
            _, passing = await asyncio.open_connection(*address)
            passing.close()
        reader, writer = await asyncio.open_connection(*address)
        may_close.set()
        greeting = await asyncio.wait_for(reader.readexactly(8), 10)
        writer.close()

    assert most_open <= 9
    assert greeting == b"greeting"


@pytest.mark.boundary(
    "stranger-to-platform",
    "Clients that wait for a connection to the server of a public database fill no memory, and end at a deadline.",
)
@pytest.mark.parametrize(
    ("protocol", "request_"), [("mysql", mysql(0xA00)), ("postgresql", SSL)], ids=["mysql", "postgresql"]
)
async def test_a_client_that_waits_for_the_server_is_not_read_and_ends_at_a_deadline(
    protocol: str, request_: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(proxy_module, "TLS_ANSWER_TIMEOUT_S", 0.2)
    with socket.socket() as listener:
        listener.bind((outside_address(), 0))
        proxy = DatabaseProxy(listener, ("127.0.0.1", 1), protocol, 10)
        while not proxy.server_slots.locked():
            await proxy.server_slots.acquire()
        await proxy.open()
        reader, writer = await asyncio.open_connection(*listener.getsockname())
        writer.write(request_)
        while not (clients := [each for each in proxy._clients if each._is_forwarded]):
            await asyncio.sleep(0)
        is_read = clients[0].transport is not None and clients[0].transport.is_reading()

        writer.write(bytes(1 << 20))
        with contextlib.suppress(ConnectionError):
            await asyncio.wait_for(reader.read(), 10)

        writer.close()
        proxy.close()
    assert (is_read, clients[0]._first, proxy.connections) == (False, request_, 0)


async def test_a_client_of_mysql_that_waited_for_the_server_is_forwarded_whole_and_has_no_deadline() -> None:
    received, size = asyncio.get_running_loop().create_future(), len(mysql(0xA00)) + (1 << 20)

    async def receiving(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        received.set_result(await reader.readexactly(size))
        writer.close()

    server = await asyncio.start_server(receiving, "127.0.0.1", 0, limit=1 << 21)
    with socket.socket() as listener:
        listener.bind((outside_address(), 0))
        proxy = DatabaseProxy(listener, server.sockets[0].getsockname(), "mysql", 10)
        while not proxy.server_slots.locked():
            await proxy.server_slots.acquire()
        await proxy.open()
        _, writer = await asyncio.open_connection(*listener.getsockname())
        writer.write(mysql(0xA00))
        while not (clients := [each for each in proxy._clients if each._is_forwarded]):
            await asyncio.sleep(0)
        writer.write(bytes(1 << 20))

        proxy.server_slots.release()
        data = await received

        timer = clients[0]._timer
        writer.close()
        proxy.close()
        server.close()
    assert (data, timer) == (mysql(0xA00) + bytes(1 << 20), None)
