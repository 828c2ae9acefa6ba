"""Real servers for tests of the guarded client: HTTP and DNS on loopback, and certificates."""

import asyncio
import datetime
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import dns.asyncquery
import dns.message
import dns.rcode
import dns.rdatatype
import dns.rrset
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from multidict import CIMultiDict

from moorage.core.net.calls import OutboundError
from moorage.core.net.client import GuardedClient
from moorage.core.net.targets import TargetPolicy

LOOPBACK = TargetPolicy(allow_loopback=True)
SECOND_BLOCKED = TargetPolicy(allow_loopback=True, extra_blocked=("127.0.0.2/32",))


@dataclass
class Request:
    method: str
    path: str
    headers: CIMultiDict[str]
    body: bytes


@dataclass
class Server:
    host: str
    port: int = 0
    connections: int = 0
    requests: list[Request] = field(default_factory=list)

    def url(self, path: str = "/", *, host: str | None = None, scheme: str = "http") -> str:
        return f"{scheme}://{host or self.host}:{self.port}{path}"


Reply = Callable[[Request, asyncio.StreamWriter], Awaitable[None]]


def answer(status: int = 200, body: bytes = b"ok", **headers: str) -> bytes:
    fields = {"content-length": str(len(body))} | {name.replace("_", "-"): value for name, value in headers.items()}
    head = "".join(f"{name}: {value}\r\n" for name, value in fields.items())
    return f"HTTP/1.1 {status} Status\r\n{head}\r\n".encode() + body


def always(data: bytes) -> Reply:
    async def reply(request: Request, writer: asyncio.StreamWriter) -> None:
        writer.write(data)

    return reply


async def hang(request: Request, writer: asyncio.StreamWriter) -> None:
    await asyncio.Event().wait()


async def read_request(reader: asyncio.StreamReader) -> Request:
    head = (await reader.readuntil(b"\r\n\r\n")).decode()
    first, *lines = head.rstrip("\r\n").split("\r\n")
    headers = CIMultiDict[str]()
    for name, _, value in (line.partition(": ") for line in lines):
        headers.add(name, value)
    method, path, _ = first.split(" ")
    return Request(method, path, headers, await reader.readexactly(int(headers.get("content-length", "0"))))


@asynccontextmanager
async def serve(
    reply: Reply, *, host: str = "127.0.0.1", port: int = 0, tls: ssl.SSLContext | None = None
) -> AsyncIterator[Server]:
    seen = Server(f"[{host}]" if ":" in host else host)
    open_tasks: set[asyncio.Task[None]] = set()

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            request = await read_request(reader)
            seen.requests.append(request)
            await reply(request, writer)
        except (asyncio.IncompleteReadError, ConnectionError):
            pass  # The client may disconnect early; the test asserts the client's result.
        finally:
            writer.close()

    def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        seen.connections += 1
        task = asyncio.create_task(talk(reader, writer))
        open_tasks.add(task)
        task.add_done_callback(open_tasks.discard)

    server = await asyncio.start_server(accept, host, port, ssl=tls)
    seen.port = server.sockets[0].getsockname()[1]
    try:
        yield seen
    finally:
        server.close()
        for task in open_tasks:
            task.cancel()
        await asyncio.gather(*open_tasks, return_exceptions=True)


@asynccontextmanager
async def serve_twins(reply: Reply, other: Reply | None = None) -> AsyncIterator[tuple[Server, Server]]:
    """Serve on 127.0.0.1 and 127.0.0.2 at the same port; retries if the port is in use on the second."""
    async with AsyncExitStack() as stack:
        for _ in range(50):
            first = await stack.enter_async_context(serve(reply))
            try:
                second = await stack.enter_async_context(serve(other or reply, host="127.0.0.2", port=first.port))
            except OSError:
                continue
            break
        yield first, second


class DnsServer(asyncio.DatagramProtocol):
    """Answers from a table; each query for a name gets its next answer, and then always the last."""

    def __init__(self, zone: dict[str, list[list[str]]]) -> None:
        self.zone = zone
        self.port = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.DatagramTransport, transport)
        self.port = transport.get_extra_info("sockname")[1]

    def datagram_received(self, data: bytes, addr: tuple[str, int]) -> None:
        query = dns.message.from_wire(data)
        name, kind = query.question[0].name, query.question[0].rdtype
        reply = dns.message.make_response(query)
        answers = self.zone.get(name.to_text(omit_final_dot=True))
        if answers is None:
            reply.set_rcode(dns.rcode.NXDOMAIN)
        elif kind == dns.rdatatype.A:
            current = answers.pop(0) if len(answers) > 1 else answers[0]
            if addresses := [address for address in current if ":" not in address]:
                reply.answer.append(dns.rrset.from_text(name, 0, "IN", "A", *addresses))
        elif addresses := [address for address in answers[0] if ":" in address]:
            reply.answer.append(dns.rrset.from_text(name, 0, "IN", "AAAA", *addresses))
        self.transport.sendto(reply.to_wire(), addr)


class DnsResolver:
    """Queries one DNS server on loopback, first for AAAA and then for A."""

    def __init__(self, port: int, *, patience_s: float | None = None) -> None:
        self._port = port
        self._patience_s = patience_s

    async def resolve(self, host: str) -> list[str]:
        found: list[str] = []
        for kind in ("AAAA", "A"):
            async with asyncio.timeout(self._patience_s):
                reply = await dns.asyncquery.udp(dns.message.make_query(host, kind), "127.0.0.1", port=self._port)
            if reply.rcode() != dns.rcode.NOERROR:
                raise OSError(f"the DNS server answered {dns.rcode.to_text(reply.rcode())}")
            found += [record.address for rrset in reply.answer for record in rrset]
        return found


@asynccontextmanager
async def resolve_from(zone: dict[str, list[list[str]]]) -> AsyncIterator[DnsResolver]:
    loop = asyncio.get_running_loop()
    transport, server = await loop.create_datagram_endpoint(lambda: DnsServer(zone), local_addr=("127.0.0.1", 0))
    try:
        yield DnsResolver(server.port)
    finally:
        transport.close()


@dataclass
class Identity:
    context: ssl.SSLContext
    certificate: bytes
    ca_file: Path


def make_certificate(
    name: str,
    issuer: tuple[x509.Name, ec.EllipticCurvePrivateKey] | None,
    *,
    days_left: int = 1,
    valid_for: str = "localhost",
) -> tuple[x509.Certificate, ec.EllipticCurvePrivateKey]:
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)])
    issuer_name, issuer_key = issuer or (subject, key)
    now = datetime.datetime.now(datetime.UTC)
    builder = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer_name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=90))
        .not_valid_after(now + datetime.timedelta(days=days_left))
        .add_extension(x509.BasicConstraints(ca=issuer is None, path_length=None), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(issuer_key.public_key()), critical=False)
    )
    if issuer is None:
        usage = dict.fromkeys(
            ("digital_signature", "content_commitment", "key_encipherment", "data_encipherment", "key_agreement"), False
        )
        builder = builder.add_extension(
            x509.KeyUsage(**usage, key_cert_sign=True, crl_sign=True, encipher_only=False, decipher_only=False), True
        )
    else:
        names = x509.SubjectAlternativeName([x509.DNSName(valid_for)])
        builder = builder.add_extension(names, critical=False)
    return builder.sign(issuer_key, hashes.SHA256()), key


async def phase_of(client: GuardedClient, url: str, **options: float) -> tuple[str, str]:
    with pytest.raises(OutboundError) as caught:
        await client.request("GET", url, timeout_s=options.get("timeout_s", 10), follow=int(options.get("follow", 10)))
    return caught.value.phase, str(caught.value)


async def error_of(client: GuardedClient, url: str, **options: Any) -> OutboundError:
    with pytest.raises(OutboundError) as caught:
        await client.request("GET", url, **options)
    return caught.value
