"""TLS contexts of connections between machines.

All machines of a platform have the master key. Each derives the same certificate authority from it and signs its own
certificate, so both sides of a connection prove that they have the key, and nothing has to be distributed. With several
master keys, as during a rotation, the first signs and all are trusted.
"""

from __future__ import annotations

import os
import ssl
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from moorage.core.kit.crypto import KeyRing, derive, key_id

VALID_DAYS = 3650  # Each process makes its own certificate and keeps the key in memory.
CLOCK_SKEW = timedelta(days=1)
_ORDER = 0xFFFFFFFF00000000FFFFFFFFFFFFFFFFBCE6FAADA7179E84F3B9CAC2FC632551  # of the curve P-256


@dataclass(frozen=True)
class Contexts:
    server: ssl.SSLContext
    client: ssl.SSLContext


def host_of(machine_id: int) -> str:
    """Return the name in the certificate of a machine."""
    return f"machine-{machine_id}.moorage.internal"


def make_contexts(ring: KeyRing, machine_id: int) -> Contexts:
    """Create the contexts of one machine; 0 for a process that only connects to machines."""
    now = datetime.now(UTC)
    authorities = [_Authority.derive(key, now) for key in ring.keys]
    trusted = "".join(_pem(each.certificate) for each in authorities)
    key = ec.generate_private_key(ec.SECP256R1())
    certificate = authorities[0].sign(key, host_of(machine_id), now)
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    chain = private.decode() + _pem(certificate)
    server, client = (ssl.SSLContext(each) for each in (ssl.PROTOCOL_TLS_SERVER, ssl.PROTOCOL_TLS_CLIENT))
    for context in (server, client):
        context.minimum_version = ssl.TLSVersion.TLSv1_3
        context.verify_mode = ssl.CERT_REQUIRED
        context.load_verify_locations(cadata=trusted)
        _load(context, chain)
    return Contexts(server, client)


@dataclass(frozen=True)
class _Authority:
    key: ec.EllipticCurvePrivateKey
    certificate: x509.Certificate

    @classmethod
    def derive(cls, master_key: bytes, now: datetime) -> _Authority:
        number = int.from_bytes(derive(master_key, "machines authority"), "big") % (_ORDER - 1) + 1
        key = ec.derive_private_key(number, ec.SECP256R1())
        name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, f"Moorage machines {key_id(master_key)}")])
        builder = _builder(name, name, key.public_key(), now)
        builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        return cls(key, builder.add_extension(_usage(signs=True), critical=True).sign(key, hashes.SHA256()))

    def sign(self, key: ec.EllipticCurvePrivateKey, host: str, now: datetime) -> x509.Certificate:
        name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, host)])
        authority = x509.AuthorityKeyIdentifier.from_issuer_public_key(self.key.public_key())
        both = x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH])
        builder = _builder(name, self.certificate.subject, key.public_key(), now)
        builder = builder.add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        builder = builder.add_extension(_usage(signs=False), critical=True)
        builder = builder.add_extension(both, critical=False).add_extension(authority, critical=False)
        names = x509.SubjectAlternativeName([x509.DNSName(host)])
        return builder.add_extension(names, critical=False).sign(self.key, hashes.SHA256())


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey, now: datetime
) -> x509.CertificateBuilder:
    builder = x509.CertificateBuilder(subject_name=subject, issuer_name=issuer, public_key=key)
    builder = builder.serial_number(x509.random_serial_number())
    builder = builder.not_valid_before(now - CLOCK_SKEW).not_valid_after(now + timedelta(days=VALID_DAYS))
    return builder.add_extension(x509.SubjectKeyIdentifier.from_public_key(key), critical=False)


def _usage(*, signs: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not signs,
        key_cert_sign=signs,
        crl_sign=signs,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def _pem(certificate: x509.Certificate) -> str:
    return certificate.public_bytes(serialization.Encoding.PEM).decode()


def _load(context: ssl.SSLContext, chain: str) -> None:
    """Load a key and its certificate, which `ssl` accepts from a file only, from memory."""
    descriptor = os.memfd_create("machine-certificate", os.MFD_CLOEXEC)
    try:
        os.write(descriptor, chain.encode())
        context.load_cert_chain(f"/proc/self/fd/{descriptor}")
    finally:
        os.close(descriptor)
