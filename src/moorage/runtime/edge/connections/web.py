"""From an HTTP request to a call's params, and from a function's reply to an HTTP answer, as web actions have it.

Params are one JSON object, put together as text: the query first, then the body, then what the gateway adds. Of equal
names the last one counts, in every JSON parser that functions use, so what comes later cannot be overridden.
"""

from __future__ import annotations

import base64
import re
from urllib.parse import parse_qsl

import msgspec

from moorage.runtime.edge.connections import answers
from moorage.runtime.edge.connections.answers import Answer, Request
from moorage.runtime.edge.connections.origins import ABSENT, DOCUMENT, Origin, OwnOrigin, SharedOrigin, declared_type
from moorage.runtime.edge.connections.protocol import Refused

PREFIX = b"/api/v1/web/org_"
_NAME_AND_REST = rb"/default/([a-z0-9-]{1,63})(?:\.http)?)((?:/[^?#]*)?)(?:\?([^#]*))?\Z"
_SHARED = re.compile(rb"(/api/v1/web/org_([0-9]{1,19})" + _NAME_AND_REST)
_OWN = re.compile(rb"(" + _NAME_AND_REST)
_TEXTUAL = re.compile(r"text/|application/(.*\+)?(xml|javascript|ecmascript|graphql|yaml|x-yaml|x-ndjson|sql|toml)\b")
_METHODS = {
    name: b'"__ow_method":"%b"' % name.lower()
    for name in (b"GET", b"POST", b"PUT", b"PATCH", b"DELETE", b"HEAD", b"OPTIONS")
}

encode = msgspec.json.Encoder().encode
decode = msgspec.json.Decoder().decode


class Target:
    """What a request's target says: the function, and the part of its params that comes from the address."""

    __slots__ = ("name", "org", "origin", "query", "rest", "tail")

    def __init__(self, org: str, name: str, rest: bytes, query: bytes, origin: Origin) -> None:
        self.origin = origin
        self.org = org
        self.name = name
        self.rest = rest
        pairs = (
            parse_qsl(query.decode("utf-8", "replace"), keep_blank_values=True, max_num_fields=1000) if query else ()
        )
        self.query = encode(dict(pairs))[1:-1] if pairs else b""
        self.tail = b',"__ow_path":%b,"__ow_query":%b}' % (_text(rest), _text(query))


class Targets:
    """Parsed targets: most requests repeat one. `domain` is the one that the organizations' hosts are below."""

    def __init__(self, domain: str = "", most: int = 4096) -> None:
        self._known: dict[tuple[bytes, bytes | None], Target] = {}
        self._most = most
        below = rb"(org-([1-9][0-9]{0,18})\." + re.escape(domain.encode()) + rb")(?::[0-9]{1,5})?"
        self._own_host = re.compile(below) if domain else None

    def find(self, target: bytes, host: bytes | None = None) -> Target | None:
        """Return what a request's target and its Host header lead to; None where no function can be there."""
        key = (target, host)
        found = self._known.get(key)
        if found is None:
            found = self._parse(target, host)
            if found is None:
                return None
            if len(self._known) >= self._most:
                self._known.clear()
            if len(target) + len(host or b"") < 1024:
                self._known[key] = found
        return found

    def _parse(self, target: bytes, host: bytes | None) -> Target | None:
        owner = self._own_host.fullmatch(host.lower()) if self._own_host is not None and host else None
        match = _SHARED.match(target) if owner is None else _OWN.match(target)
        if match is None:
            return None
        path, *org, name, rest, query = match.groups()
        origin: Origin = SharedOrigin(path.decode()) if owner is None else OwnOrigin(owner[1].decode())
        try:
            return Target((org[0] if owner is None else owner[2]).decode(), name.decode(), rest, query or b"", origin)
        except ValueError:
            return None


def params_of(request: Request, target: Target, headers: bytes, *, raw: bool) -> bytes:
    """Return the params of a call as JSON text; raises Refused where the body is not what it claims to be."""
    method = _METHODS.get(request.method) or b'"__ow_method":%b' % _text(request.method.lower())
    if raw:
        return b'{%b%b,"__ow_headers":%b%b' % (_raw_body(request), method, headers, target.tail)
    query = target.query
    if request.body:
        body = _body(request)
        query = b"%b,%b" % (query, body) if query and body else query or body
    if query:
        return b'{%b,%b,"__ow_headers":%b%b' % (query, method, headers, target.tail)
    return b'{%b,"__ow_headers":%b%b' % (method, headers, target.tail)


def headers_json(headers: list[tuple[bytes, bytes]]) -> bytes:
    """Return the headers as a JSON object; one that comes several times is joined by commas, as HTTP has it."""
    seen: dict[str, str] = {}
    for name, value in headers:
        key, text = name.decode("latin-1"), value.decode("latin-1")
        seen[key] = f"{seen[key]}, {text}" if key in seen else text
    return encode(seen)


def _body(request: Request) -> bytes:
    declared = request.find_header(b"content-type")
    kind = declared.decode("latin-1").partition(";")[0].strip().lower() if declared else ""
    if _is_json(kind):
        return _json_body(request.body)
    if kind == "application/x-www-form-urlencoded":
        return _form_body(request.body)
    if not kind and request.body.lstrip()[:1] == b"{":
        try:
            return _json_body(request.body)
        except Refused:
            pass  # Nobody said that it is JSON.
    return _other_body(request.body, kind)


def _raw_body(request: Request) -> bytes:
    declared = request.find_header(b"content-type")
    kind = declared.decode("latin-1").partition(";")[0].strip().lower() if declared else ""
    if not request.body:
        return b'"__ow_body":"",'
    if _is_json(kind):
        return b'"__ow_body":"%b","__ow_isBase64Encoded":true,' % base64.b64encode(request.body)
    return _other_body(request.body, kind) + b","


def _is_json(kind: str) -> bool:
    return kind == "application/json" or kind.endswith("+json")


def _json_body(body: bytes) -> bytes:
    try:
        value = decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        raise Refused(answers.BAD_JSON) from None
    if isinstance(value, dict):
        return body.strip()[1:-1].strip()
    return b'"__ow_body":' + body


def _form_body(body: bytes) -> bytes:
    try:
        pairs = parse_qsl(body.decode("utf-8", "replace"), keep_blank_values=True, max_num_fields=10_000)
    except ValueError:
        raise Refused(answers.BAD_JSON) from None
    return encode(dict(pairs))[1:-1]


def _other_body(body: bytes, kind: str) -> bytes:
    if not kind or _TEXTUAL.match(kind):
        try:
            return b'"__ow_body":' + encode(body.decode())
        except UnicodeDecodeError:
            pass
    return b'"__ow_body":"%b","__ow_isBase64Encoded":true' % base64.b64encode(body)


def _text(value: bytes) -> bytes:
    return encode(value.decode("utf-8", "replace"))


# The other way: replies.

_TOKEN = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]{1,256}\Z")
_UNSAFE = re.compile(r"[\x00-\x08\x0a-\x1f\x7f]")
_OURS = frozenset(
    ("content-length", "transfer-encoding", "connection", "keep-alive", "upgrade", "trailer", "te", "date")
) | {"x-openwhisk-activation-id", "x-request-id", "proxy-connection"}


class BadReply(ValueError):
    """A reply that cannot be sent; the message says why."""


class ReplyHead:
    """The headers of a reply, as lines: the function's own, and the CORS headers that it leaves to us."""

    __slots__ = ("cors", "declared", "lines")

    def __init__(self, lines: bytes = b"", cors: bytes = answers.CORS, declared: int = ABSENT) -> None:
        self.lines = lines
        self.cors = cors
        self.declared = declared  # what the headers say about the type of the body


NO_HEAD = ReplyHead()


def reply_head(head: bytes, origin: Origin) -> ReplyHead:
    """Return a function's headers as the origin lets them be sent; raises BadReply."""
    try:
        pairs = msgspec.json.decode(head, type=list[tuple[str, str]])
    except msgspec.DecodeError:
        raise BadReply("the function's headers cannot be read") from None
    lines, cors, declared = [], answers.CORS, ABSENT
    for name, value in pairs:
        lower = name.lower()
        if lower in _OURS:
            continue
        if not _TOKEN.match(name) or _UNSAFE.search(value):
            raise BadReply(f"the function returned a header that cannot be sent: {name[:80]!r}")
        if lower in origin.checked:
            allowed = origin.allowed(lower, value)
            if allowed is None:
                continue
            value = allowed
        elif lower == "content-type":
            declared = declared_type(value) if declared == ABSENT else DOCUMENT
        elif lower == "content-security-policy":
            # A policy without ours could replace the one of a document that a cache has.
            declared = DOCUMENT
        elif lower == "access-control-allow-origin":
            cors = b""
        try:
            lines.append(f"{name}: {value}\r\n".encode("latin-1"))
        except UnicodeEncodeError:
            lines.append(f"{name}: {value}\r\n".encode())
    return ReplyHead(b"".join(lines), cors, declared)


def health(counts: dict[str, object]) -> Answer:
    return Answer(200, encode(counts), ((b"content-type", answers.JSON),))
