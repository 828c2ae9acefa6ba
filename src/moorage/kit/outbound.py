"""The one HTTP client for addresses that a user chose.

Monitors, webhooks and notifications call whatever URL a user typed in, from inside the operator's network. A name can
point at a database next door, a redirect can lead there, and a DNS server can change its answer between a check and the
connection. So nothing is judged by its spelling: `GuardedClient` judges the address of every socket right before it is
made, and follows redirects itself so that each hop passes the same gate.

    TargetRefused    the policy does not let this URL be called; nothing was sent to the refused address
    OutboundError    the call was allowed and failed; `phase` says how, and `stage` how far it had come
    ValueError       the caller passed a method or a header that no HTTP request can carry
"""

import asyncio
import os
import socket
import ssl
import time
from collections.abc import Mapping
from contextvars import ContextVar
from dataclasses import dataclass, field
from types import TracebackType
from typing import Self

import aiohttp
from aiohttp.abc import AbstractResolver
from aiohttp.connector import Connection
from aiohttp.http_exceptions import ContentEncodingError, HttpProcessingError
from multidict import CIMultiDict
from yarl import URL

from moorage.kit.calls import Answer, OutboundError, Stage
from moorage.kit.hops import Hop, first_hop, is_literal, next_hop
from moorage.kit.names import NameResolver
from moorage.kit.targets import TargetPolicy, TargetRefused

_LOOKING_UP, _CONNECTING, _SHAKING_HANDS = "looking up its name", "connecting", "agreeing on TLS"
_WAITING, _READING = "waiting for the answer", "reading the answer"
_STAGES: dict[str, Stage] = {_LOOKING_UP: "dns", _CONNECTING: "connect", _SHAKING_HANDS: "tls"}

_REDIRECTS = frozenset({301, 302, 303, 307, 308})
# Once the time is over the sockets are closed, so how far they came is looked at right before.
_LAST_LOOK_S = 0.002

# A connection that was made and then cut off; one that is not made is refused or has no route.
_CUT_OFF = (ConnectionResetError, ConnectionAbortedError, BrokenPipeError)


@dataclass(slots=True)
class _Progress:
    """How far a call came. aiohttp reports several failed addresses as one text, so it is noted here."""

    started: float = field(default_factory=time.perf_counter)
    url: URL | None = None
    doing: str = _LOOKING_UP
    refusal: str | None = None
    tried: list[tuple[aiohttp.AddrInfoType, socket.socket]] = field(default_factory=list)
    certificate: bytes | None = None

    @property
    def host(self) -> str:
        return (self.url and self.url.raw_host) or ""

    @property
    def stage(self) -> Stage:
        return _STAGES.get(self.doing, "read")

    @property
    def is_over_tls(self) -> bool:
        return self.url is not None and self.url.scheme == "https"

    def begin(self, url: URL) -> None:
        """Forget how far the hop before came; its certificate stays until there is another hop over TLS."""
        self.url, self.doing, self.refusal = url, _LOOKING_UP, None
        self.tried.clear()
        if self.is_over_tls:
            self.certificate = None

    def take_last_look(self) -> None:
        """Tell a server that cannot be reached from one that was, and does not come to an end with TLS."""
        if self.doing == _CONNECTING and self.is_over_tls and any(_is_connected(each) for _, each in self.tried):
            self.doing = _SHAKING_HANDS


_PROGRESS: ContextVar[_Progress] = ContextVar("moorage_outbound_progress")


def _unverified_context() -> ssl.SSLContext:
    """Make a context that trusts everybody. Having no authorities to look among makes each handshake cheaper."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    context.set_alpn_protocols(["http/1.1"])
    return context


_UNVERIFIED = _unverified_context()


def _is_connected(made: socket.socket) -> bool:
    try:
        made.getpeername()
    except OSError:
        return False
    return True


class _Response(aiohttp.ClientResponse):
    """Notes the certificate: a short answer has given its connection back before the caller sees the response."""

    async def start(self, connection: Connection) -> aiohttp.ClientResponse:
        progress = _PROGRESS.get()
        progress.doing = _WAITING
        tls = connection.transport.get_extra_info("ssl_object") if connection.transport else None
        if tls:
            progress.certificate = tls.getpeercert(binary_form=True)
        return await super().start(connection)


class GuardedClient:
    """Calls URLs within a policy. Safe for concurrent use in one event loop; close it when done.

    Every request makes its own connection, so each one is judged anew and no tenant meets another's on the wire. The
    addresses of a name are kept for `keep_names_s`; each is judged at every connection all the same.
    """

    def __init__(
        self,
        policy: TargetPolicy,
        *,
        resolver: AbstractResolver | None = None,
        user_agent: str = "Moorage-Outbound",
        keep_names_s: float = 0,
    ) -> None:
        self._policy = policy
        self._resolver = NameResolver(resolver, keep_s=keep_names_s)
        self._user_agent = user_agent
        self._session: aiohttp.ClientSession | None = None
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
        if self._session is not None:
            await self._session.close()
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
        hop = first_hop(method, url, headers, body)
        progress = _Progress()
        token = _PROGRESS.set(progress)
        loop = asyncio.get_running_loop()
        deadline = loop.time() + timeout_s
        last_look = loop.call_at(deadline - _LAST_LOOK_S, progress.take_last_look)
        try:
            async with asyncio.timeout_at(deadline):
                for _ in range(follow + 1):
                    got = await self._exchange(hop, max_body_bytes, verify_tls=verify_tls, may_redirect=follow > 0)
                    if isinstance(got, Answer):
                        return got
                    hop = next_hop(hop, *got, drop_headers=drop_headers_cross_host)
        except (aiohttp.ClientError, HttpProcessingError, OSError) as error:
            if want_certificate and isinstance(error, aiohttp.ClientConnectorCertificateError):
                progress.certificate = await self._read_certificate(progress, deadline)
            raise _explain(error, progress, timeout_s) from error
        finally:
            last_look.cancel()
            _PROGRESS.reset(token)
        raise OutboundError("protocol", f"gave up after {follow} redirects", certificate=progress.certificate)

    async def _exchange(
        self, hop: Hop, max_body_bytes: int, *, verify_tls: bool, may_redirect: bool
    ) -> Answer | tuple[int, str]:
        """Make one hop: give its answer, or the status and Location of a redirect to follow."""
        progress = _PROGRESS.get()
        progress.begin(hop.url)
        self._judge_literal(progress.host)
        async with self._open_session().request(
            hop.method,
            hop.url,
            headers=self._headers(hop),
            data=hop.body,
            allow_redirects=False,
            ssl=verify_tls or _UNVERIFIED,
        ) as response:
            location = response.headers.get("Location")
            if may_redirect and location and response.status in _REDIRECTS:
                return response.status, location
            progress.doing = _READING
            body, truncated = await _read_body(response.content, max_body_bytes)
            elapsed_ms = (time.perf_counter() - progress.started) * 1000
            return Answer(
                response.status, response.headers, body, truncated, str(hop.url), elapsed_ms, progress.certificate
            )

    async def _read_certificate(self, progress: _Progress, deadline: float) -> bytes | None:
        """Shake hands once more without verifying, with the address that was reached last; None if that fails too."""
        for info, _ in reversed(progress.tried.copy()):
            try:
                async with asyncio.timeout_at(deadline):
                    return await self._shake_hands(info, progress.host)
            except OSError:  # A timeout and an error of TLS are among these.
                continue
        return None

    async def _shake_hands(self, info: aiohttp.AddrInfoType, host: str) -> bytes | None:
        loop = asyncio.get_running_loop()
        with self._make_socket(info) as made:
            made.setblocking(False)
            await loop.sock_connect(made, info[4])
            transport, _ = await loop.create_connection(
                asyncio.Protocol, sock=made, ssl=_UNVERIFIED, server_hostname=host
            )
            try:
                tls = transport.get_extra_info("ssl_object")
                return tls.getpeercert(binary_form=True) if tls else None
            finally:
                transport.abort()

    def _headers(self, hop: Hop) -> CIMultiDict[str]:
        headers = CIMultiDict(hop.headers)
        headers.setdefault("User-Agent", self._user_agent)
        if hop.credentials is not None:
            headers.setdefault("Authorization", hop.credentials)
        return headers

    def _judge_literal(self, host: str) -> None:
        """Refuse a forbidden IP literal before any work is done for it."""
        if is_literal(host):
            why = self._policy.refusal(host)
            if why is not None:
                raise TargetRefused(f"cannot call {host}: {why}")

    def _make_socket(self, info: aiohttp.AddrInfoType) -> socket.socket:
        """Judge the address that is about to be connected; this is the gate that everything passes.

        A refusal is an OSError here, so that the other addresses of a mixed DNS answer are tried as usual.
        """
        family, kind, protocol, _, address = info
        progress = _PROGRESS.get()
        progress.doing = _CONNECTING
        why = self._policy.refusal(str(address[0]))
        if why is not None:
            progress.refusal = why
            raise OSError(why)
        made = socket.socket(family, kind, protocol)
        progress.tried.append((info, made))
        return made

    def _open_session(self) -> aiohttp.ClientSession:
        """Build the session at the first request, because aiohttp binds it to the running loop."""
        if self._closed:
            raise RuntimeError("cannot send a request: the client is closed")
        if self._session is None:
            connector = aiohttp.TCPConnector(
                resolver=self._resolver,
                use_dns_cache=False,
                socket_factory=self._make_socket,
                force_close=True,
                limit=0,  # Callers bound their own concurrency; a shared limit would let slow targets starve the rest.
            )
            self._session = aiohttp.ClientSession(
                connector=connector,
                response_class=_Response,
                cookie_jar=aiohttp.DummyCookieJar(),
                timeout=aiohttp.ClientTimeout(total=None, sock_connect=None),
                trust_env=False,
            )
        return self._session


async def _read_body(content: aiohttp.StreamReader, limit: int) -> tuple[bytes, bool]:
    """Read the decoded body up to the limit. aiohttp decompresses in small steps, so a bomb is never unpacked."""
    body = bytearray()
    async for chunk in content.iter_any():
        body += chunk
        if len(body) > limit:
            return bytes(body[:limit]), True
    return bytes(body), False


def _explain(error: Exception, progress: _Progress, timeout_s: float) -> TargetRefused | OutboundError:
    """Translate a failure into this module's words, without the addresses and URLs that aiohttp puts in its own."""
    host, seen = progress.host, progress.certificate
    match error:
        case aiohttp.InvalidURL():
            return TargetRefused(f"cannot call {host}: the URL is malformed")
        case aiohttp.ClientConnectorDNSError():
            return OutboundError("dns", f"cannot resolve {host}: {error.os_error.strerror or error.os_error}")
        case aiohttp.ClientSSLError():
            return OutboundError("tls", f"cannot agree on TLS with {host}: {_tls_reason(error)}", certificate=seen)
        case aiohttp.ClientConnectorError() if progress.refusal is not None:
            return TargetRefused(f"cannot call {host}: {progress.refusal}")
        case aiohttp.ClientConnectorError() if progress.is_over_tls and isinstance(error.os_error, _CUT_OFF):
            return OutboundError("tls", f"cannot agree on TLS with {host}: it closed the connection", certificate=seen)
        case aiohttp.ClientConnectorError():
            why = os.strerror(error.os_error.errno) if error.os_error.errno else "no address answered"
            return OutboundError("connect", f"cannot connect to {host}: {why}", certificate=seen)
        case TimeoutError():
            late = f"{host} gave no full answer in {timeout_s:g} s: {progress.doing}"
            return OutboundError("timeout", late, stage=progress.stage, certificate=seen)
        case aiohttp.ClientResponseError() | HttpProcessingError():
            return OutboundError("protocol", f"{host} did not answer in valid HTTP", certificate=seen)
        case aiohttp.ClientPayloadError() if isinstance(error.__cause__, ContentEncodingError):
            return OutboundError("protocol", f"{host} sent a body that cannot be decoded", certificate=seen)
        case _:
            early = f"{host} closed the connection before the answer was complete"
            return OutboundError("read", early, certificate=seen)


def _tls_reason(error: aiohttp.ClientSSLError) -> str:
    cause = error.__cause__
    if isinstance(cause, ssl.SSLCertVerificationError):
        return cause.verify_message
    return str(getattr(cause, "reason", None) or "the handshake failed").replace("_", " ").lower()
