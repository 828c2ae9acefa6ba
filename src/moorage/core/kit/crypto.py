"""Encryption of secrets at rest, and keys derived from the operator's two secrets.

A ciphertext is `v1.<key id>.<nonce>.<ciphertext>`, AES-256-GCM, with its storage location (`place`) as additional
authenticated data: a row copied to another organization, resource or name does not decrypt. The key id selects the key
of the ring, so that keys can be rotated while ciphertexts of older keys exist.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import os
from dataclasses import field
from typing import TYPE_CHECKING

from moorage.core.kit.records import dataclass

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

NONCE_BYTES = 12
FORMAT = "v1"


class CannotDecrypt(Exception):
    """The ciphertext is damaged or was moved, or its key is not in the ring."""


def key_id(key: bytes) -> str:
    return hashlib.sha256(b"moorage key id" + key).hexdigest()[:8]


@dataclass(frozen=True)
class KeyRing:
    """The master keys: the first encrypts, all of them decrypt."""

    keys: tuple[bytes, ...] = field(repr=False)

    def __post_init__(self) -> None:
        if not self.keys or any(len(key) < 32 for key in self.keys):
            raise ValueError("a key ring needs keys of at least 32 bytes")

    @property
    def current_id(self) -> str:
        return key_id(self.keys[0])

    @property
    def ids(self) -> tuple[str, ...]:
        return tuple(key_id(key) for key in self.keys)

    def encrypt(self, plaintext: str, *, place: str) -> str:
        nonce = os.urandom(NONCE_BYTES)
        sealed = _cipher(self.keys[0]).encrypt(nonce, plaintext.encode(), place.encode())
        return ".".join((FORMAT, self.current_id, _encode(nonce), _encode(sealed)))

    def decrypt(self, ciphertext: str, *, place: str) -> str:
        from cryptography.exceptions import InvalidTag

        try:
            version, kid, nonce, sealed = ciphertext.split(".")
            if version != FORMAT:
                raise CannotDecrypt(f"the ciphertext at {place} has the unknown format {version!r}")
            key = self._key(kid)
            return _cipher(key).decrypt(_decode(nonce), _decode(sealed), place.encode()).decode()
        except (ValueError, InvalidTag) as error:
            raise CannotDecrypt(f"the ciphertext at {place} is damaged or was moved") from error

    def check_key(self, ciphertext: str) -> None:
        """Raise CannotDecrypt if the key of a ciphertext is not in the ring, without decrypting it."""
        version, kid, *_ = [*ciphertext.split("."), ""]
        if version != FORMAT:
            raise CannotDecrypt(f"a ciphertext has the unknown format {version!r}")
        self._key(kid)

    def is_current(self, ciphertext: str) -> bool:
        return ciphertext.split(".")[1:2] == [self.current_id]

    def _key(self, kid: str) -> bytes:
        for key in self.keys:
            if key_id(key) == kid:
                return key
        raise CannotDecrypt(f"the key {kid} is not among the master keys")


def derive(secret: bytes, purpose: str) -> bytes:
    """Derive a separate key for each purpose from one secret."""
    return hmac.digest(secret, b"moorage " + purpose.encode(), "sha256")


def sign(key: bytes, message: bytes) -> str:
    return _encode(hmac.digest(key, message, "sha256"))


def verify(key: bytes, message: bytes, signature: str) -> bool:
    return hmac.compare_digest(sign(key, message), signature)


def _cipher(key: bytes) -> AESGCM:
    # An idle platform decrypts nothing, and the library takes 9 MB.
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

    # The operator may configure keys longer than 32 bytes; AES-256 takes exactly 32.
    return AESGCM(key if len(key) == 32 else hashlib.sha256(key).digest())


def _encode(raw: bytes) -> str:
    return base64.urlsafe_b64encode(raw).decode().rstrip("=")


def _decode(text: str) -> bytes:
    return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
