"""Certificate of one pod, made for it by the platform that connects to the pod."""

from __future__ import annotations

import os
import ssl
from datetime import UTC, datetime
from typing import NamedTuple

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID

from moorage.core.net.certificates import Authority, certificate_pem, key_pem

VALID_DAYS = 2


class PodIdentity(NamedTuple):
    """Key and certificate of one pod, and the authority that the platform trusts for it."""

    chain: str
    authority: str


def make(host: str, issuer: str) -> PodIdentity:
    """Return an identity for a host name, with an authority of its own whose key is not kept."""
    now = datetime.now(UTC)
    authority = Authority.make(issuer, ec.generate_private_key(ec.SECP256R1()), now, VALID_DAYS)
    key = ec.generate_private_key(ec.SECP256R1())
    certificate = authority.sign(key, host, [x509.DNSName(host)], [ExtendedKeyUsageOID.SERVER_AUTH], now, VALID_DAYS)
    return PodIdentity(key_pem(key) + certificate_pem(certificate), certificate_pem(authority.certificate))


def server_context(chain: str) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    # `ssl` reads a key from a file only.
    descriptor = os.memfd_create("pod-certificate", os.MFD_CLOEXEC)
    try:
        os.write(descriptor, chain.encode())
        context.load_cert_chain(f"/proc/self/fd/{descriptor}")
    finally:
        os.close(descriptor)
    return context


def client_context(authority: str) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.load_verify_locations(cadata=authority)
    return context
