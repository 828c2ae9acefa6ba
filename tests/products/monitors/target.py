"""Targets of checks on loopback: servers, changing DNS names and generated certificates."""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field, replace
from itertools import chain, repeat
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from tests.core.net.outbound_servers import LOOPBACK, Reply, Request, hang, make_certificate

from moorage.core.net.dns import Resolver
from moorage.core.net.targets import TargetPolicy
from moorage.products.monitors.probing.checks import Checker, CheckTarget
from moorage.products.monitors.probing.codes import Codes

SHOP = CheckTarget(
    monitor_id=1,
    org_id=1,
    url="http://127.0.0.1/",
    method="GET",
    headers=(),
    body=None,
    keyword=None,
    codes=Codes.parse([]),
    interval_s=60,
    timeout_ms=10_000,
    retries=0,
    ignore_tls_error=False,
)


def target(url: str, *, codes: tuple[str, ...] = (), **fields: object) -> CheckTarget:
    return replace(SHOP, url=url, codes=Codes.parse(codes), **fields)  # type: ignore[arg-type]


Pause = Callable[[float], Awaitable[None]]


@dataclass
class Pauses:
    """Records the pauses between attempts instead of waiting."""

    taken: list[float] = field(default_factory=list)

    async def __call__(self, seconds: float) -> None:
        self.taken.append(seconds)


@asynccontextmanager
async def checking(
    policy: TargetPolicy = LOOPBACK, *, resolver: Resolver | None = None, pause: Pause | None = None
) -> AsyncIterator[Checker]:
    checker = Checker(policy, resolver=resolver, pause=pause or Pauses())
    try:
        yield checker
    finally:
        await checker.close()


# Servers.


def in_turn(*answers: bytes) -> Reply:
    """Answer each request with the next response; the last one repeats."""
    coming = chain(answers, repeat(answers[-1]))

    async def reply(request: Request, writer: asyncio.StreamWriter) -> None:
        writer.write(next(coming))

    return reply


async def without_end(request: Request, writer: asyncio.StreamWriter) -> None:
    """Send an endless body."""
    writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: text/plain\r\n\r\nwelcome")
    while True:
        writer.write(b"x" * 65_536)
        await writer.drain()


async def half_a_body(request: Request, writer: asyncio.StreamWriter) -> None:
    writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nhalf")
    await writer.drain()
    await hang(request, writer)


@contextmanager
def accepting_nothing() -> Iterator[int]:
    """Listen with a full backlog, so that further connections hang."""
    with socket.socket() as listening, socket.socket() as first:
        listening.bind(("127.0.0.1", 0))
        listening.listen(0)
        first.connect(listening.getsockname())
        yield listening.getsockname()[1]


@contextmanager
def shaking_no_hands() -> Iterator[int]:
    """Accept connections without a TLS handshake."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        yield listening.getsockname()[1]


@asynccontextmanager
async def hanging_up() -> AsyncIterator[int]:
    """Close each connection at the first received byte."""

    async def leave(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1)
        writer.transport.abort()

    async with await asyncio.start_server(leave, "127.0.0.1", 0) as server:
        yield server.sockets[0].getsockname()[1]


# Names.


class SayingTryAgain:
    """A resolver with a number of temporary failures; then all names are loopback."""

    def __init__(self, times: int) -> None:
        self.times = times
        self.asked = 0

    async def resolve(self, host: str) -> list[str]:
        self.asked += 1
        if self.asked <= self.times:
            raise socket.gaierror(socket.EAI_AGAIN, "Temporary failure in name resolution")
        return ["127.0.0.1"]


class AnsweringSome:
    """A resolver that never answers for names below `dead.test`; others are loopback."""

    def __init__(self) -> None:
        self.unanswered = 0

    async def resolve(self, host: str) -> list[str]:
        if host.endswith(".dead.test"):
            self.unanswered += 1
            await asyncio.Event().wait()
        return ["127.0.0.1"]


@contextmanager
def silent_name_server() -> Iterator[int]:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as silent:
        silent.bind(("127.0.0.1", 0))
        yield silent.getsockname()[1]


# Certificates.


@dataclass
class Authority:
    """Signs server certificates; clients with `ca_file` trust them."""

    folder: Path
    certificate: x509.Certificate
    key: ec.EllipticCurvePrivateKey

    @classmethod
    def make(cls, folder: Path) -> Authority:
        made = cls(folder, *make_certificate("Harbor authority", None))
        made.ca_file.write_bytes(made.certificate.public_bytes(Encoding.PEM))
        return made

    @property
    def ca_file(self) -> Path:
        return self.folder / "ca.pem"

    def context(self, *, days_left: int = 30, valid_for: str = "localhost") -> ssl.SSLContext:
        issuer = (self.certificate.subject, self.key)
        return self._serving(*make_certificate("shop", issuer, days_left=days_left, valid_for=valid_for))

    def self_signed(self) -> ssl.SSLContext:
        return self._serving(*make_certificate("shop by itself", None, days_left=30))

    def _serving(self, certificate: x509.Certificate, key: ec.EllipticCurvePrivateKey) -> ssl.SSLContext:
        path = self.folder / f"{certificate.serial_number}.pem"
        private = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
        path.write_bytes(private + certificate.public_bytes(Encoding.PEM))
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(path)
        return context
