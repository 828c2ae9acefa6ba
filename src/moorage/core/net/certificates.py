"""Certificates of the platform's own authorities: for database servers, and for connections between machines."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID, ObjectIdentifier

from moorage.core.kit.records import dataclass

CLOCK_SKEW = timedelta(days=1)  # A peer's clock may be behind.
MAX_COMMON_NAME_LENGTH = 64


@dataclass(frozen=True)
class Authority:
    key: ec.EllipticCurvePrivateKey
    certificate: x509.Certificate

    @classmethod
    def make(cls, common_name: str, key: ec.EllipticCurvePrivateKey, now: datetime, days: int) -> Authority:
        """Sign the authority's own certificate."""
        name = _name(common_name)
        builder = _builder(name, name, key, now, days, is_authority=True)
        return cls(key, builder.sign(key, hashes.SHA256()))

    def sign(
        self,
        key: ec.EllipticCurvePrivateKey,
        common_name: str,
        names: Sequence[x509.GeneralName],
        purposes: Sequence[ObjectIdentifier],
        now: datetime,
        days: int,
    ) -> x509.Certificate:
        """Sign a certificate for a key, with these names and extended key usages."""
        identifier = x509.AuthorityKeyIdentifier.from_issuer_public_key(self.key.public_key())
        builder = _builder(_name(common_name), self.certificate.subject, key, now, days, is_authority=False)
        builder = builder.add_extension(x509.ExtendedKeyUsage(purposes), critical=False)
        builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
        return builder.add_extension(identifier, critical=False).sign(self.key, hashes.SHA256())


def key_pem(key: ec.EllipticCurvePrivateKey) -> str:
    pem, plain = serialization.Encoding.PEM, serialization.NoEncryption()
    return key.private_bytes(pem, serialization.PrivateFormat.PKCS8, plain).decode()


def certificate_pem(certificate: x509.Certificate) -> str:
    return certificate.public_bytes(serialization.Encoding.PEM).decode()


def _name(common_name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common_name[:MAX_COMMON_NAME_LENGTH])])


def _builder(
    subject: x509.Name,
    issuer: x509.Name,
    key: ec.EllipticCurvePrivateKey,
    now: datetime,
    days: int,
    *,
    is_authority: bool,
) -> x509.CertificateBuilder:
    builder = x509.CertificateBuilder(subject_name=subject, issuer_name=issuer, public_key=key.public_key())
    builder = builder.serial_number(x509.random_serial_number())
    builder = builder.not_valid_before(now - CLOCK_SKEW).not_valid_after(now + timedelta(days=days))
    identifier = x509.SubjectKeyIdentifier.from_public_key(key.public_key())
    constraints = x509.BasicConstraints(ca=is_authority, path_length=0 if is_authority else None)
    usage = x509.KeyUsage(
        digital_signature=not is_authority,
        key_cert_sign=is_authority,
        crl_sign=is_authority,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )
    builder = builder.add_extension(identifier, critical=False)
    return builder.add_extension(constraints, critical=True).add_extension(usage, critical=True)
