"""Identifiers: types of ids, random tokens with a checksum, slugs."""

from __future__ import annotations

import hashlib
import random
import re
import secrets
import uuid
import zlib
from functools import lru_cache
from typing import NewType

UserId = NewType("UserId", int)
OrgId = NewType("OrgId", int)

BASE62 = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
# Ids are positive BIGINT values; a larger number in a path cannot be an id.
MAX_ID = 2**63 - 1

RANDOM_CHARS = 34
CHECKSUM_CHARS = 6


def new_uuid() -> str:
    return str(uuid.uuid4())


def new_trace_id() -> str:
    """Return a trace id for logs; it is not secret, so it may be fast."""
    return f"{random.getrandbits(128):032x}"


def parse_id(text: str) -> int | None:
    """Return the id in the text of a path or header, or None if the text is not an id."""
    if not text.isascii() or not text.isdigit() or len(text) > 19 or (text[0] == "0" and text != "0"):
        return None
    value = int(text)
    return value if 0 < value <= MAX_ID else None


def parse_uuid(text: str) -> str | None:
    """Return a UUID in lower case, or None if the text is not one."""
    if not re.fullmatch(r"[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}", text):
        return None
    return text.lower()


def new_token(prefix: str) -> str:
    """Return `<prefix>` and 40 base62 characters; the last 6 are a checksum.

    The checksum lets secret scanners reject text that is not a token.
    """
    body = prefix + _to_base62(secrets.randbelow(62**RANDOM_CHARS), RANDOM_CHARS)
    return body + _checksum(body)


@lru_cache(maxsize=4096)
def token_hash(token: str) -> str:
    """Return the stored hash of a token; 200 random bits resist brute force."""
    return hashlib.sha256(token.encode()).hexdigest()


def token_preview(token: str) -> str:
    return f"{token[:3]}_...{token[-4:]}"


def slugify(text: str, fallback: str) -> str:
    """Return a name as a DNS label, or the fallback if no character of it can be used."""
    slug = re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")[:40].strip("-")
    return slug or fallback


def _checksum(body: str) -> str:
    return _to_base62(zlib.crc32(body.encode()), CHECKSUM_CHARS)


def _to_base62(value: int, length: int) -> str:
    digits = ""
    for _ in range(length):
        value, digit = divmod(value, 62)
        digits = BASE62[digit] + digits
    return digits
