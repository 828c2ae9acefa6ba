"""Links between machines: only machines with the same master key connect, and only to ports that are served."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace

import pytest
from tests.ports import free_port

from moorage.core.env import Env, ThisMachine
from moorage.core.kit.crypto import KeyRing
from moorage.core.telemetry import Telemetry
from moorage.runtime.machines.links import Links

pytestmark = pytest.mark.anyio

ONE, TWO = 1, 2
KEY, OTHER_KEY = bytes(range(32)), bytes(range(1, 33))


def links_of(env: Env, machine_id: int, *keys: bytes) -> Links:
    env = replace(env, ring=KeyRing(keys or (KEY,)), machine=ThisMachine(machine_id, 1))
    return Links(env, Telemetry(quiet=True))


@asynccontextmanager
async def echoing() -> AsyncIterator[int]:
    """Serve a program on loopback that returns what it gets; gives its port."""

    async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while chunk := await reader.read(2**16):
            writer.write(chunk)
            await writer.drain()
        writer.close()

    server = await asyncio.start_server(echo, "127.0.0.1", 0)
    async with server:
        yield server.sockets[0].getsockname()[1]


@asynccontextmanager
async def linked(env: Env, port: int, *, client_key: bytes = KEY) -> AsyncIterator[tuple[Links, Links]]:
    """Start two machines; the second serves a port, and the first knows its address."""
    one, two = links_of(env, ONE, client_key), links_of(env, TWO)
    two.is_own_port.append(lambda each: each == port)
    one.peers[TWO] = await two.listen("127.0.0.1", 0)
    try:
        yield one, two
    finally:
        await one.close()
        await two.close()


async def ask(address: str, sent: bytes) -> bytes:
    """Send bytes to a local address and return as many; fewer where the connection ends."""
    host, _, port = address.rpartition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    try:
        writer.write(sent)
        return await reader.read(len(sent))
    finally:
        writer.close()


async def test_a_port_of_another_machine_is_reached_at_a_local_address(env: Env) -> None:
    async with echoing() as port, linked(env, port) as (one, _):
        address = one.local_address(f"machine-{TWO}:{port}")

        assert address.startswith("127.0.0.1:")
        assert one.local_address(f"machine-{TWO}:{port}") == address
        assert one.local_address("127.0.0.1:20001") == "127.0.0.1:20001"
        assert await ask(address, b"hello") == b"hello"


async def test_large_bodies_pass_in_both_directions(env: Env) -> None:
    sent = bytes(range(256)) * 8192
    async with echoing() as port, linked(env, port) as (one, _):
        _, number = one.local_address(f"machine-{TWO}:{port}").split(":")
        reader, writer = await asyncio.open_connection("127.0.0.1", int(number))
        writer.write(sent)

        assert await reader.readexactly(len(sent)) == sent

        writer.close()


async def test_a_database_has_the_same_port_on_every_machine(env: Env) -> None:
    async with echoing() as port, linked(env, port) as (one, _):
        same = free_port()
        one.keep([(TWO, same)])

        assert await ask(f"127.0.0.1:{same}", b"x") == b""  # the other machine does not serve that port
        one.keep([])
        assert await ask(one.local_address(f"machine-{TWO}:{port}"), b"x") == b"x"


@pytest.mark.boundary("stranger-to-platform", "A machine accepts only machines that have its master key.")
async def test_a_machine_with_another_master_key_is_refused(env: Env) -> None:
    async with echoing() as port, linked(env, port, client_key=OTHER_KEY) as (one, _):
        with pytest.raises((ssl.SSLError, ConnectionError, asyncio.IncompleteReadError)):
            await one.connect((TWO, port))


@pytest.mark.boundary("stranger-to-platform", "A machine accepts only machines that have its master key.")
async def test_a_client_without_a_certificate_is_refused(env: Env) -> None:
    async with echoing() as port, linked(env, port) as (one, _):
        host, _, number = one.peers[TWO].rpartition(":")
        context = ssl.create_default_context()
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE

        # With TLS 1.3 the client learns of the refusal after the handshake.
        reader, writer = await asyncio.open_connection(host, int(number), ssl=context)
        writer.write(f"{port}\n".encode())
        with pytest.raises((ssl.SSLError, ConnectionError, asyncio.IncompleteReadError)):
            await reader.readexactly(3)


@pytest.mark.boundary(
    "stranger-to-platform", "A machine forwards to its replicas, its database servers and its API only."
)
async def test_other_ports_of_a_machine_are_not_reached(env: Env) -> None:
    async with echoing() as port, echoing() as private, linked(env, port) as (one, _):
        with pytest.raises((ConnectionError, asyncio.IncompleteReadError)):
            await one.connect((TWO, private))


async def test_one_machine_cannot_pass_for_another(env: Env) -> None:
    async with echoing() as port, linked(env, port) as (one, _):
        one.peers[3] = one.peers[TWO]

        with pytest.raises(ssl.SSLCertVerificationError):
            await one.connect((3, port))


async def test_machines_connect_while_the_master_key_is_rotated(env: Env) -> None:
    async with echoing() as port:
        one, two = links_of(env, ONE, OTHER_KEY, KEY), links_of(env, TWO, KEY, OTHER_KEY)
        two.is_own_port.append(lambda each: each == port)
        one.peers[TWO] = await two.listen("127.0.0.1", 0)

        assert await ask(one.local_address(f"machine-{TWO}:{port}"), b"hello") == b"hello"

        await one.close()
        await two.close()
