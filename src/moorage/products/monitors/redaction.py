"""Hides the credentials of a monitor from viewers: headers, body, URL password.

A client that read redacted values may send them back in an update. The mask then keeps the stored value.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import urlsplit

from moorage.core.kit.masking import MASK

Headers = Sequence[tuple[str, str]]


def redact_headers(headers: Headers) -> list[tuple[str, str]]:
    """Mask every value: no list of secret header names would be complete."""
    return [(name, MASK) for name, _ in headers]


def redact_url(url: str) -> str:
    try:
        parts = urlsplit(url)
    except ValueError:  # An earlier release stored URLs with malformed IPv6 addresses.
        return MASK
    credentials, at, host = parts.netloc.rpartition("@")
    if not at or not credentials:
        return url
    user, colon, _ = credentials.partition(":")
    # A bare user name is often a token: https://<token>@host/.
    hidden = f"{user}:{MASK}" if colon else MASK
    return parts._replace(netloc=f"{hidden}@{host}").geturl()


def restore_changes(changes: Mapping[str, Any], stored_url: str) -> dict[str, Any]:
    """Return the changes without a URL that is the redacted form of the stored one."""
    if changes.get("url") == redact_url(stored_url):
        return {column: value for column, value in changes.items() if column != "url"}
    return dict(changes)


def restore_headers(sent: Headers, stored: Headers) -> list[tuple[str, str]]:
    """Return the sent headers, with stored values in place of masks."""
    by_name = {name.lower(): value for name, value in stored}
    return [(name, by_name.get(name.lower(), value) if value == MASK else value) for name, value in sent]
