"""From an HTTP request to a call's params, and from a function's reply to an HTTP answer, as web actions have it.

Params are one JSON object, put together as text: the query first, then the body, then what the gateway adds. Of equal
names the last one counts, in every JSON parser that functions use, so what comes later cannot be overridden.
"""

from __future__ import annotations

import base64
import re
from urllib.parse import parse_qsl

import msgspec

from moorage.edge import answers
from moorage.edge.answers import Answer, Request
from moorage.edge.protocol import Refused

PREFIX = b"/api/v1/web/org_"
_TARGET = re.compile(
    rb"/api/v1/web/org_([0-9]{1,19})/default/([a-z0-9-]{1,63})(?:\.http)?((?:/[^?#]*)?)(?:\?([^#]*))?\Z"
)
_TEXTUAL = re.compile(r"text/|application/(.*\+)?(xml|javascript|ecmascript|graphql|yaml|x-yaml|x-ndjson|sql|toml)\b")
_METHODS = {
    name: b'"__ow_method":"%b"' % name.lower()
    for name in (b"GET", b"POST", b"PUT", b"PATCH", b"DELETE", b"HEAD", b"OPTIONS")
}

encode = msgspec.json.Encoder().encode
decode = msgspec.json.Decoder().decode


class Target:
    """What a request's target says: the function, and the part of its params that comes from the address."""

    __slots__ = ("name", "org", "query", "rest", "tail")

    def __init__(self, org: str, name: str, rest: bytes, query: bytes) -> None:
        self.org = org
        self.name = name
        self.rest = rest
        pairs = (
            parse_qsl(query.decode("utf-8", "replace"), keep_blank_values=True, max_num_fields=1000) if query else ()
        )
        self.query = encode(dict(pairs))[1:-1] if pairs else b""
        self.tail = b',"__ow_path":%b,"__ow_query":%b}' % (_text(rest), _text(query))


class Targets:
    """Parsed targets: most requests repeat one."""

    def __init__(self, most: int = 4096) -> None:
        self._known: dict[bytes, Target] = {}
        self._most = most

    def find(self, target: bytes) -> Target | None:
        found = self._known.get(target)
        if found is None:
            match = _TARGET.match(target)
            if match is None:
                return None
            org, name, rest, query = match.groups()
            try:
                found = Target(org.decode(), name.decode(), rest, query or b"")
            except ValueError:
                return None
            if len(self._known) >= self._most:
                self._known.clear()
            if len(target) < 1024:
                self._known[target] = found
        return found


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


def reply_headers(head: bytes) -> tuple[bytes, bytes]:
    """Return a function's headers as lines, and the CORS lines that they leave to us; raises BadReply."""
    try:
        pairs = msgspec.json.decode(head, type=list[tuple[str, str]])
    except msgspec.DecodeError:
        raise BadReply("the function's headers cannot be read") from None
    lines, has_cors = [], False
    for name, value in pairs:
        lower = name.lower()
        if lower in _OURS:
            continue
        if not _TOKEN.match(name) or _UNSAFE.search(value):
            raise BadReply(f"the function returned a header that cannot be sent: {name[:80]!r}")
        has_cors = has_cors or lower == "access-control-allow-origin"
        try:
            lines.append(f"{name}: {value}\r\n".encode("latin-1"))
        except UnicodeEncodeError:
            lines.append(f"{name}: {value}\r\n".encode())
    return b"".join(lines), b"" if has_cors else answers.CORS


def health(counts: dict[str, object]) -> Answer:
    return Answer(200, encode(counts), ((b"content-type", answers.JSON),))
