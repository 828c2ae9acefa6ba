"""The one HTTP client for addresses that a user chose.

Monitors, webhooks and notifications call whatever URL a user typed in, from inside the operator's network. A name can
point at a database next door, a redirect can lead there, and a DNS server can change its answer between a check and the
connection. So nothing is judged by its spelling: `GuardedClient` judges the address of every socket right before it is
made, and follows redirects itself so that each hop passes the same gate.

    TargetRefused    the policy does not let this URL be called; nothing was sent to the refused address
    OutboundError    the call was allowed and failed; `phase` says how, and `stage` how far it had come
    ValueError       the caller passed a method or a header that no HTTP request can carry
"""

from __future__ import annotations

import asyncio
import os
import socket
import ssl
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from types import TracebackType
from typing import Self

from yarl import URL

from moorage.core.net.calls import Answer, OutboundError, Stage
from moorage.core.net.dns import NameResolver, Resolver
from moorage.core.net.exchange import BadAnswer, CutOff, Exchange, write_request
from moorage.core.net.hops import Hop, first_hop, is_literal, next_hop
from moorage.core.net.own_networks import OwnNetworks
from moorage.core.net.targets import TargetPolicy, TargetRefused

_LOOKING_UP, _CONNECTING, _SHAKING_HANDS = "looking up its name", "connecting", "agreeing on TLS"
_WAITING, _READING = "waiting for the answer", "reading the answer"
_STAGES: dict[str, Stage] = {_LOOKING_UP: "dns", _CONNECTING: "connect", _SHAKING_HANDS: "tls"}

_REDIRECTS = frozenset({301, 302, 303, 307, 308})
# An address that has not answered by then is not given up; the next one is tried beside it.
_NEXT_ADDRESS_S = 0.25


@dataclass(slots=True)
class _Progress:
    """How far a call came, for whoever has to say where it failed."""

    started: float = field(default_factory=time.perf_counter)
    url: URL | None = None
    doing: str = _LOOKING_UP
    refusal: str | None = None
    reached: str | None = None  # the address that the connection was made to
    certificate: bytes | None = None

    @property
    def host(self) -> str:
        return (self.url and self.url.raw_host) or ""

    @property
    def stage(self) -> Stage:
        return _STAGES.get(self.doing, "read")

    def begin(self, url: URL) -> None:
        """Forget how far the hop before came; its certificate stays until there is another hop over TLS."""
        self.url, self.doing, self.refusal, self.reached = url, _LOOKING_UP, None, None
        if url.scheme == "https":
            self.certificate = None


def _context(*, verifies: bool) -> ssl.SSLContext:
    """Make a context. Where all are trusted there are no authorities to look among, so a handshake is cheaper."""
    if verifies:
        context = ssl.create_default_context()
    else:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    context.set_alpn_protocols(["http/1.1"])
    return context


class GuardedClient:
    """Calls URLs within a policy. Safe for concurrent use in one event loop; close it when done.

    Every request makes its own connection, so each one is judged anew and no tenant meets another's on the wire. The
    addresses of a name are kept for `keep_names_s`; each is judged at every connection all the same.
    """

    def __init__(
        self,
        policy: TargetPolicy,
        *,
        resolver: Resolver | None = None,
        user_agent: str = "Moorage-Outbound",
        keep_names_s: float = 0,
        own: OwnNetworks | None = None,
    ) -> None:
        self._policy = policy
        self._own = own or OwnNetworks()
        self._resolver = NameResolver(resolver, keep_s=keep_names_s)
        self._user_agent = user_agent
        self._open: set[Exchange] = set()
        self._closed = False

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Drop the connections that are still open. Closing twice succeeds."""
        self._closed = True
        for exchange in list(self._open):
            if exchange.transport is not None:
                exchange.transport.abort()
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
    ) -> Answer:
        """Send one request and follow up to `follow` redirects, all within `timeout_s`.

        With `follow=0` a redirect is itself the answer. On a hop to another scheme, host or port the caller's headers
        are dropped unless `drop_headers_cross_host` is off; credentials from the URL are dropped in either case.
        With `want_certificate` a certificate that was not accepted is read over a second connection, on which nothing
        but the handshake is sent, and comes with the error.
        """
        if self._closed:
            raise RuntimeError("cannot send a request: the client is closed")
        hop = first_hop(method, url, headers, body)
        progress = _Progress()
        deadline = asyncio.get_running_loop().time() + timeout_s
        try:
            async with asyncio.timeout_at(deadline):
                for _ in range(follow + 1):
                    progress.begin(hop.url)
                    exchange = await self._exchange(hop, progress, max_body_bytes, verify_tls=verify_tls)
                    location = exchange.headers.get("Location")
                    if not (follow and location and exchange.status in _REDIRECTS):
                        return _answer(exchange, progress)
                    hop = next_hop(hop, exchange.status, location, drop_headers=drop_headers_cross_host)
        except (OSError, BadAnswer, CutOff) as error:
            if want_certificate and isinstance(error, ssl.SSLCertVerificationError):
                progress.certificate = await self._read_certificate(progress, deadline)
            raise _explain(error, progress, timeout_s) from error
        raise OutboundError("protocol", f"gave up after {follow} redirects", certificate=progress.certificate)

    async def _exchange(self, hop: Hop, progress: _Progress, most: int, *, verify_tls: bool) -> Exchange:
        """Make one hop and return it when its answer is there. Its connection is closed then, whatever came of it."""
        loop, url = asyncio.get_running_loop(), hop.url
        made = await self._reach(progress, await self._find(url, progress), url.port or 0)
        exchange = Exchange(self._write(hop), is_head=hop.method == "HEAD", most_body_bytes=most)
        self._open.add(exchange)
        try:
            if url.scheme == "https":
                progress.doing = _SHAKING_HANDS
                context = self._verifying if verify_tls else self._trusting
                await loop.create_connection(lambda: exchange, sock=made, ssl=context, server_hostname=progress.host)
                progress.certificate = _certificate_of(exchange.transport)
            else:
                await loop.create_connection(lambda: exchange, sock=made)
            progress.doing = _WAITING
            await exchange.answered
            return exchange
        finally:
            if exchange.has_begun:
                progress.doing = _READING
            self._open.discard(exchange)
            if exchange.transport is not None:
                exchange.transport.abort()
            made.close()

    async def _find(self, url: URL, progress: _Progress) -> list[str]:
        """Return the addresses of a host. A literal one is judged before any work is done for it."""
        host = progress.host
        if not is_literal(host):
            return await self._resolver.resolve(host)
        why = self._refusal(host, url.port)
        if why is not None:
            raise TargetRefused(f"cannot call {host}: {why}")
        return [host]

    async def _reach(self, progress: _Progress, addresses: list[str], port: int) -> socket.socket:
        """Connect to the first of the addresses that answers; one that is slow has the next tried beside it."""
        progress.doing = _CONNECTING
        if len(addresses) == 1:
            return await self._connect(progress, addresses[0], port)
        racing: set[asyncio.Task[socket.socket]] = set()
        errors: list[BaseException] = []
        try:
            for address in addresses:
                racing.add(asyncio.create_task(self._connect(progress, address, port)))
                if made := await _first(racing, errors, _NEXT_ADDRESS_S):
                    return made
            while racing:
                if made := await _first(racing, errors, None):
                    return made
        finally:
            for task in racing:
                task.cancel()
                task.add_done_callback(_drop)
        raise next((error for error in errors if not isinstance(error, _Refused)), errors[0])

    async def _connect(self, progress: _Progress, address: str, port: int) -> socket.socket:
        made = self._make_socket(progress, address, port)
        try:
            await asyncio.get_running_loop().sock_connect(made, (address, port))
        except BaseException:
            made.close()
            raise
        progress.reached = address
        return made

    def _refusal(self, address: str, port: int | None) -> str | None:
        return self._policy.refusal(address, port, own=self._own.get())

    def _make_socket(self, progress: _Progress, address: str, port: int) -> socket.socket:
        """Judge the address that is about to be connected; this is the gate that everything passes.

        A refusal is an OSError here, so that the other addresses of a mixed DNS answer are tried as usual.
        """
        why = self._refusal(address, port)
        if why is not None:
            progress.refusal = why
            raise _Refused(why)
        made = socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET, socket.SOCK_STREAM)
        made.setblocking(False)
        return made

    async def _read_certificate(self, progress: _Progress, deadline: float) -> bytes | None:
        """Shake hands once more without verifying, with the address that was reached; None if that fails too."""
        if progress.reached is None or progress.url is None:
            return None
        try:
            async with asyncio.timeout_at(deadline):
                made = await self._connect(progress, progress.reached, progress.url.port or 0)
                with made:
                    transport, _ = await asyncio.get_running_loop().create_connection(
                        asyncio.Protocol, sock=made, ssl=self._trusting, server_hostname=progress.host
                    )
                    try:
                        return _certificate_of(transport)
                    finally:
                        transport.abort()
        except OSError:  # A timeout and an error of TLS are among these.
            return None

    def _write(self, hop: Hop) -> bytes:
        url, headers = hop.url, hop.headers
        if hop.credentials is not None and "Authorization" not in headers:
            headers = headers.copy()
            headers["Authorization"] = hop.credentials
        return write_request(
            hop.method, url.raw_path_qs, url.host_port_subcomponent or "", headers, hop.body, self._user_agent
        )

    @cached_property
    def _verifying(self) -> ssl.SSLContext:
        return _context(verifies=True)

    @cached_property
    def _trusting(self) -> ssl.SSLContext:
        return _context(verifies=False)


class _Refused(OSError):
    """The policy does not let an address be connected."""


async def _first(
    racing: set[asyncio.Task[socket.socket]], errors: list[BaseException], wait_s: float | None
) -> socket.socket | None:
    """Wait for one of those that race to come to an end. Return what it made, if anything."""
    done, _ = await asyncio.wait(racing, timeout=wait_s, return_when=asyncio.FIRST_COMPLETED)
    made = None
    for task in done:
        racing.discard(task)
        if (error := task.exception()) is not None:
            errors.append(error)
        elif made is None:
            made = task.result()
        else:
            task.result().close()
    return made


def _drop(task: asyncio.Task[socket.socket]) -> None:
    """Close a connection that came too late to be of use."""
    if not task.cancelled() and task.exception() is None:
        task.result().close()


def _certificate_of(transport: asyncio.BaseTransport | None) -> bytes | None:
    tls = transport.get_extra_info("ssl_object") if transport is not None else None
    found: bytes | None = tls.getpeercert(binary_form=True) if tls is not None else None
    return found


def _answer(exchange: Exchange, progress: _Progress) -> Answer:
    assert exchange.body is not None
    elapsed_ms = (time.perf_counter() - progress.started) * 1000
    body, url = exchange.body, str(progress.url)
    return Answer(
        exchange.status, exchange.headers, bytes(body.data), body.is_cut, url, elapsed_ms, progress.certificate
    )


def _explain(error: Exception, progress: _Progress, timeout_s: float) -> TargetRefused | OutboundError:
    """Translate a failure into this module's words, without addresses."""
    host, seen, stage = progress.host, progress.certificate, progress.stage
    if isinstance(error, BadAnswer):
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
