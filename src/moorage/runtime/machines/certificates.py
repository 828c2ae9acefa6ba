"""TLS contexts of connections between machines, and between processes of the platform.

All machines of a platform have the master key. Each derives the same certificate authority from it and signs its own
certificate, so both sides of a connection prove that they have the key, and nothing has to be distributed. With several
master keys, as during a rotation, the first signs and all are trusted.
"""

from __future__ import annotations

import os
import ssl
from datetime import UTC, datetime

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID

from moorage.core.kit.crypto import KeyRing, derive, key_id
from moorage.core.kit.records import dataclass
from moorage.core.net.certificates import Authority, certificate_pem, key_pem

EDGE_HOST = "edge.moorage.internal"  # name in the certificate of a process that accepts calls for its edge
VALID_DAYS = 3650  # Each process makes its own certificate and keeps the key in memory.
_ORDER = 0xFFFFFFFF00000000FFFFFFFFFFFFFFFFBCE6FAADA7179E84F3B9CAC2FC632551  # of the curve P-256


@dataclass(frozen=True)
class Contexts:
    server: ssl.SSLContext
    client: ssl.SSLContext


def host_of(machine_id: int) -> str:
    """Return the name in the certificate of a machine; 0 for a process that only connects to machines."""
    return f"machine-{machine_id}.moorage.internal"


def make_contexts(ring: KeyRing, host: str) -> Contexts:
    """Create the contexts of one process; `host` is the name in its certificate."""
    now = datetime.now(UTC)
    authorities = [_derive(key, now) for key in ring.keys]
    trusted = "".join(certificate_pem(each.certificate) for each in authorities)
    key = ec.generate_private_key(ec.SECP256R1())
    purposes = [ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]
    certificate = authorities[0].sign(key, host, [x509.DNSName(host)], purposes, now, VALID_DAYS)
    chain = key_pem(key) + certificate_pem(certificate)
    server, client = (ssl.SSLContext(each) for each in (ssl.PROTOCOL_TLS_SERVER, ssl.PROTOCOL_TLS_CLIENT))
    for context in (server, client):
        context.minimum_version = ssl.TLSVersion.TLSv1_3
        context.verify_mode = ssl.CERT_REQUIRED
        context.load_verify_locations(cadata=trusted)
        _load(context, chain)
    return Contexts(server, client)


def _derive(master_key: bytes, now: datetime) -> Authority:
    number = int.from_bytes(derive(master_key, "machines authority"), "big") % (_ORDER - 1) + 1
    key = ec.derive_private_key(number, ec.SECP256R1())
    return Authority.make(f"Moorage machines {key_id(master_key)}", key, now, VALID_DAYS)


def _load(context: ssl.SSLContext, chain: str) -> None:
    """Load a key and its certificate, which `ssl` accepts from a file only, from memory."""
    descriptor = os.memfd_create("machine-certificate", os.MFD_CLOEXEC)
    try:
        os.write(descriptor, chain.encode())
        context.load_cert_chain(f"/proc/self/fd/{descriptor}")
    finally:
        os.close(descriptor)
