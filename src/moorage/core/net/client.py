"""HTTP client for URLs from users, protected against server-side request forgery.

Monitors, webhooks and notifications call URLs from users from inside the operator's network. A host name can resolve to
an internal database, a redirect can lead to one, and a DNS server can change its answer between a check and the
connection. `GuardedClient` therefore checks the IP address of every socket right before it connects, and follows
redirects itself so that each hop is checked.

    TargetRefused    the policy forbids the URL; nothing was sent to the refused address
    OutboundError    the call was allowed and failed; `phase` is the kind of failure, `stage` the step that failed
    ValueError       the caller passed a method or a header that is invalid in HTTP
"""

from __future__ import annotations

import asyncio
import os
import socket
import ssl
import time
from collections.abc import Mapping
from dataclasses import field
from functools import cache
from types import TracebackType
from typing import Self

import yarl

from moorage.core.kit.records import dataclass
from moorage.core.net.calls import Answer, OutboundError, Stage
from moorage.core.net.dns import NameResolver, Resolver
from moorage.core.net.hops import Hop, first_hop, is_literal, next_hop
from moorage.core.net.http1 import BadResponse, Connection, Response, ResponseError, encode_request
from moorage.core.net.own_networks import OwnNetworks
from moorage.core.net.targets import TargetPolicy, TargetRefused

_LOOKING_UP, _CONNECTING, _HANDSHAKING = "looking up its name", "connecting", "agreeing on TLS"
_WAITING, _READING = "waiting for the answer", "reading the answer"
_STAGES: dict[str, Stage] = {_LOOKING_UP: "dns", _CONNECTING: "connect", _HANDSHAKING: "tls"}

_REDIRECTS = frozenset({301, 302, 303, 307, 308})
# Delay before the next address is tried in parallel (Happy Eyeballs).
_NEXT_ADDRESS_DELAY_S = 0.25


@dataclass(slots=True)
class _Progress:
    """Progress of a call, for the error message."""

    tenant: int | None = None  # whose name lookups are bounded together
    started: float = field(default_factory=time.perf_counter)
    url: yarl.URL | None = None
    doing: str = _LOOKING_UP
    refusal: str | None = None
    reached: str | None = None  # IP address of the connection
    certificate: bytes | None = None

    @property
    def host(self) -> str:
        return (self.url and self.url.raw_host) or ""

    @property
    def stage(self) -> Stage:
        return _STAGES.get(self.doing, "read")

    def begin(self, url: yarl.URL) -> None:
        """Reset the progress; the certificate stays until the next hop over TLS."""
        self.url, self.doing, self.refusal, self.reached = url, _LOOKING_UP, None, None
        if url.scheme == "https":
            self.certificate = None


@cache  # The CA certificates take time to load, and memory.
def _context(*, verifies: bool, authorities: str = "") -> ssl.SSLContext:
    """Return the TLS context of all clients; without verification it loads no CA certificates.

    `authorities` is a file with CA certificates that are trusted besides the usual ones.
    """
    if verifies:
        context = ssl.create_default_context()
        if authorities:
            context.load_verify_locations(authorities)
    else:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    context.set_alpn_protocols(["http/1.1"])
    return context


class GuardedClient:
    """Calls URLs that a policy allows, concurrently in one event loop.

    Every request makes its own connection, so each is checked and tenants never share one. DNS answers are cached for
    `keep_names_s`; the cached addresses are still checked at every connection.
    """

    def __init__(
        self,
        policy: TargetPolicy,
        *,
        resolver: Resolver | None = None,
        user_agent: str = "Moorage-Outbound",
        keep_names_s: float = 0,
        own: OwnNetworks | None = None,
        authorities: str = "",
    ) -> None:
        self._policy = policy
        self._authorities = authorities
        self._own = own or OwnNetworks()
        self._resolver = NameResolver(resolver, keep_s=keep_names_s)
        self._user_agent = user_agent
        self._open: set[Connection] = set()
        self._closed = False

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Abort the open connections. Safe to repeat."""
        self._closed = True
        for connection in list(self._open):
            connection.close()
        await self._resolver.close()

    async def request(
        self,
        method: str,
        url: str,
        *,
        headers: Mapping[str, str] | None = None,
        body: bytes | None = None,
        timeout_s: float = 10,
        max_body_bytes: int = 1 << 20,
        follow: int = 10,
        verify_tls: bool = True,
        drop_headers_cross_host: bool = True,
        want_certificate: bool = False,
        tenant: int | None = None,
    ) -> Answer:
        """Send one request and follow up to `follow` redirects, all within `timeout_s`.

        With `follow=0` a redirect is returned as the answer. On a hop to another scheme, host or port the caller's
        headers are dropped unless `drop_headers_cross_host` is off; credentials from the URL are always dropped.
        With `want_certificate`, a rejected certificate is read over a second connection, which sends only the
        handshake, and is attached to the error. With `tenant`, the name lookups count against the bound of this tenant.
        """
        if self._closed:
            raise RuntimeError("cannot send a request: the client is closed")
        hop = first_hop(method, url, headers, body)
        progress = _Progress(tenant)
        deadline = asyncio.get_running_loop().time() + timeout_s
        try:
            async with asyncio.timeout_at(deadline):
                for _ in range(follow + 1):
                    progress.begin(hop.url)
                    response = Response(is_head=hop.method == "HEAD", max_body_bytes=max_body_bytes)
                    await self._exchange(hop, response, progress, verify_tls=verify_tls)
                    location = response.headers.get("Location")
                    if not (follow and location and response.status in _REDIRECTS):
                        return _answer(response, progress)
                    hop = next_hop(hop, response.status, location, drop_headers=drop_headers_cross_host)
        except (OSError, ResponseError) as error:
            if want_certificate and isinstance(error, ssl.SSLCertVerificationError):
                progress.certificate = await self._read_certificate(progress, deadline)
            raise _explain(error, progress, timeout_s) from error
        raise OutboundError("protocol", f"gave up after {follow} redirects", certificate=progress.certificate)

    async def _exchange(self, hop: Hop, response: Response, progress: _Progress, *, verify_tls: bool) -> None:
        """Send the request of one hop, read its response and close the connection."""
        loop, url = asyncio.get_running_loop(), hop.url
        sock = await self._connect_any(progress, await self._resolve(url, progress), url.port or 0)
        connection = Connection()
        self._open.add(connection)
        try:
            if url.scheme == "https":
                progress.doing = _HANDSHAKING
                context = _context(verifies=verify_tls, authorities=self._authorities)
                transport, _ = await loop.create_connection(
                    lambda: connection, sock=sock, ssl=context, server_hostname=progress.host
                )
                progress.certificate = _certificate_of(transport)
            else:
                await loop.create_connection(lambda: connection, sock=sock)
            progress.doing = _WAITING
            connection.send(self._write(hop), response)
            await connection.read()
        finally:
            if response.status:
                progress.doing = _READING
            self._open.discard(connection)
            connection.close()
            sock.close()

    async def _resolve(self, url: yarl.URL, progress: _Progress) -> list[str]:
        """Return the addresses of a host; a literal address is checked at once."""
        host = progress.host
        if not is_literal(host):
            return await self._resolver.resolve(host, tenant=progress.tenant)
        why = self._refusal(host, url.port)
        if why is not None:
            raise TargetRefused(f"cannot call {host}: {why}")
        return [host]

    async def _connect_any(self, progress: _Progress, addresses: list[str], port: int) -> socket.socket:
        """Connect to the first address that answers; a slow one is raced against the next."""
        progress.doing = _CONNECTING
        if len(addresses) == 1:
            return await self._connect(progress, addresses[0], port)
        racing: set[asyncio.Task[socket.socket]] = set()
        errors: list[BaseException] = []
        try:
            for address in addresses:
                racing.add(asyncio.create_task(self._connect(progress, address, port)))
                if sock := await _first_connected(racing, errors, _NEXT_ADDRESS_DELAY_S):
                    return sock
            while racing:
                if sock := await _first_connected(racing, errors, None):
                    return sock
        finally:
            for task in racing:
                task.cancel()
                task.add_done_callback(_close_socket)
        raise next((error for error in errors if not isinstance(error, _Refused)), errors[0])

    async def _connect(self, progress: _Progress, address: str, port: int) -> socket.socket:
        sock = self._make_socket(progress, address, port)
        try:
            await asyncio.get_running_loop().sock_connect(sock, (address, port))
        except BaseException:
            sock.close()
            raise
        progress.reached = address
        return sock

    def _refusal(self, address: str, port: int | None) -> str | None:
        return self._policy.refusal(address, port, own=self._own.get())

    def _make_socket(self, progress: _Progress, address: str, port: int) -> socket.socket:
        """Check the address of every connection and return its socket.

        A refusal is an OSError, so that the other addresses of a mixed DNS answer are still tried.
        """
        why = self._refusal(address, port)
        if why is not None:
            progress.refusal = why
            raise _Refused(why)
        sock = socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET, socket.SOCK_STREAM)
        sock.setblocking(False)
        return sock

    async def _read_certificate(self, progress: _Progress, deadline: float) -> bytes | None:
        """Repeat the TLS handshake without verification; None if that fails too."""
        if progress.reached is None or progress.url is None:
            return None
        try:
            async with asyncio.timeout_at(deadline):
                sock = await self._connect(progress, progress.reached, progress.url.port or 0)
                with sock:
                    transport, _ = await asyncio.get_running_loop().create_connection(
                        asyncio.Protocol, sock=sock, ssl=_context(verifies=False), server_hostname=progress.host
                    )
                    try:
                        return _certificate_of(transport)
                    finally:
                        transport.abort()
        except OSError:  # includes timeouts and TLS errors
            return None

    def _write(self, hop: Hop) -> bytes:
        url, headers = hop.url, hop.headers.copy()
        headers.setdefault("Host", url.host_port_subcomponent or "")
        headers.setdefault("User-Agent", self._user_agent)
        headers.setdefault("Accept", "*/*")
        headers.setdefault("Accept-Encoding", "gzip, deflate")
        if hop.credentials is not None:
            headers.setdefault("Authorization", hop.credentials)
        if hop.body is not None:
            headers.setdefault("Content-Type", "application/octet-stream")
        headers["Connection"] = "close"
        return encode_request(hop.method, url.raw_path_qs, headers.items(), hop.body)


class _Refused(OSError):
    """The policy forbids a connection to an address."""


async def _first_connected(
    racing: set[asyncio.Task[socket.socket]], errors: list[BaseException], wait_s: float | None
) -> socket.socket | None:
    """Wait for one attempt, at most `wait_s`; return its socket if it connected."""
    done, _ = await asyncio.wait(racing, timeout=wait_s, return_when=asyncio.FIRST_COMPLETED)
    connected = None
    for task in done:
        racing.discard(task)
        if (error := task.exception()) is not None:
            errors.append(error)
        elif connected is None:
            connected = task.result()
        else:
            task.result().close()
    return connected


def _close_socket(task: asyncio.Task[socket.socket]) -> None:
    """Close the socket of an attempt that connected after another one."""
    if not task.cancelled() and task.exception() is None:
        task.result().close()


def _certificate_of(transport: asyncio.BaseTransport) -> bytes | None:
    tls = transport.get_extra_info("ssl_object")
    certificate: bytes | None = tls.getpeercert(binary_form=True) if tls is not None else None
    return certificate


def _answer(response: Response, progress: _Progress) -> Answer:
    elapsed_ms = (time.perf_counter() - progress.started) * 1000
    body, url = response.body, str(progress.url)
    return Answer(
        response.status, response.headers, bytes(body.data), body.is_cut, url, elapsed_ms, progress.certificate
    )


def _explain(error: Exception, progress: _Progress, timeout_s: float) -> TargetRefused | OutboundError:
    """Convert an exception; messages contain no IP addresses."""
    host, seen, stage = progress.host, progress.certificate, progress.stage
    if isinstance(error, BadResponse):
        return OutboundError("protocol", f"{host} {error}", certificate=seen)
    if isinstance(error, TimeoutError):
        late = f"{host} gave no full answer in {timeout_s:g} s: {progress.doing}"
        return OutboundError("timeout", late, stage=stage, certificate=seen)
    if stage == "dns":
        return OutboundError("dns", f"cannot resolve {host}: {getattr(error, 'strerror', None) or error}")
    if stage == "connect":
        if progress.refusal is not None:
            return TargetRefused(f"cannot call {host}: {progress.refusal}")
        number = getattr(error, "errno", None)
        why = os.strerror(number) if number else "no address answered"
        return OutboundError("connect", f"cannot connect to {host}: {why}", certificate=seen)
    if stage == "tls":
        return OutboundError("tls", f"cannot agree on TLS with {host}: {_tls_reason(error)}", certificate=seen)
    return OutboundError("read", f"{host} closed the connection before the answer was complete", certificate=seen)


def _tls_reason(error: Exception) -> str:
    match error:
        case ssl.SSLCertVerificationError():
            return error.verify_message
        case ssl.SSLError():
            return str(error.reason or "the handshake failed").replace("_", " ").lower()
        case _:
            return "it closed the connection"
