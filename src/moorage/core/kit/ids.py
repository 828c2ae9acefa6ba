"""Identifiers: their types, and the random ones that people see."""

from __future__ import annotations

import hashlib
import hmac
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
# 63-bit identifiers: what a BIGINT holds. Longer digits in a path cannot name anything.
MAX_ID = 2**63 - 1

RANDOM_CHARS = 34
CHECKSUM_CHARS = 6


def new_uuid() -> str:
    return str(uuid.uuid4())


def new_trace_id() -> str:
    """Return an id to find a request's log lines by. It is no secret, so the fast generator will do."""
    return f"{random.getrandbits(128):032x}"


def parse_id(text: str) -> int | None:
    """Return the id a path or header names, or None where it cannot be one."""
    if not text.isascii() or not text.isdigit() or len(text) > 19 or (text[0] == "0" and text != "0"):
        return None
    value = int(text)
    return value if 0 < value <= MAX_ID else None


def parse_uuid(text: str) -> str | None:
    """Return a canonical uuid, or None where the text is not one."""
    if not re.fullmatch(r"[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}", text):
        return None
    return text.lower()


def new_token(prefix: str) -> str:
    """Return `<prefix>` and 40 base62 characters, of which the last 6 are a checksum of all before them.

    The checksum lets a scanner, and us, tell a token from noise without asking the store.
    """
    body = prefix + _digits(secrets.randbelow(62**RANDOM_CHARS), RANDOM_CHARS)
    return body + _checksum(body)


def is_token(text: str, *prefixes: str) -> bool:
    """Tell whether a text has the form and checksum of a token with one of the prefixes."""
    prefix = next((p for p in prefixes if text.startswith(p)), None)
    if prefix is None or len(text) != len(prefix) + RANDOM_CHARS + CHECKSUM_CHARS or not text.isascii():
        return False
    body, checksum = text[:-CHECKSUM_CHARS], text[-CHECKSUM_CHARS:]
    return hmac.compare_digest(_checksum(body), checksum)


@lru_cache(maxsize=4096)
def token_hash(token: str) -> str:
    """Return what the store keeps of a token. It has 200 random bits, so a plain SHA-256 cannot be searched."""
    return hashlib.sha256(token.encode()).hexdigest()


def token_preview(token: str) -> str:
    return f"{token[:3]}_...{token[-4:]}"


def slugify(text: str, fallback: str) -> str:
    """Return a subdomain-safe form of a name; the fallback where nothing of it is usable."""
    slug = re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")[:40].strip("-")
    return slug or fallback


def _checksum(body: str) -> str:
    return _digits(zlib.crc32(body.encode()), CHECKSUM_CHARS)


def _digits(value: int, length: int) -> str:
    """Write a number in base 62, with a fixed number of digits."""
    digits = ""
    for _ in range(length):
        value, digit = divmod(value, 62)
        digits = BASE62[digit] + digits
    return digits
