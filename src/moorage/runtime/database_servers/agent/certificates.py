"""Certificates of an agent and of the platform as its client, signed by an authority of their own.

Each database has its own authority, whose key is not kept. So an agent of one database cannot pose as another one.
"""

from __future__ import annotations

import ssl
import tempfile
from datetime import UTC, datetime, timedelta

import msgspec
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, ObjectIdentifier

from moorage.core.net.certificates import Authority, certificate_pem, key_pem

DAYS = 3650
RENEW_BEFORE_DAYS = 365  # A server that starts later than this gets new certificates.
CLIENT_NAME = "platform"


class Certificates(msgspec.Struct, frozen=True):
    """PEM texts of both sides."""

    authority: str
    server: str
    server_key: str
    client: str
    client_key: str

    def is_current(self, now_ms: int) -> bool:
        renew_at = x509.load_pem_x509_certificate(self.server.encode()).not_valid_after_utc
        return _time(now_ms) < renew_at - timedelta(days=RENEW_BEFORE_DAYS)


def make(name: str, now_ms: int) -> Certificates:
    now = _time(now_ms)
    authority = Authority.make(f"Agent of {name}", ec.generate_private_key(ec.SECP256R1()), now, DAYS)

    def sign(common_name: str, purpose: ObjectIdentifier) -> tuple[str, str]:
        key = ec.generate_private_key(ec.SECP256R1())
        certificate = authority.sign(key, common_name, [x509.DNSName(common_name)], [purpose], now, DAYS)
        return certificate_pem(certificate), key_pem(key)

    server, client = sign(name, ExtendedKeyUsageOID.SERVER_AUTH), sign(CLIENT_NAME, ExtendedKeyUsageOID.CLIENT_AUTH)
    return Certificates(certificate_pem(authority.certificate), *server, *client)


def context(purpose: ssl.Purpose, authority: str, certificate: str, key: str) -> ssl.SSLContext:
    """Return the TLS context of one side, which requires a certificate of the other one."""
    made = ssl.create_default_context(purpose, cadata=authority)
    made.minimum_version = ssl.TLSVersion.TLSv1_3
    made.verify_mode = ssl.CERT_REQUIRED
    # The ssl module reads certificates from files only.
    with tempfile.NamedTemporaryFile("w", suffix=".pem") as file:
        file.write(f"{certificate}\n{key}")
        file.flush()
        made.load_cert_chain(file.name)
    return made


def _time(ms: int) -> datetime:
    return datetime.fromtimestamp(ms / 1000, UTC)
