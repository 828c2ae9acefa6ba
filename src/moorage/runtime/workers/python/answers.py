"""Converts results of Python functions into JSON or HTTP responses.

Part of the Python worker: it imports only the standard library and runs on Python 3.9 and later.
"""

from __future__ import annotations

import binascii
import json
import math
import re
from collections.abc import Callable
from json import encoder as json_encoder
from typing import Any

Json = Any
Answer = tuple[int, int, bytes, bytes]  # status, kind, head, body

NO_TYPE, HTML, JSON, DECLARED = 0, 1, 2, 3
HEADS_KEPT = 64
MESSAGE_CHARACTERS = 2000

HOP_BY_HOP = frozenset(
    ("connection", "content-length", "keep-alive", "proxy-connection", "te", "trailer", "transfer-encoding", "upgrade")
)
TOKEN = re.compile(r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+").fullmatch
UNSENDABLE = re.compile(r"[\r\n\0]").search
STATUS = re.compile(r"[1-5][0-9][0-9]").fullmatch
BASE64 = re.compile(r"[A-Za-z0-9+/]*={0,2}").fullmatch
SPACE = re.compile(r"[ \t\r\n]+")
# Unknown application types count as text, else a body that is not base64 would fail.
IS_BINARY = re.compile(
    r"(?!.*\+(?:xml|json|yaml|text)$)(?:(?:image|audio|video|font)/.+|application/(?:octet-stream|pdf|zip|gzip|x-gzip|zstd"
    r"|x-tar|x-bzip2?|x-xz|x-7z-compressed|x-rar-compressed|x-zip-compressed|java-archive|wasm|msword|vnd\.(?!.*\+).+"
    r"|x-protobuf|protobuf|msgpack|x-msgpack|cbor|x-font-.+|font-.+|x-shockwave-flash|x-sqlite3|.+\+(?:zip|gzip|cbor)))"
).fullmatch


class Refused(Exception):
    """The function's result cannot be sent; the message is for its author."""


def _encoder(*, ascii_only: bool) -> Callable[[Json], str]:
    """Return a JSON encoder; `json.dumps` would build one for every value."""
    plain = json.JSONEncoder(ensure_ascii=ascii_only, allow_nan=False, separators=(",", ":"))
    text = json_encoder.encode_basestring_ascii if ascii_only else json_encoder.encode_basestring
    markers: dict[int, Any] = {}
    try:
        make: Any = json_encoder.c_make_encoder  # type: ignore[attr-defined]
        fast = make(markers, plain.default, text, None, ":", ",", False, False, False)
        usable = "".join(fast({"a": [1, "é"]}, 0)) == plain.encode({"a": [1, "é"]})
    except (TypeError, AttributeError):
        usable = False
    if not usable:
        return plain.encode

    def encode(value: Json) -> str:
        markers.clear()
        return "".join(fast(value, 0))

    return encode


_encode = _encoder(ascii_only=False)
_encode_ascii = _encoder(ascii_only=True)


def json_bytes(value: Json, path: str = "result") -> bytes:
    try:
        return _encode(value).encode()
    except UnicodeEncodeError:  # A lone surrogate has no UTF-8 form, but JSON can escape it.
        return _encode_ascii(value).encode()
    except RecursionError:
        raise Refused("the function returned a value that is not JSON: it is nested too deeply") from None
    except (TypeError, ValueError, OverflowError) as error:
        try:
            reason = _find_invalid(value, path, ()) or str(error)
        except RecursionError:
            reason = str(error)
        raise Refused(f"the function returned a value that is not JSON: {reason}") from None


def _find_invalid(value: Json, path: str, above: tuple[Json, ...]) -> str | None:
    """Return the type and path of the first part of a value that JSON cannot express."""
    if value is None or isinstance(value, (str, int)):
        return None
    if isinstance(value, float):
        return None if math.isfinite(value) else f"{'NaN' if math.isnan(value) else 'Infinity'} at {path}"
    if any(value is outer for outer in above):
        return f"a cycle at {path}"
    if isinstance(value, dict):
        invalid_keys = [key for key in value if key is not None and not isinstance(key, (str, int, float))]
        if invalid_keys:
            return f"a key of type {type(invalid_keys[0]).__name__} at {path}"
        inner = ((f"{path}.{key}", item) for key, item in value.items())
    elif isinstance(value, (list, tuple)):
        inner = ((f"{path}[{index}]", item) for index, item in enumerate(value))
    else:
        return f"{type(value).__name__} at {path}"
    return next(filter(None, (_find_invalid(item, where, (*above, value)) for where, item in inner)), None)


def kind_text(value: Json) -> str:
    if value is None:
        return "nothing"
    names = ((bool, "a boolean"), (str, "a string"), ((int, float), "a number"), ((list, tuple), "a list"))
    matches = (name for types, name in names if isinstance(value, types))
    return next(matches, "an object" if isinstance(value, dict) else type(value).__name__)


def body_bytes(text: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace").encode()


class Responses:
    """Converts response objects of web calls; caches the encoded headers."""

    def __init__(self) -> None:
        self._heads: dict[tuple[Any, ...], tuple[bytes, str]] = {}

    def answer(self, result: Json) -> Answer:
        if not isinstance(result, dict):
            raise Refused(f"the function returned {kind_text(result)}, not an object with statusCode and body")
        status = result.get("statusCode")
        if status is None:
            return self._answer_error(result)
        if type(status) is not int or not 100 <= status <= 599:
            status = self._status(status)
        head, declared = self._head(result["headers"]) if result.get("headers") is not None else (b"", "")
        body = result.get("body")
        if type(body) is str:
            if result.get("isBase64Encoded") is True or (declared and IS_BINARY(declared)):
                return status, DECLARED if declared else HTML, head, self._decoded(body)
            return status, DECLARED if declared else HTML, head, body_bytes(body)
        if body is None:
            return status, DECLARED if declared else NO_TYPE, head, b""
        return status, DECLARED if declared else JSON, head, json_bytes(body, "result.body")

    def _answer_error(self, result: dict[str, Json]) -> Answer:
        error = result.get("error")
        if isinstance(error, dict) and error.get("statusCode") is not None:
            return self.answer(error)
        if error is not None:
            text = error if isinstance(error, str) else json_bytes(error, "result.error").decode()
            raise Refused(f"the function returned an error: {text[:MESSAGE_CHARACTERS]}")
        raise Refused(
            "the function returned an object without statusCode, which a response needs: "
            'return {"statusCode": 200, "body": ...}'
        )

    @staticmethod
    def _status(status: Json) -> int:
        if isinstance(status, float) and status.is_integer():
            status = int(status)
        if not isinstance(status, bool) and isinstance(status, (int, str)) and STATUS(str(status)):
            return int(status)
        shown = repr(status) if isinstance(status, (str, float)) else str(status).lower()
        raise Refused(f"statusCode is {shown[:40]}, not a whole number from 100 to 599")

    @staticmethod
    def _decoded(body: str) -> bytes:
        text = SPACE.sub("", body)
        if not BASE64(text) or len(text) % 4:
            raise Refused("the body should be base64, but it is not")
        return binascii.a2b_base64(text)

    def _head(self, headers: Json) -> tuple[bytes, str]:
        """Return the encoded headers, and the content type without parameters."""
        if not isinstance(headers, dict):
            raise Refused(f"headers is {kind_text(headers)}, not an object")
        key = tuple(headers.items())
        if not all(type(value) is str for value in headers.values()):
            return self._make_head(headers)
        if key not in self._heads:
            if len(self._heads) >= HEADS_KEPT:
                self._heads.clear()
            self._heads[key] = self._make_head(headers)
        return self._heads[key]

    def _make_head(self, headers: dict[str, Json]) -> tuple[bytes, str]:
        pairs: list[tuple[str, str]] = []
        declared = ""
        for name, value in headers.items():
            if not isinstance(name, str) or not TOKEN(name):
                raise Refused(f"{str(name)[:80]!r} cannot be the name of a header")
            lower = name.lower()
            values = value if isinstance(value, (list, tuple)) else [value]
            texts = [self._header_value(name, single) for single in values]
            if lower == "content-type":
                texts = [text for text in texts if text.strip()][:1]
                declared = texts[0].partition(";")[0].strip().lower() if texts and not declared else declared
            if lower not in HOP_BY_HOP:
                pairs += [(name, text) for text in texts]
        return (json_bytes(pairs) if pairs else b""), declared

    @staticmethod
    def _header_value(name: str, value: Json) -> str:
        if isinstance(value, bool):
            return "true" if value else "false"
        if not isinstance(value, (str, int, float)) or (isinstance(value, float) and not math.isfinite(value)):
            raise Refused(f"the header {name} is {kind_text(value)}, not a string, number, boolean or list of them")
        text = str(value)
        if UNSENDABLE(text):
            raise Refused(f"the header {name} contains a line break or a NUL")
        return text
