"""Converts HTTP requests and replies, as OpenWhisk web actions.

Params are one JSON object, concatenated as text: query, body, then the edge's own members. JSON parsers use the last of
equal names, so a request cannot override the edge's members.
"""

from __future__ import annotations

import base64
import binascii
import re

import msgspec

from moorage.core.kit.decoding import decoder_of
from moorage.runtime.edge.connections import answers
from moorage.runtime.edge.connections.answers import Answer, Request
from moorage.runtime.edge.connections.origins import ABSENT, DOCUMENT, Origin, OwnOrigin, SharedOrigin, declared_type
from moorage.runtime.edge.connections.protocol import Refused

PREFIX = b"/api/v1/web/org_"
_NAME_AND_REST = rb"/default/([a-z0-9-]{1,63})(?:\.http)?)((?:/[^?#]*)?)(?:\?([^#]*))?\Z"
_SHARED = re.compile(rb"(/api/v1/web/org_([0-9]{1,19})" + _NAME_AND_REST)
_OWN = re.compile(rb"(" + _NAME_AND_REST)
_TEXTUAL = re.compile(r"text/|application/(.*\+)?(xml|javascript|ecmascript|graphql|yaml|x-yaml|x-ndjson|sql|toml)\b")
_ESCAPES = re.compile(rb"(?:%[0-9A-Fa-f]{2})+")
MAX_FORM_BYTES = 2**20  # A larger form is in `__ow_body`: decoding 6 MB would delay the calls of all functions.
_MAX_FORM_FIELDS = 10_000
_MAX_QUERY_FIELDS = 1_000
_DECODED_JSON_BYTES = 64 * 1024  # Decoding 6 MB of JSON into objects takes a second and more than 100 MB.
_METHODS = {
    name: b'"__ow_method":"%b"' % name.lower()
    for name in (b"GET", b"POST", b"PUT", b"PATCH", b"DELETE", b"HEAD", b"OPTIONS")
}

encode = msgspec.json.Encoder().encode
decode = msgspec.json.Decoder().decode
_decode_pairs = decoder_of(list[tuple[str, str]]).decode
_validate = decoder_of(msgspec.Raw).decode
_decode_members = decoder_of(dict[str, msgspec.Raw]).decode

_BODY_PARAMS = ("__ow_body", "__ow_isBase64Encoded")  # The other params of the edge replace those of a request.


class _BodyParams(msgspec.Struct):
    """Members of a JSON body with the names of `_BODY_PARAMS`; decoding skips all others."""

    body: msgspec.Raw = msgspec.field(default=msgspec.Raw(b""), name=_BODY_PARAMS[0])
    is_base64: msgspec.Raw = msgspec.field(default=msgspec.Raw(b""), name=_BODY_PARAMS[1])


_NO_BODY_PARAMS = _BodyParams()
_decode_body_params = decoder_of(_BodyParams).decode


class FunctionTarget:
    """A parsed request target: the function, and the params from path and query."""

    __slots__ = ("name", "org", "origin", "query", "rest", "tail")

    def __init__(self, org: str, name: str, rest: bytes, query: bytes, origin: Origin) -> None:
        self.origin = origin
        self.org = org
        self.name = name
        self.rest = rest
        self.query: bytes | None = b""  # None: a query with too many fields
        if query:
            fields = _form_fields(query, _MAX_QUERY_FIELDS)
            self.query = None if fields is None else encode(fields)[1:-1]
        self.tail = b',"__ow_path":%b,"__ow_query":%b}' % (_text(rest), _text(query))


class TargetCache:
    """Cache of parsed targets; `domain` is the parent of the organizations' hosts."""

    def __init__(self, domain: str = "", max_entries: int = 4096) -> None:
        self._parsed: dict[tuple[bytes, bytes | None], FunctionTarget] = {}
        self._max_entries = max_entries
        below = rb"(org-([1-9][0-9]{0,18})\." + re.escape(domain.encode()) + rb")(?::[0-9]{1,5})?"
        self._own_host = re.compile(below) if domain else None

    def find(self, target: bytes, host: bytes | None = None) -> FunctionTarget | None:
        """Parse a request's target and Host header; None if they cannot name a function."""
        key = (target, host)
        parsed = self._parsed.get(key)
        if parsed is None:
            parsed = self._parse(target, host)
            if parsed is None:
                return None
            if len(self._parsed) >= self._max_entries:
                self._parsed.clear()
            if len(target) + len(host or b"") < 1024:
                self._parsed[key] = parsed
        return parsed

    def _parse(self, target: bytes, host: bytes | None) -> FunctionTarget | None:
        owner = self._own_host.fullmatch(host.lower()) if self._own_host is not None and host else None
        match = _SHARED.match(target) if owner is None else _OWN.match(target)
        if match is None:
            return None
        path, *org, name, rest, query = match.groups()
        origin: Origin = SharedOrigin(path.decode()) if owner is None else OwnOrigin(owner[1].decode())
        org_id = org[0] if owner is None else owner[2]
        return FunctionTarget(org_id.decode(), name.decode(), rest, query or b"", origin)


def params_of(request: Request, target: FunctionTarget, headers: bytes, *, raw: bool) -> bytes:
    """Return the params of a call as JSON text; raises Refused for a bad body or query."""
    method = _METHODS.get(request.method) or b'"__ow_method":%b' % _text(request.method.lower())
    if raw:
        return b'{%b%b,"__ow_headers":%b%b' % (_raw_body(request), method, headers, target.tail)
    query = target.query
    if query is None:
        raise Refused(answers.LONG_QUERY)
    if request.body:
        body = _body(request)
        query = b"%b,%b" % (query, body) if query and body else query or body
    if query:
        return b'{%b,%b,"__ow_headers":%b%b' % (query, method, headers, target.tail)
    return b'{%b,"__ow_headers":%b%b' % (method, headers, target.tail)


def headers_json(headers: list[tuple[bytes, bytes]]) -> bytes:
    """Return the headers as a JSON object; duplicate headers are joined by commas."""
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
    if kind == "application/x-www-form-urlencoded" and len(request.body) <= MAX_FORM_BYTES:
        return _form_body(request.body)
    if not kind and request.body.lstrip()[:1] == b"{":
        try:
            return _json_body(request.body)
        except Refused:
            pass  # The client did not declare JSON.
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


def check_json(body: bytes) -> None:
    """Raise msgspec.DecodeError, UnicodeDecodeError or RecursionError if a text is not JSON."""
    if len(body) <= _DECODED_JSON_BYTES:
        decode(body)
    else:
        _validate(body)
        body.decode()  # `msgspec.Raw` does not check UTF-8.


def _json_body(body: bytes) -> bytes:
    try:
        check_json(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        raise Refused(answers.BAD_JSON) from None
    inner = body.strip()
    if inner[:1] != b"{":
        return b'"__ow_body":' + body
    if (b"__ow_" in inner or b"\\u00" in inner) and _decode_body_params(inner) != _NO_BODY_PARAMS:
        inner = _without_body_params(inner)
    return inner[1:-1].strip()


def _without_body_params(text: bytes) -> bytes:
    """Remove the members of a JSON object that only the edge sets; the others stay as they are."""
    if len(text) > _DECODED_JSON_BYTES:
        raise Refused(answers.RESERVED)
    members = _decode_members(text)
    return encode({name: value for name, value in members.items() if name not in _BODY_PARAMS})


def _form_body(body: bytes) -> bytes:
    fields = _form_fields(body, _MAX_FORM_FIELDS)
    if fields is None:
        raise Refused(answers.LONG_FORM)
    return encode(fields)[1:-1]


def _form_fields(form: bytes, max_fields: int) -> dict[str, str] | None:
    """Decode a form or a query, without params that only the edge sets; return None if it has too many fields.

    The result is that of `urllib.parse.parse_qsl`, which needs ten times as long for invalid escapes.
    """
    text = form.decode("utf-8", "replace").replace("+", " ")
    if text.count("&") >= max_fields:
        return None
    parts = (each.partition("=") for each in text.split("&") if each)
    fields = {_unescape(name): _unescape(value) for name, _, value in parts}
    for name in _BODY_PARAMS:
        fields.pop(name, None)
    return fields


def _unescape(text: str) -> str:
    if "%" not in text:
        return text
    return _ESCAPES.sub(_unescape_run, text.encode()).decode("utf-8", "replace")


def _unescape_run(match: re.Match[bytes]) -> bytes:
    return binascii.unhexlify(match[0].replace(b"%", b""))


def _other_body(body: bytes, kind: str) -> bytes:
    if not kind or _TEXTUAL.match(kind):
        try:
            return b'"__ow_body":' + encode(body.decode())
        except UnicodeDecodeError:
            pass
    return b'"__ow_body":"%b","__ow_isBase64Encoded":true' % base64.b64encode(body)


def _text(value: bytes) -> bytes:
    return encode(value.decode("utf-8", "replace"))


# Replies.

_TOKEN = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]{1,256}\Z")
_UNSAFE = re.compile(r"[\x00-\x08\x0a-\x1f\x7f]")
_EDGE_HEADERS = frozenset(
    ("content-length", "transfer-encoding", "connection", "keep-alive", "upgrade", "trailer", "te", "date")
) | {"x-openwhisk-activation-id", "x-request-id", "proxy-connection"}


class BadReply(ValueError):
    """A reply that cannot be sent; the message is for the function's author."""


class ReplyHead:
    """Header lines of a reply: the function's own, and default CORS headers."""

    __slots__ = ("cors", "declared", "lines")

    def __init__(self, lines: bytes = b"", cors: bytes = answers.CORS, declared: int = ABSENT) -> None:
        self.lines = lines
        self.cors = cors
        self.declared = declared  # ABSENT, INERT or DOCUMENT, by the Content-Type header


NO_HEAD = ReplyHead()


def reply_head(head: bytes, origin: Origin) -> ReplyHead:
    """Filter a function's headers by the rules of the origin; raises BadReply."""
    try:
        pairs = _decode_pairs(head)
    except msgspec.DecodeError:
        raise BadReply("the function's headers cannot be read") from None
    lines, declared = [], ABSENT
    own_cors: set[str] = set()
    for name, value in pairs:
        lower = name.lower()
        if lower in _EDGE_HEADERS:
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
            # Treated as a document: a 304 with only the function's policy could replace ours in a cached document.
            declared = DOCUMENT
        elif lower in answers.CORS_NAMES:
            own_cors.add(lower)
        try:
            lines.append(f"{name}: {value}\r\n".encode("latin-1"))
        except UnicodeEncodeError:
            lines.append(f"{name}: {value}\r\n".encode())
    return ReplyHead(b"".join(lines), answers.cors_besides(own_cors) if own_cors else answers.CORS, declared)


def health(counts: dict[str, object]) -> Answer:
    return Answer(200, encode(counts), ((b"content-type", answers.JSON),))
