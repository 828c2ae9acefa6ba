"""The one HTTP client for addresses that a user chose.

Monitors, webhooks and notifications call whatever URL a user typed in, from inside the operator's network. A name can
point at a database next door, a redirect can lead there, and a DNS server can change its answer between a check and the
connection. So nothing is judged by its spelling: `GuardedClient` judges the address of every socket right before it is
made, and follows redirects itself so that each hop passes the same gate.

    TargetRefused    the policy does not let this URL be called; nothing was sent to the refused address
    OutboundError    the call was allowed and failed; `phase` says how far it came
    ValueError       the caller passed a method or a header that no HTTP request can carry
"""

import asyncio
import base64
import os
import re
import socket
import ssl
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from contextvars import ContextVar
from dataclasses import dataclass, replace
from ipaddress import IPv6Address
from types import TracebackType
from typing import Literal, Self

import aiohttp
from aiohttp.abc import AbstractResolver, ResolveResult
from aiohttp.connector import Connection
from aiohttp.http_exceptions import ContentEncodingError, HttpProcessingError
from multidict import CIMultiDict
from yarl import URL

from moorage.kit.targets import TargetPolicy, TargetRefused

Phase = Literal["dns", "connect", "tls", "read", "protocol", "timeout"]

_REDIRECTS = frozenset({301, 302, 303, 307, 308})
_RESOLVER_THREADS = 16  # Names that never resolve hold a thread for seconds; they must not starve the loop's own pool.

# How a message is framed is this client's business: a length or coding that contradicts the body would let a user
# write a second request onto the wire.
_FRAMING_HEADERS = frozenset(
    {"connection", "content-length", "expect", "keep-alive", "te", "trailer", "transfer-encoding", "upgrade"}
)
_BODY_HEADERS = frozenset({"content-type", "content-encoding", "content-language", "content-location"})

_TOKEN = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+")
_UNSENDABLE = re.compile("[\x00-\x08\x0a-\x1f\x7f\ud800-\udfff]")
_HOST_NAME = re.compile(r"[a-z0-9._-]+")
_NUMERIC_LABEL = re.compile(r"[0-9]+|0x[0-9a-f]*")


class OutboundError(Exception):
    """An allowed call failed. `phase` says where, and the message may be shown to the user."""

    def __init__(self, phase: Phase, message: str) -> None:
        super().__init__(phase, message)
        self.phase: Phase = phase
        self.message = message

    def __str__(self) -> str:
        return self.message


@dataclass(frozen=True, slots=True)
class Answer:
    """What the last hop answered. The headers can be read in any case."""

    status: int
    headers: Mapping[str, str]
    body: bytes  # Decoded, and at most as long as the caller allowed.
    truncated: bool  # The server had more to say than was read.
    url: str  # The URL that answered, without credentials.
    elapsed_ms: float  # From the call to the last byte read, over all hops.
    certificate: bytes | None  # The server's certificate in DER form; None over plain HTTP.


@dataclass(frozen=True, slots=True)
class _Hop:
    """One request of a redirect chain. Credentials from the URL stay apart, since they never leave its origin."""

    method: str
    url: URL
    headers: CIMultiDict[str]
    body: bytes | None
    credentials: str | None = None


@dataclass(slots=True)
class _Progress:
    """How far the current hop came. aiohttp reports several failed addresses as one text, so it is noted here."""

    host: str = ""
    stage: str = ""
    refusal: str | None = None


_PROGRESS: ContextVar[_Progress] = ContextVar("moorage_outbound_progress")


def _parse_url(text: str, base: URL | None = None) -> URL:
    """Turn user input or a Location into an absolute http(s) URL with a canonical host, or refuse it."""
    if _UNSENDABLE.search(text) or "\t" in text:
        raise TargetRefused("cannot call this URL: it contains control characters")
    try:
        url = base.join(URL(text)) if base else URL(text)
        port = url.port
    except ValueError as error:
        raise TargetRefused("cannot call this URL: it is malformed") from error
    if url.scheme not in ("http", "https"):
        raise TargetRefused("cannot call this URL: only http and https are allowed")
    if not url.raw_host or port is None:
        raise TargetRefused("cannot call this URL: it names no host")
    return url.with_host(_canonical_host(url.raw_host)).with_fragment(None)


def _canonical_host(host: str) -> str:
    """Write an IP literal the one way the policy reads it: 2130706433, 0x7f.1 and 127.0.0.1. are all 127.0.0.1."""
    try:
        if ":" in host:
            return str(IPv6Address(host))
        if not _HOST_NAME.fullmatch(host) or not host.strip("."):
            raise ValueError(host)
        if _NUMERIC_LABEL.fullmatch(host.rstrip(".").rpartition(".")[2]):
            return socket.inet_ntoa(socket.inet_aton(host.rstrip(".")))
    except (ValueError, OSError) as error:
        raise TargetRefused("cannot call this URL: its host is malformed") from error
    return host


def _first_hop(method: str, url: str, headers: Mapping[str, str] | None, body: bytes | None) -> _Hop:
    if not _TOKEN.fullmatch(method) or method.upper() == "CONNECT":
        raise ValueError(f"cannot send a request with the method {method!r}")
    kept = CIMultiDict[str]()
    for name, value in (headers or {}).items():
        if not _TOKEN.fullmatch(name) or _UNSENDABLE.search(value):
            raise ValueError(f"cannot send the header {name!r}: it contains characters that HTTP does not allow")
        if name.lower() not in _FRAMING_HEADERS:
            kept.add(name, value)
    target = _parse_url(url)
    return _Hop(method.upper(), target.with_user(None), kept, body, _basic_credentials(target))


def _basic_credentials(url: URL) -> str | None:
    if url.user is None and url.password is None:
        return None
    pair = f"{url.user or ''}:{url.password or ''}"
    return "Basic " + base64.b64encode(pair.encode()).decode()


def _origin(url: URL) -> tuple[str, str | None, int | None]:
    return url.scheme, url.raw_host, url.port


def _next_hop(hop: _Hop, status: int, location: str, *, drop_headers: bool) -> _Hop:
    """Build the request that a browser would make after this redirect. Credentials inside a Location are ignored."""
    following = replace(hop, url=_parse_url(location, base=hop.url).with_user(None))
    if (status == 303 and hop.method != "HEAD") or (status in (301, 302) and hop.method == "POST"):
        kept = CIMultiDict((name, value) for name, value in hop.headers.items() if name.lower() not in _BODY_HEADERS)
        following = replace(following, method="GET", body=None, headers=kept)
    if _origin(following.url) == _origin(hop.url):
        return following
    if drop_headers:
        # A body that goes along keeps the header that says how to read it, and nothing else.
        about_body = [item for item in following.headers.items() if item[0].lower() == "content-type"]
        following = replace(following, headers=CIMultiDict(about_body if following.body is not None else []))
    return replace(following, credentials=None)


class _Response(aiohttp.ClientResponse):
    """Keeps the certificate: a short answer has given its connection back before the caller sees the response."""

    peer_certificate: bytes | None = None

    async def start(self, connection: Connection) -> aiohttp.ClientResponse:
        _PROGRESS.get().stage = "waiting for the answer"
        tls = connection.transport.get_extra_info("ssl_object") if connection.transport else None
        self.peer_certificate = tls.getpeercert(binary_form=True) if tls else None
        return await super().start(connection)


class _NameResolver(AbstractResolver):
    """Looks names up through the given resolver, or through the system's on threads of its own.

    `localhost` and the names below it are loopback by definition, whatever a DNS server says about them.
    """

    def __init__(self, inner: AbstractResolver | None) -> None:
        self._inner = inner
        self._threads = ThreadPoolExecutor(_RESOLVER_THREADS, thread_name_prefix="outbound-dns")

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_UNSPEC
    ) -> list[ResolveResult]:
        if f".{host.rstrip('.').lower()}".endswith(".localhost"):
            return [_resolved(host, "127.0.0.1", port), _resolved(host, "::1", port)]
        try:
            found = await (self._inner.resolve(host, port, family) if self._inner else self._ask_system(host, port))
        except UnicodeError as error:  # A label that is empty or longer than 63 characters.
            raise OSError("the name is malformed") from error
        except TimeoutError as error:
            raise OSError("no DNS server answered") from error
        if not found:
            raise OSError("the name has no address")
        return found

    async def _ask_system(self, host: str, port: int) -> list[ResolveResult]:
        loop = asyncio.get_running_loop()
        lookup = (host, port, socket.AF_UNSPEC, socket.SOCK_STREAM, 0, socket.AI_ADDRCONFIG)
        infos = await loop.run_in_executor(self._threads, socket.getaddrinfo, *lookup)
        return [_resolved(host, str(address[0]), port) for *_, address in infos]

    async def close(self) -> None:
        """Let the threads go. A resolver that was passed in belongs to the caller and stays open."""
        self._threads.shutdown(wait=False, cancel_futures=True)


def _resolved(name: str, address: str, port: int) -> ResolveResult:
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    return ResolveResult(hostname=name, host=address, port=port, family=family, proto=0, flags=socket.AI_NUMERICHOST)


class GuardedClient:
    """Calls URLs within a policy. Safe for concurrent use in one event loop; close it when done.

    Every request makes its own connection, so each one is judged anew and no tenant meets another's on the wire.
    """

    def __init__(
        self, policy: TargetPolicy, *, resolver: AbstractResolver | None = None, user_agent: str = "Moorage-Outbound"
    ) -> None:
        self._policy = policy
        self._resolver = _NameResolver(resolver)
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
    ) -> Answer:
        """Send one request and follow up to `follow` redirects, all within `timeout_s`.

        With `follow=0` a redirect is itself the answer. On a hop to another scheme, host or port the caller's headers
        are dropped unless `drop_headers_cross_host` is off; credentials from the URL are dropped in either case.
        """
        hop = _first_hop(method, url, headers, body)
        progress = _Progress()
        token = _PROGRESS.set(progress)
        started = time.perf_counter()
        try:
            async with asyncio.timeout(timeout_s):
                for _ in range(follow + 1):
                    got = await self._exchange(hop, max_body_bytes, verify_tls=verify_tls, may_redirect=follow > 0)
                    if isinstance(got, Answer):
                        return replace(got, elapsed_ms=(time.perf_counter() - started) * 1000)
                    hop = _next_hop(hop, *got, drop_headers=drop_headers_cross_host)
        except (aiohttp.ClientError, HttpProcessingError, OSError) as error:
            raise _explain(error, progress, timeout_s) from error
        finally:
            _PROGRESS.reset(token)
        raise OutboundError("protocol", f"gave up after {follow} redirects")

    async def _exchange(
        self, hop: _Hop, max_body_bytes: int, *, verify_tls: bool, may_redirect: bool
    ) -> Answer | tuple[int, str]:
        """Make one hop: give its answer, or the status and Location of a redirect to follow."""
        progress = _PROGRESS.get()
        progress.host, progress.stage, progress.refusal = hop.url.raw_host or "", "looking up its name", None
        self._judge_literal(progress.host)
        async with self._open_session().request(
            hop.method, hop.url, headers=self._headers(hop), data=hop.body, allow_redirects=False, ssl=verify_tls
        ) as response:
            location = response.headers.get("Location")
            if may_redirect and location and response.status in _REDIRECTS:
                return response.status, location
            progress.stage = "reading the answer"
            body, truncated = await _read_body(response.content, max_body_bytes)
            certificate = response.peer_certificate if isinstance(response, _Response) else None
            return Answer(response.status, response.headers, body, truncated, str(hop.url), 0.0, certificate)

    def _headers(self, hop: _Hop) -> CIMultiDict[str]:
        headers = CIMultiDict(hop.headers)
        headers.setdefault("User-Agent", self._user_agent)
        if hop.credentials is not None:
            headers.setdefault("Authorization", hop.credentials)
        return headers

    def _judge_literal(self, host: str) -> None:
        """Refuse a forbidden IP literal before any work is done for it."""
        if ":" in host or _NUMERIC_LABEL.fullmatch(host.rpartition(".")[2]):
            why = self._policy.refusal(host)
            if why is not None:
                raise TargetRefused(f"cannot call {host}: {why}")

    def _make_socket(self, info: aiohttp.AddrInfoType) -> socket.socket:
        """Judge the address that is about to be connected; this is the gate that everything passes.

        A refusal is an OSError here, so that the other addresses of a mixed DNS answer are tried as usual.
        """
        family, kind, protocol, _, address = info
        progress = _PROGRESS.get()
        progress.stage = "connecting"
        why = self._policy.refusal(str(address[0]))
        if why is not None:
            progress.refusal = why
            raise OSError(why)
        return socket.socket(family, kind, protocol)

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
    host = progress.host
    match error:
        case aiohttp.InvalidURL():
            return TargetRefused(f"cannot call {host}: the URL is malformed")
        case aiohttp.ClientConnectorDNSError():
            return OutboundError("dns", f"cannot resolve {host}: {error.os_error.strerror or error.os_error}")
        case aiohttp.ClientSSLError():
            return OutboundError("tls", f"cannot agree on TLS with {host}: {_tls_reason(error)}")
        case aiohttp.ClientConnectorError() if progress.refusal is not None:
            return TargetRefused(f"cannot call {host}: {progress.refusal}")
        case aiohttp.ClientConnectorError():
            why = os.strerror(error.os_error.errno) if error.os_error.errno else "no address answered"
            return OutboundError("connect", f"cannot connect to {host}: {why}")
        case TimeoutError():
            return OutboundError("timeout", f"{host} gave no full answer in {timeout_s:g} s: {progress.stage}")
        case aiohttp.ClientResponseError() | HttpProcessingError():
            return OutboundError("protocol", f"{host} did not answer in valid HTTP")
        case aiohttp.ClientPayloadError() if isinstance(error.__cause__, ContentEncodingError):
            return OutboundError("protocol", f"{host} sent a body that cannot be decoded")
        case _:
            return OutboundError("read", f"{host} closed the connection before the answer was complete")


def _tls_reason(error: aiohttp.ClientSSLError) -> str:
    cause = error.__cause__
    if isinstance(cause, ssl.SSLCertVerificationError):
        return cause.verify_message
    return str(getattr(cause, "reason", None) or "the handshake failed").replace("_", " ").lower()
