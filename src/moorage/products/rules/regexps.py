"""Regular expressions of sources, for the gateway.

The expressions are anchored and use the syntax that Go and Python share. User text is escaped character by character:
everything except letters and digits becomes a hexadecimal escape.
"""

from __future__ import annotations

import re
import string

from moorage.products.rules.destinations import QUERY_MARKS, Redirect
from moorage.products.rules.patterns import Part, Source, Wild

UNRESERVED = string.ascii_letters + string.digits + "-._~"
_MAY_BE_ESCAPED = "!$&'()*+,;=:@[]"
_DECODED = {Wild.ONE: "[^/]+", Wild.REST: ".*"}


def decoded_regexp(source: Source) -> str:
    """Return the expression that matches decoded paths without double slashes."""
    parts = [
        quoted(part.before) + (_DECODED[part.wild] + quoted(part.after) if part.wild else "") for part in source.parts
    ]
    return "(?s)^/" + "/".join(parts) + "$"


def escaped_regexp(redirect: Redirect) -> str:
    """Return the expression that matches an escaped request path with its query.

    Its captures are the wildcards in their order, then the query with its `?`. Unreserved characters match only
    unescaped, and bytes that Go escapes match only escaped.
    """
    text, wildcard = "", 0
    for part in redirect.source.parts:
        text += "/" + _escaped_or_plain(part.before)
        if part.wild is not None:
            text += _capture(part, is_in_query=wildcard in redirect.in_query) + _escaped_or_plain(part.after)
            wildcard += 1
    return rf"(?s)^{text}(\?.*)?$"


def _capture(part: Part, *, is_in_query: bool) -> str:
    marks = QUERY_MARKS if is_in_query else ""
    if part.wild is Wild.ONE:
        return f"([^/?{marks}]+)"
    # Without text before it, the capture does not begin with a slash; see `Part.find`.
    return f"([^?{marks}]*)" if part.before else f"/*((?:[^/?{marks}][^?{marks}]*)?)"


def _escaped_or_plain(text: str) -> str:
    return "".join(_byte(byte) for byte in text.encode())


def _byte(byte: int) -> str:
    char = chr(byte)
    if char in UNRESERVED:
        return quoted(char)
    escape = "%" + "".join(f"[{digit}{digit.upper()}]" if digit.isalpha() else digit for digit in f"{byte:02x}")
    return f"(?:{quoted(char)}|{escape})" if char in _MAY_BE_ESCAPED else escape


def quoted(text: str) -> str:
    """Return the expression that matches a literal text."""
    return re.sub(r"[^A-Za-z0-9\x80-\U0010ffff]", lambda match: f"\\x{ord(match[0]):02x}", text)
