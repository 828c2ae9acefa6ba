"""Sources as regular expressions, for a gateway that knows nothing else.

They are anchored, made of our own pieces only, and in the syntax that Go and Python share. No text of a user gets into
one but letter by letter, and what is not a letter or digit goes in as its number.
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
    """Return the expression of a source for decoded paths without double slashes."""
    parts = [
        quoted(part.before) + (_DECODED[part.wild] + quoted(part.after) if part.wild else "") for part in source.parts
    ]
    return "(?s)^/" + "/".join(parts) + "$"


def escaped_regexp(redirect: Redirect) -> str:
    """Return the expression of a redirect for a path as it is escaped in a request, with its query.

    Its captures are the wildcards in their order, then the query with its `?`. Characters that never need an escape
    have to come without one, and no byte may be in it that Go would have escaped.
    """
    text, wildcard = "", 0
    for part in redirect.source.parts:
        text += "/" + _either_way(part.before)
        if part.wild is not None:
            text += _capture(part, is_in_query=wildcard in redirect.in_query) + _either_way(part.after)
            wildcard += 1
    return rf"(?s)^{text}(\?.*)?$"


def _capture(part: Part, *, is_in_query: bool) -> str:
    marks = QUERY_MARKS if is_in_query else ""
    if part.wild is Wild.ONE:
        return f"([^/?{marks}]+)"
    # Alone in its part, it does not begin with a slash; see `Part.find`.
    return f"([^?{marks}]*)" if part.before else f"/*((?:[^/?{marks}][^?{marks}]*)?)"


def _either_way(text: str) -> str:
    return "".join(_byte(byte) for byte in text.encode())


def _byte(byte: int) -> str:
    char = chr(byte)
    if char in UNRESERVED:
        return quoted(char)
    escape = "%" + "".join(f"[{digit}{digit.upper()}]" if digit.isalpha() else digit for digit in f"{byte:02x}")
    return f"(?:{quoted(char)}|{escape})" if char in _MAY_BE_ESCAPED else escape


def quoted(text: str) -> str:
    """Return the expression of a text."""
    return re.sub(r"[^A-Za-z0-9\x80-\U0010ffff]", lambda found: f"\\x{ord(found[0]):02x}", text)
