"""Keys in text: 32 random bytes in hex or base64."""

from __future__ import annotations

import base64
import binascii


def weakness(secret: str) -> str | None:
    """Return the problem of a 32-byte secret, or None."""
    try:
        raw = decode_secret(secret)
    except ValueError:
        return "should be 32 random bytes in hex or base64"
    if len(raw) < 32:
        return f"is too short: {len(raw)} bytes, 32 are needed"
    # 32 random bytes have about 30 distinct values; a repeated word has far fewer.
    if len(set(raw)) < 16:
        return "is too weak: its bytes repeat"
    return None


def decode_secret(secret: str) -> bytes:
    """Decode a secret in hex or base64 (either alphabet); raises ValueError."""
    text = secret.strip()
    try:
        return bytes.fromhex(text)
    except ValueError:
        pass
    try:
        padded = text + "=" * (-len(text) % 4)
        return base64.b64decode(padded.replace("-", "+").replace("_", "/"), validate=True)
    except binascii.Error as error:
        raise ValueError("neither hex nor base64") from error
