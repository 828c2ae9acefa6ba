"""TLS of the guarded client: authorities, certificates that come with an answer or an error, broken handshakes."""

import asyncio
import contextlib
import os
import socket
import ssl
import sys
from pathlib import Path

import pytest
from cryptography.hazmat.primitives import serialization
from tests.core.net.outbound_servers import (
    LOOPBACK,
    Identity,
    always,
    answer,
    error_of,
    make_certificate,
    phase_of,
    serve,
)

from moorage.core.net.calls import OutboundError
from moorage.core.net.client import GuardedClient

pytestmark = pytest.mark.anyio

CALL = """
import asyncio, sys
from moorage.core.net.calls import OutboundError
from moorage.core.net.client import GuardedClient
from moorage.core.net.targets import TargetPolicy

async def main():
    async with GuardedClient(TargetPolicy(allow_loopback=True)) as client:
        for url in sys.argv[1:]:
            try:
                print((await client.request("GET", url)).status)
            except OutboundError as error:
                print(error.phase)

asyncio.run(main())
"""


@pytest.fixture
def identity(tmp_path: Path) -> Identity:
    """A server certificate for `localhost`, signed by an untrusted authority."""
    authority, authority_key = make_certificate("Test authority", None)
    certificate, key = make_certificate("localhost", (authority.subject, authority_key))
    pem = serialization.Encoding.PEM
    private = key.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    (tmp_path / "server.pem").write_bytes(private + certificate.public_bytes(pem))
    (tmp_path / "ca.pem").write_bytes(authority.public_bytes(pem))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(tmp_path / "server.pem")
    return Identity(context, certificate.public_bytes(serialization.Encoding.DER), tmp_path / "ca.pem")


async def test_a_certificate_of_an_unknown_authority_fails_in_tls(identity: Identity) -> None:
    async with serve(always(answer()), tls=identity.context) as server, GuardedClient(LOOPBACK) as client:
        phase, message = await phase_of(client, server.url(host="localhost", scheme="https"))

        assert phase == "tls"
        assert "issuer certificate" in message
        assert server.requests == []


async def test_a_client_trusts_its_own_authorities_besides_the_usual_ones(identity: Identity) -> None:
    async with (
        serve(always(answer()), tls=identity.context) as server,
        GuardedClient(LOOPBACK, authorities=str(identity.ca_file)) as client,
    ):
        got = await client.request("GET", server.url(host="localhost", scheme="https"))

        assert got.status == 200


async def test_without_verification_the_answer_comes_with_the_certificate(identity: Identity) -> None:
    async with serve(always(answer()), tls=identity.context) as server, GuardedClient(LOOPBACK) as client:
        got = await client.request("GET", server.url(scheme="https"), verify_tls=False)

        assert (got.status, got.certificate) == (200, identity.certificate)


async def test_an_answer_over_plain_http_has_no_certificate() -> None:
    async with serve(always(answer())) as server, GuardedClient(LOOPBACK) as client:
        got = await client.request("GET", server.url(), verify_tls=False)

        assert got.certificate is None


async def test_a_plain_http_port_called_over_https_fails_in_tls() -> None:
    async def refuse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1)
        writer.write(answer(400))
        writer.close()

    async with await asyncio.start_server(refuse, "127.0.0.1", 0) as plain, GuardedClient(LOOPBACK) as client:
        phase, _ = await phase_of(client, f"https://127.0.0.1:{plain.sockets[0].getsockname()[1]}/")

    assert phase == "tls"


async def test_a_connection_that_is_cut_off_in_the_handshake_fails_in_tls() -> None:
    async def cut(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1)
        writer.transport.abort()

    async with await asyncio.start_server(cut, "127.0.0.1", 0) as server, GuardedClient(LOOPBACK) as client:
        phase, _ = await phase_of(client, f"https://127.0.0.1:{server.sockets[0].getsockname()[1]}/")

    assert phase == "tls"


async def test_a_refused_certificate_comes_with_the_error_only_where_it_is_wanted(identity: Identity) -> None:
    async with serve(always(answer()), tls=identity.context) as server, GuardedClient(LOOPBACK) as client:
        url = server.url(host="localhost", scheme="https")
        unwanted = await error_of(client, url)
        wanted = await error_of(client, url, want_certificate=True)

        assert (unwanted.certificate, wanted.certificate) == (None, identity.certificate)
        assert server.requests == []


async def test_a_certificate_that_cannot_be_read_within_the_time_leaves_the_error_as_it_was(
    identity: Identity,
) -> None:
    """The second TLS handshake of this server never completes."""
    with socket.create_server(("127.0.0.1", 0)) as front:
        front.setblocking(False)
        loop = asyncio.get_running_loop()
        held: list[socket.socket] = []

        async def let_one_through() -> None:
            first, _ = await loop.sock_accept(front)
            reader = asyncio.StreamReader()
            protocol = asyncio.StreamReaderProtocol(reader)
            with contextlib.suppress(OSError):
                await loop.connect_accepted_socket(lambda: protocol, first, ssl=identity.context)
            held.append((await loop.sock_accept(front))[0])

        accepting = asyncio.create_task(let_one_through())
        async with GuardedClient(LOOPBACK) as client:
            url = f"https://127.0.0.1:{front.getsockname()[1]}/"
            error = await error_of(client, url, want_certificate=True, timeout_s=1)
        await accepting
        held[0].close()

    assert (error.phase, error.stage, error.certificate) == ("tls", "tls", None)


async def test_the_certificate_of_the_last_hop_over_tls_comes_with_the_answer_and_with_an_error(
    identity: Identity,
) -> None:
    async with serve(always(answer())) as plain, serve(always(b"")) as broken, GuardedClient(LOOPBACK) as client:
        certificates = []
        for target in (plain, broken):
            leading = always(answer(302, location=target.url()))
            async with serve(leading, tls=identity.context) as secure:
                try:
                    got = await client.request("GET", secure.url(scheme="https"), verify_tls=False)
                    certificates.append(got.certificate)
                except OutboundError as error:
                    certificates.append(error.certificate)

    assert certificates == [identity.certificate] * 2


async def test_a_trusted_certificate_is_accepted_for_its_own_name_only(identity: Identity) -> None:
    async with serve(always(answer()), tls=identity.context) as server:
        urls = [server.url(host=host, scheme="https") for host in ("localhost", "127.0.0.1")]
        environment = {**os.environ, "SSL_CERT_FILE": str(identity.ca_file), "PYTHONPATH": os.pathsep.join(sys.path)}
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-c", CALL, *urls), env=environment, stdout=asyncio.subprocess.PIPE
        )
        output, _ = await process.communicate()

    assert output.split() == [b"200", b"tls"]
